// One compile per key, however many threads and processes ask at once.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

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

// Starts `processes` workers on one cache, lets them go at once, and adds up what they say.
Herd run_herd(const std::filesystem::path& cache, int processes, int threads, int kernels) {
  std::vector<Process> workers;
  for (int i = 0; i < processes; ++i)
    workers.push_back(Process::start(
        {KILN_WORKER_PATH, cache.string(), std::to_string(kernels), std::to_string(threads)}));
  for (auto& worker : workers) EXPECT_EQ(worker.read_line(), "ready");
  for (auto& worker : workers) worker.write("go\n");
  Herd herd;
  for (auto& worker : workers) {
    const auto finished = worker.finish();
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
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryDirectory directory;
    const auto herd = run_herd(directory.path() / "cache", 2, 16, 20);
    EXPECT_EQ(herd.compiles, 20) << "round " << round;
    EXPECT_EQ(herd.errors, 0) << "round " << round;
    EXPECT_EQ(herd.keys.size(), 20u) << "round " << round;
  }
}

TEST(SingleFlight, AKilledHolderHoldsNobodyUp) {
  KILN_REQUIRES_NVRTC();
  const TemporaryDirectory directory;
  const auto cache = directory.path() / "cache";
  auto victim = Process::start({KILN_WORKER_PATH, cache.string(), "20", "1"});
  EXPECT_EQ(victim.read_line(), "ready");
  victim.write("go\n");
  // In the middle of its compiles: it has published something and is not done.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (count_files(cache / "v1" / "e") < 3 && std::chrono::steady_clock::now() < deadline)
    ::usleep(1000);
  victim.kill(SIGKILL);
  const auto started = std::chrono::steady_clock::now();
  const auto herd = run_herd(cache, 1, 4, 20);
  EXPECT_EQ(herd.errors, 0);
  EXPECT_EQ(herd.keys.size(), 20u);
  EXPECT_LE(herd.compiles, 17);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
}

}  // namespace
}  // namespace kiln::test
