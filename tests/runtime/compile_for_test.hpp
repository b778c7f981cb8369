// Compiles a source with the NVRTC of this machine, as plainly as NVRTC allows.
#pragma once

#include <string>
#include <vector>

#include "runtime/nvrtc_library.hpp"

namespace kiln::test {

struct Compiled {
  nvrtcResult result = NVRTC_SUCCESS;
  std::string log{};
  std::string cubin{};
};

inline Compiled compile(const NvrtcLibrary& nvrtc, const std::string& source,
                        const std::string& architecture,
                        const std::vector<const char*>& more_options = {}) {
  const NvrtcApi& api = nvrtc.api();
  const auto target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options = {target.c_str(), "--ptxas-options=-v"};
  options.insert(options.end(), more_options.begin(), more_options.end());
  Compiled compiled;
  nvrtcProgram program = nullptr;
  compiled.result =
      api.create_program(&program, source.c_str(), "/embedded/x.cu", 0, nullptr, nullptr);
  if (compiled.result != NVRTC_SUCCESS) return compiled;
  compiled.result = api.compile_program(program, static_cast<int>(options.size()), options.data());
  const auto take = [&](auto size_of, auto get, std::string& into) {
    std::size_t size = 0;
    if (size_of(program, &size) != NVRTC_SUCCESS || size == 0) return;
    into.resize(size);
    if (get(program, into.data()) != NVRTC_SUCCESS) into.clear();
  };
  take(api.get_program_log_size, api.get_program_log, compiled.log);
  if (compiled.result == NVRTC_SUCCESS) take(api.get_cubin_size, api.get_cubin, compiled.cubin);
  static_cast<void>(api.destroy_program(&program));
  return compiled;
}

}  // namespace kiln::test
