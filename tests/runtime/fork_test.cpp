// What a child finds that is forked while other threads of its parent are at work.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/fork_mutex.hpp"
#include "support/fake_compiler.hpp"
#include "support/process.hpp"

namespace kiln::test {
namespace {

using std::chrono::milliseconds;

class ForkTest : public FakeCompilerFixture {
 protected:
  void SetUp() override {
#ifdef KILN_SANITIZE
    GTEST_SKIP() << "the sanitizers' allocator does not survive a fork beside another thread";
#endif
    FakeCompilerFixture::SetUp();
  }
  /// Without the fixture's log, whose own mutex may be held when a child is made.
  RuntimeOptions quiet() {
    auto options = fake_options();
    options.log = {};
    return options;
  }
};

TEST_F(ForkTest, AChildForkedWhileOthersAskHasAllAndNeverHangs) {
  auto runtime = open(quiet());
  std::vector<KernelId> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(add(runtime, "k" + std::to_string(i), ""));
  ASSERT_EQ(runtime.warmup({.architectures = {kArch}})->compiled, ids.size());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = t; !stop; ++i) {
        if (t == 0)
          EXPECT_TRUE(runtime.warmup({.architectures = {kArch}, .jobs = 2}));
        else
          EXPECT_TRUE(runtime.look_up(ids[i % ids.size()], kArch));
      }
    });
  for (unsigned i = 0; i < 150; ++i) {
    const int code = in_child([&] {
      ::alarm(20);
      // With the end of the Runtime, whose threads the child does not have.
      auto mine = std::move(runtime);
      const auto id = ids[i % ids.size()];
      if (!mine.look_up(id, kArch) || !mine.artifact(id, kArch)) return 1;
      return mine.warmup({.architectures = {kArch}}) ? 0 : 2;
    });
    EXPECT_EQ(code, 0);
    if (code != 0) break;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST_F(ForkTest, WhoHoldsALockForLongIsNotWaitedForAndTheChildIsTold) {
  auto runtime = open(quiet());
  const auto id = add(runtime, "k", "");
  ForkMutex mutex;
  std::atomic<bool> held{false}, stop{false};
  std::thread holder([&] {
    const std::lock_guard lock(mutex);
    held = true;
    while (!stop) std::this_thread::sleep_for(milliseconds(1));
  });
  while (!held) std::this_thread::yield();
  const auto child = start_child([&] {
    ::alarm(20);
    const auto refused = runtime.artifact(id, kArch);
    if (refused || refused.error().code() != ErrorCode::invalid_argument) return 1;
    if (runtime.warmup({.architectures = {kArch}}) || runtime.ready_for()) return 2;
    auto own = open(quiet());
    return own.artifact(add(own, "k", ""), kArch) ? 0 : 3;
  });
  stop = true;
  holder.join();
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_TRUE(runtime.artifact(id, kArch));
  // A lock of the thread that forks is no obstacle, and is still its own in the child.
  const std::lock_guard lock(mutex);
  EXPECT_EQ(in_child([&] { return runtime.artifact(id, kArch) ? 0 : 1; }), 0);
}

TEST_F(ForkTest, AConditionIsWaitedForAndEnds) {
  ForkMutex mutex;
  ForkCondition changed;
  bool ready = false;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(20));
    {
      const std::lock_guard lock(mutex);
      ready = true;
    }
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  EXPECT_FALSE(changed.wait_for(lock, milliseconds(1), [] { return false; }));
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return ready; }));
  lock.unlock();
  other.join();
}

}  // namespace
}  // namespace kiln::test
