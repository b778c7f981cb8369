// The sources that programs are made of, by include name.
//
// Threads: any member from any thread; the callers' copies never change.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/error.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/source_scan.hpp"

namespace kiln {

/// Include name of the header with the key's constants, generated for each program.
inline constexpr std::string_view kKeyHeaderName = "jit/key.cuh";
/// Include name of the header with kiln::TensorMap, the same for every program.
inline constexpr std::string_view kTensorMapHeaderName = "jit/tensor_map.cuh";

/// A text without byte-order mark, and what it may include.
struct Source {
  std::shared_ptr<const std::string> text{};
  cache::Digest digest{};
  SourceScan scan{};
};

class SourceSet {
 public:
  /// With an override directory, a file there takes the place of the added text of the same name,
  /// and names that are only there are found as well. It is read anew at each look-up.
  explicit SourceSet(std::filesystem::path override_directory = {});

  /// Errors  invalid_argument for a bad name, a text with a zero byte, or another text under a
  ///         known name.
  Status add(std::string_view name, std::string_view text);

  /// The source `name`, or null when there is none.
  /// Errors  io_failed for an override file that cannot be read.
  Result<std::shared_ptr<const Source>> find(std::string_view name) const;

  /// Another number after each text that was added; none where an override directory is read.
  std::optional<std::uint64_t> generation() const noexcept {
    if (!override_directory_.empty()) return std::nullopt;
    return generation_.load(std::memory_order_acquire);
  }

  /// The names that were added, in order; not those that only the override directory has.
  std::vector<std::string> names() const;

 private:
  std::filesystem::path override_directory_;
  std::atomic<std::uint64_t> generation_{0};
  mutable SharedForkMutex mutex_;
  std::map<std::string, std::shared_ptr<const Source>, std::less<>> sources_;
};

/// Whether `name` can be an include name: relative, '/'-separated, without empty, "." or ".."
/// parts, control characters, backslashes, quotes and angle brackets; and not one of
/// the two that Kiln provides. Errors  invalid_argument, saying what is wrong.
Status check_include_name(std::string_view name);

/// `text` ready for NVRTC, with its scan.
/// Errors  invalid_argument for a text with a zero byte, where NVRTC would stop reading.
Result<std::shared_ptr<const Source>> make_source(std::string_view name, std::string_view text);

}  // namespace kiln
