// What tells rows of a list apart that would otherwise differ in their key alone.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/output.hpp"
#include "kiln/kernel_spec.hpp"

namespace kiln::cli {

struct MarkedRow {
  /// Rows of one group look alike.
  std::string group{};
  /// All that could tell it from the others, what says most first.
  std::vector<std::string> marks{};
};

/// What went into a key besides kernel and architecture: "tile=128", "-use_fast_math",
/// "scale.cu@5f3a81c2", "nvrtc 13.0 ...".
std::vector<std::string> marks_of(std::string_view key_text);
/// The same of what is asked for, as far as that is known before there is a key.
std::vector<std::string> marks_of(const KernelSpec& spec);

/// For each row what others of its group lack, after two blanks; "" where there is nothing.
std::vector<std::string> distinctions(const std::vector<MarkedRow>& rows);

/// The compiled-in constants of a key, as a member of a result.
Json constants_of(std::string_view key_text);

}  // namespace kiln::cli
