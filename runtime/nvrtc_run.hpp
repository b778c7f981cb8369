// One program in NVRTC, from nvrtcCreateProgram to what it gave.
//
// Threads: one object by one thread.
#pragma once

#include <nvrtc.h>

#include <span>
#include <string>
#include <vector>

#include "runtime/include_closure.hpp"
#include "runtime/nvrtc_library.hpp"

namespace kiln {

struct CompileWatch;

class NvrtcRun {
 public:
  explicit NvrtcRun(const NvrtcLibrary& library) : library_(library) {}
  NvrtcRun(const NvrtcRun&) = delete;
  NvrtcRun& operator=(const NvrtcRun&) = delete;
  ~NvrtcRun();

  /// Hands `root` over, under its name behind kProgramPrefix, with `headers`.
  nvrtcResult create(const ProgramFile& root, std::span<const ProgramFile> headers);
  nvrtcResult add_name_expression(const std::string& expression);
  /// Compiles; result() and log() tell what came of it. `watch` may end it.
  nvrtcResult compile(const std::vector<std::string>& arguments, const CompileWatch& watch);

  nvrtcResult result() const noexcept { return result_; }
  const std::string& log() const noexcept { return log_; }
  nvrtcProgram handle() const noexcept { return program_; }

 private:
  const NvrtcLibrary& library_;
  nvrtcProgram program_ = nullptr;
  nvrtcResult result_ = NVRTC_ERROR_INVALID_PROGRAM;
  std::string log_;
};

}  // namespace kiln
