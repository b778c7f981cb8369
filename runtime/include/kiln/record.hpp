// A recording: the kernels that a run asked for, with everything that their compile keys need but
// the compiler, so that they can be compiled elsewhere, ahead of the next run.
//
// Threads: values and pure functions.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"

namespace kiln {

struct RecordedKernel {
  KernelSpec spec{};
  std::vector<std::string> architectures{};  ///< that it was asked for on, in order
  bool operator==(const RecordedKernel&) const = default;
};

struct Recording {
  /// The registered files that the kernels include, text by include name. What they include by
  /// angle brackets must be there where the recording is replayed.
  std::map<std::string, std::string, std::less<>> sources{};
  std::vector<RecordedKernel> kernels{};  ///< in order of their text
  bool operator==(const Recording&) const = default;
};

KILN_API std::string to_json(const Recording& recording);

/// Whether a JSON text is a recording, whole or not, and no manifest of another kind.
KILN_API bool is_recording(std::string_view text) noexcept;

/// Errors  invalid_argument, naming `file` and what is wrong.
KILN_API Result<Recording> read_recording(std::string_view text, const std::string& file);

/// Adds what `from` has and `into` lacks.
/// Errors  invalid_argument when a source has another text in each: they are of two builds.
KILN_API Status merge(Recording& into, const Recording& from);

/// Line by line what `after` lacks ("- ...") and has more ("+ ..."); empty when they are equal.
KILN_API std::vector<std::string> difference(const Recording& before, const Recording& after);

}  // namespace kiln
