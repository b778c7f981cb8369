// What NVRTC says in its log, taken apart.
//
// Threads: pure functions and values.
#pragma once

#include <string>
#include <string_view>

#include "kiln/artifact.hpp"

namespace kiln {

struct PtxasReport {
  ResourceUsage usage{};  ///< zeros when the log says nothing about the kernel
  /// Everything else, whole and in order: warnings and remarks. The same for the same inputs.
  std::string rest{};
};

/// Takes the log of a compile with --ptxas-options=-v apart, for the kernel `symbol`.
PtxasReport read_ptxas_report(std::string_view log, std::string_view symbol);

/// Of a failed compile's log the line that says why: the first error, behind however many warnings;
/// else the first line. Long lines are cut, which the line then says.
std::string first_fatal_line(std::string_view log);

}  // namespace kiln
