// A program outside of Kiln's tree: its kernels are files, embedded when it is built, compiled when
// it runs, and kept in a cache after that. How to build it: see CMakeLists.txt beside this file.
//
//   outside_project      uses the cache that KILN_CACHE_DIR names, or the user's
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <embedded_sources.hpp>  // made by kiln_embed_sources
#include <kiln/runtime.hpp>

namespace {

// Five driver calls that an engine has anyway, spelled out here so that no CUDA header is needed.
// A call that fails, or is missing, is false.
template <class... Args>
bool driver(const char* name, Args... args) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* const call = library == nullptr ? nullptr : ::dlsym(library, name);
  return call != nullptr && reinterpret_cast<int (*)(Args...)>(call)(args...) == 0;
}

bool use_first_device() {
  void* context = nullptr;
  return driver("cuInit", 0U) && driver("cuDevicePrimaryCtxRetain", &context, 0) &&
         driver("cuCtxSetCurrent", context);
}

// Memory that the host and the device both see.
int* managed(std::size_t count) {
  constexpr unsigned kAttachGlobal = 1;
  int* address = nullptr;
  return driver("cuMemAllocManaged", &address, count * sizeof(int), kAttachGlobal) ? address
                                                                                   : nullptr;
}

struct Key {
  int columns = 0;  // of a row
  static constexpr auto fields() { return std::tuple{kiln::KeyField{"columns", &Key::columns}}; }
};

constexpr int kColumns = 100;
constexpr int kRows = 64;

kiln::Status run() {
  KILN_TRY(const auto options, kiln::options_from(kiln::process_environment()));
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(runtime.add_sources(outside_project::embedded_sources()));
  KILN_TRY(const auto id, runtime.add({.name = "row_sum",
                                       .source = "kernels/row_sum.cu",
                                       .key = kiln::key_values(Key{.columns = kColumns})}));
  const bool gpu = runtime.device().has_value() && use_first_device();
  kiln::WarmupOptions warmup;
  if (!gpu) warmup.architectures = {"sm_90a"};
  KILN_TRY(const auto report, runtime.warmup(warmup));
  for (const auto& kernel : report.kernels) {
    if (!kernel.status) return kernel.status;
    std::printf("%s %s: %s\n", kernel.kernel.c_str(), kernel.architecture.c_str(),
                std::string(to_string(kernel.origin)).c_str());
  }
  if (!gpu) {
    std::printf("no GPU; would launch row_sum with %d blocks of 32 threads\n", kRows);
    return {};
  }

  int* const rows = managed(kRows * kColumns);
  int* const sums = managed(kRows);
  if (rows == nullptr || sums == nullptr)
    return kiln::Error(kiln::ErrorCode::driver_failed, "no managed memory");
  for (int i = 0; i < kRows * kColumns; ++i) rows[i] = i;
  KILN_TRY(const auto kernel, runtime.get(id));
  KILN_TRY(auto launch, runtime.launches().prepare(
                            kernel, {.grid_blocks = {kRows}, .block_threads = {32}}, rows, sums));
  KILN_TRY(launch.launch(nullptr));
  if (!driver("cuCtxSynchronize"))
    return kiln::Error(kiln::ErrorCode::driver_failed, "the kernel failed");
  for (int row = 0; row < kRows; ++row) {
    int expected = 0;
    for (int column = 0; column < kColumns; ++column) expected += rows[row * kColumns + column];
    if (sums[row] != expected)
      return kiln::Error(kiln::ErrorCode::driver_failed,
                         "row " + std::to_string(row) + " is wrong");
  }
  std::printf("row_sum: all %d values are right\n", kRows);
  return {};
}

}  // namespace

int main() {
  const auto status = run();
  if (status) return 0;
  std::fprintf(stderr, "%s\n%s", status.error().message().c_str(),
               std::string(status.error().detail()).c_str());
  return 1;
}
