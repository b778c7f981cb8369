// One compile per key, however many threads and processes ask at once.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "support/process.hpp"
#include "support/requires_nvrtc.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

struct Herd {
  int compiles = 0;
  int errors = 0;
  std::set<std::string> keys{};
};

std::size_t count_files(const std::filesystem::path& directory) {
  std::size_t count = 0;
  std::error_code failure;
  for (std::filesystem::recursive_directory_iterator at(directory, failure), end;
       !failure && at != end; at.increment(failure))
    count += at->is_regular_file(failure);
  return count;
}

std::vector<std::string> worker(const std::filesystem::path& cache, int kernels, int threads,
                                std::chrono::milliseconds start) {
  return {KILN_WORKER_PATH, cache.string(), std::to_string(kernels), std::to_string(threads),
          std::to_string(start.count())};
}

// Starts `processes` workers on one cache, lets them go at once, and adds up what they say.
Herd run_herd(const std::filesystem::path& cache, int processes, int threads, int kernels) {
  const auto start = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::steady_clock::now().time_since_epoch()) +
                     std::chrono::milliseconds(100);
  std::vector<ProcessResult> results(static_cast<std::size_t>(processes));
  std::vector<std::thread> runners;
  for (auto& result : results)
    runners.emplace_back([&] {
      result = run_process(
          {.arguments = worker(cache, kernels, threads, start), .environment = this_environment()});
    });
  for (auto& runner : runners) runner.join();
  Herd herd;
  for (const auto& finished : results) {
    EXPECT_EQ(finished.exit_code, 0) << finished.out << finished.err;
    const auto json = nlohmann::json::parse(finished.out, nullptr, false);
    if (!json.is_object()) {
      ADD_FAILURE() << finished.out;
      continue;
    }
    herd.compiles += json["compiles"].get<int>();
    herd.errors += static_cast<int>(json["errors"].size());
    for (const auto& key : json["keys"]) herd.keys.insert(key.get<std::string>());
  }
  return herd;
}

TEST(SingleFlight, TwoProcessesOfSixteenThreadsCompileEachOfTwentyKeysOnce) {
  KILN_REQUIRES_NVRTC();
#ifdef KILN_SANITIZE
  constexpr int kRounds = 5;  // each takes seconds, and walks the same code
#else
  constexpr int kRounds = 20;
#endif
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryDirectory directory;
    const auto herd = run_herd(directory.path() / "cache", 2, 16, 20);
    EXPECT_EQ(herd.compiles, 20) << "round " << round;
    EXPECT_EQ(herd.errors, 0) << "round " << round;
    EXPECT_EQ(herd.keys.size(), 20u) << "round " << round;
  }
}

TEST(SingleFlight, AWarmProcessNeverMapsNvrtc) {
  KILN_REQUIRES_NVRTC();
  const TemporaryDirectory directory;
  for (const bool cold : {true, false}) {
    const auto finished = run_process({.arguments = worker(directory.path() / "cache", 3, 2, {}),
                                       .environment = this_environment()});
    const auto json = nlohmann::json::parse(finished.out, nullptr, false);
    ASSERT_TRUE(json.is_object()) << finished.out << finished.err;
    EXPECT_EQ(json["compiles"], cold ? 3 : 0);
    EXPECT_EQ(json["nvrtc_mapped"], cold);
  }
}

TEST(SingleFlight, AKilledHolderHoldsNobodyUp) {
  KILN_REQUIRES_NVRTC();
  const TemporaryDirectory directory;
  const auto cache = directory.path() / "cache";
  const pid_t victim = start_child([&] {
    auto arguments = worker(cache, 20, 1, {});
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    ::execv(pointers[0], pointers.data());
    return 127;
  });
  // In the middle of its compiles: it has published something and is not done.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (count_files(cache / "v1" / "e") < 3 && std::chrono::steady_clock::now() < deadline)
    ::usleep(1000);
  ::kill(victim, SIGKILL);
  EXPECT_EQ(wait_for(victim), 128 + SIGKILL);
  const auto started = std::chrono::steady_clock::now();
  const auto herd = run_herd(cache, 1, 4, 20);
  EXPECT_EQ(herd.errors, 0);
  EXPECT_EQ(herd.keys.size(), 20u);
  EXPECT_LE(herd.compiles, 17);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
}

}  // namespace
}  // namespace kiln::test
