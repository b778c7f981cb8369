// Our half of rivals.sh, in the same terms as its scripts: a fresh process makes one kernel after
// another in a cold cache, and another process finds them again. The first kernel of each process
// stands apart, since it pays for what is opened lazily. Needs NVRTC; with a GPU the kernels are
// also loaded.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "bench/rounds.hpp"
#include "bench/table_kernel.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/runtime.hpp"
#include "support/cuda_driver.hpp"
#include "support/process.hpp"
#include "support/temporary_directory.hpp"

namespace {

using namespace kiln;
using bench::fail;
using bench::must;

constexpr int kKernels = 41;

/// Prints the microseconds that each of `kernels` took.
int child(const std::string& cache, int kernels, bool load) {
  std::optional<test::CudaDriver> driver;
  if (load) driver.emplace(must(test::CudaDriver::open()));
  std::optional<Runtime> runtime;
  for (int i = 0; i < kernels; ++i) {
    const double time = bench::time_of([&] {
      if (!runtime) {
        runtime = must(Runtime::open({.cache_directory = cache}));
        must(runtime->add_source("table.cu", bench::kTableSource));
      }
      const auto id = must(runtime->add(bench::table_spec(i)));
      if (load)
        static_cast<void>(must(runtime->get(id)));
      else
        static_cast<void>(must(runtime->artifact(id, "sm_90a")));
    });
    std::printf("%.3f\n", time);
  }
  return 0;
}

std::vector<double> times_of_child(const std::string& cache, int kernels, bool load) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto result = test::run_process(
      {.arguments = {self, "child", cache, std::to_string(kernels), load ? "load" : "find"},
       .environment = test::this_environment()});
  if (result.exit_code != 0) fail("the child failed: " + result.err);
  std::vector<double> times;
  std::istringstream text(result.out);
  for (double time = 0; text >> time;) times.push_back(time);
  return times;
}

void rows(bench::Report& report, bool load) {
  const auto suffix = load ? std::string(", loaded") : std::string();
  std::vector<double> cold, cold_first, hit, hit_first;
  for (int round = 0; round < report.rounds(); ++round) {
    const test::TemporaryDirectory directory;
    for (const bool warm : {false, true}) {
      const auto times = times_of_child(directory / "cache", kKernels, load);
      (warm ? hit_first : cold_first).push_back(times.front());
      auto& rest = warm ? hit : cold;
      rest.insert(rest.end(), times.begin() + 1, times.end());
    }
  }
  report.add("cold compile and store" + suffix, "us", cold);
  report.add("first cold compile of a process" + suffix, "us", cold_first);
  report.add("disk hit" + suffix, "us", hit);
  report.add("first disk hit of a process" + suffix, "us", hit_first);
}

/// The store alone, in a process that runs already.
void store_rows(bench::Report& report) {
  const test::TemporaryDirectory directory;
  auto store = must(cache::Store::open({.directory = directory / "cache"}));
  const std::string payload(40'000, 'p');
  std::vector<double> hits, publishes;
  for (int i = 0; i <= kKernels * report.rounds(); ++i) {
    const std::string key = "k=" + std::to_string(i);
    const auto name = cache::digest_of(key);
    const double publish =
        bench::time_of([&] { must(store.publish(key, "{}", std::as_bytes(std::span(payload)))); });
    const double hit = bench::time_of([&] {
      if (!store.find(name, key).entry) fail("what was stored is not found");
    });
    if (i == 0) continue;
    publishes.push_back(publish);
    hits.push_back(hit);
  }
  report.add("the store alone: verified hit of 40 KB", "us", hits);
  report.add("the store alone: publish of 40 KB", "us", publishes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && argv[1] == std::string("child"))
    return child(argv[2], std::atoi(argv[3]), argv[4] == std::string("load"));
  bench::Report report("rivals", argc, argv, 3);
  // First: ext4 is slower for seconds after many files were removed.
  store_rows(report);
  rows(report, /*load=*/false);
  if (test::CudaDriver::open()) rows(report, /*load=*/true);
  const test::TemporaryDirectory directory;
  std::vector<double> whole;
  for (int run = -1; run < 10 * report.rounds(); ++run) {
    const double time = bench::time_of(
        [&] { static_cast<void>(times_of_child(directory / "cache", 1, /*load=*/false)); });
    if (run >= 0) whole.push_back(time);
  }
  report.add("whole process that finds one 40 KB object", "us", whole);
  return report.finish();
}
