// A plugin with Kiln in it, which a process opens, uses and closes.
#include <cuda.h>

#include <cstdio>

#include "kiln/runtime.hpp"

namespace {

kiln::Status launch(CUstream stream, const char* cache) {
  KILN_TRY(auto runtime, kiln::Runtime::open({.cache_directory = cache}));
  if (auto status = runtime.add_source("plugin.cu", R"(extern "C" __global__ void entry() {})");
      !status)
    return status;
  KILN_TRY(const auto id, runtime.add({.name = "plugin", .source = "plugin.cu"}));
  KILN_TRY(const auto kernel, runtime.get(id));
  KILN_TRY(auto descriptor, runtime.launches().prepare(kernel, {}));
  return descriptor.launch(stream);
}

}  // namespace

// Whether the launch on `stream`, which may be captured, went well.
extern "C" bool kiln_plugin_launch(CUstream stream, const char* cache) {
  const auto status = launch(stream, cache);
  if (!status) std::fprintf(stderr, "%s\n", status.error().message().c_str());
  return status.ok();
}
