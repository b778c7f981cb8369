// A loaded NVRTC. It is never unloaded: it keeps threads and state of its own.
//
// Threads: any member from any thread; NVRTC compiles different programs in parallel.
#pragma once

#include <nvrtc.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "kiln/error.hpp"
#include "runtime/nvrtc_files.hpp"

namespace kiln {

/// The functions of NVRTC that Kiln calls, under the names of <nvrtc.h>. Tests fill it with fakes.
struct NvrtcApi {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) get_error_string = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) get_num_supported_archs = nullptr;
  decltype(&nvrtcGetSupportedArchs) get_supported_archs = nullptr;
  decltype(&nvrtcCreateProgram) create_program = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&nvrtcAddNameExpression) add_name_expression = nullptr;
  decltype(&nvrtcCompileProgram) compile_program = nullptr;
  decltype(&nvrtcGetLoweredName) get_lowered_name = nullptr;
  decltype(&nvrtcGetProgramLogSize) get_program_log_size = nullptr;
  decltype(&nvrtcGetProgramLog) get_program_log = nullptr;
  decltype(&nvrtcGetCUBINSize) get_cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) get_cubin = nullptr;
  // Null where it is missing: a compile then runs to its end.
  decltype(&nvrtcSetFlowCallback) set_flow_callback = nullptr;
  // The memory for precompiled headers; null: it stays as it is.
  decltype(&nvrtcGetPCHHeapSize) get_pch_heap_size = nullptr;
  decltype(&nvrtcSetPCHHeapSize) set_pch_heap_size = nullptr;
};

class NvrtcLibrary {
 public:
  /// Loads the library that a search found, its builtins first.
  /// Errors  no_toolchain, with the path and the loader's own words.
  static Result<NvrtcLibrary> open(const NvrtcFiles& files);

  /// Takes a table as it is: for tests.
  NvrtcLibrary(const NvrtcApi& api, NvrtcFiles files) : api_(api), files_(std::move(files)) {}

  const NvrtcApi& api() const noexcept { return api_; }
  const NvrtcFiles& files() const noexcept { return files_; }

  /// The architectures that it compiles for, such as "sm_90" and "sm_90a", in rising order.
  std::vector<std::string> supported_architectures() const;

 private:
  NvrtcApi api_;
  NvrtcFiles files_;
};

}  // namespace kiln
