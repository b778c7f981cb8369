// A process for tests: opens a Runtime, asks for kernels from several threads, and prints what
// happened as one JSON object.
//
//   worker CACHE_DIR KERNELS THREADS START [NVRTC [VALUES [isolated]]]
//
// An empty CACHE_DIR is none; KILN_CACHE_READONLY lists read-only caches.
// START is the reading of the monotonic clock, in milliseconds, to begin at, so that several
// workers begin together; 0 is at once. Every thread asks for every kernel, in the same order, so
// that all meet at each key. With no thread it warms up, as a server does.
// VALUES more calls register the kernels again, as calls with other runtime values do; "isolated"
// compiles in processes.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kiln/compile_worker.hpp"
#include "kiln/runtime.hpp"
#include "support/kernels.hpp"

namespace {

bool nvrtc_is_mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("libnvrtc") != std::string::npos) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "compile-worker") return kiln::serve_compiles();
  if (argc < 5) return 2;
  kiln::RuntimeOptions options;
  if (auto from = kiln::options_from(kiln::process_environment())) options = *std::move(from);
  options.cache_directory = argv[1];
  if (argc > 5) options.nvrtc = argv[5];
  if (argc > 7) options.worker_command = {argv[0], "compile-worker"};
  std::mutex log_mutex;
  auto warnings = nlohmann::json::array();
  options.log = [&](kiln::LogLevel level, std::string_view message) {
    const std::lock_guard lock(log_mutex);
    if (level >= kiln::LogLevel::warning) warnings.push_back(message);
  };
  auto runtime = kiln::Runtime::open(options);
  if (!runtime || !runtime->add_source("scale.cu", kiln::test::kScaleSource)) return 1;
  std::vector<kiln::KernelId> ids;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    auto id = runtime->add(kiln::test::scale_spec(i));
    if (!id) return 1;
    ids.push_back(*id);
  }

  const int values = argc > 6 ? std::atoi(argv[6]) : 0;
  for (int value = 0; value < values; ++value) {
    const auto at = static_cast<std::size_t>(value) % ids.size();
    const auto id = runtime->add(kiln::test::scale_spec(static_cast<int>(at)));
    if (!id || *id != ids[at]) return 1;
  }

  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::milliseconds(std::atoll(argv[4]))));

  auto errors = nlohmann::json::array();
  auto keys = nlohmann::json::array();
  std::vector<std::thread> threads;
  for (int t = 0; t < std::atoi(argv[3]); ++t)
    threads.emplace_back([&, t] {
      for (const auto id : ids) {
        const auto artifact = runtime->artifact(id, "sm_90a");
        const std::lock_guard lock(log_mutex);
        if (!artifact)
          errors.push_back(artifact.error().message());
        else if (t == 0)
          keys.push_back(artifact->key.hex());
      }
    });
  for (auto& thread : threads) thread.join();
  if (threads.empty()) {
    const auto report = runtime->warmup({.architectures = {"sm_90a"}});
    if (!report) return 1;
    for (const auto& kernel : report->kernels) {
      keys.push_back(kernel.key.hex());
      if (!kernel.status) errors.push_back(kernel.status.error().message());
    }
  }

  const auto counters = runtime->counters();
  std::cout << nlohmann::json{{"compiles", counters.compiles},
                              {"disk_hits", counters.disk_hits},
                              {"lower_tier_hits", counters.lower_tier_hits},
                              {"damaged", counters.damaged_entries},
                              {"errors", errors},
                              {"warnings", warnings},
                              {"keys", keys},
                              {"nvrtc_mapped", nvrtc_is_mapped()}}
                   .dump()
            << std::endl;
  return errors.empty() ? 0 : 1;
}
