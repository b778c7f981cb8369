// SIGKILL at any instant, and at every system call of a put, a get and a trim: nothing torn is ever
// seen, nothing stays for longer than it is documented to, and the next caller goes on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/bundle.hpp"
#include "tests/faults/harness.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kKeys = 6;

SystemCalls calls_of(bool anonymous_files) {
  SystemCalls calls = kRealCalls;
  if (!anonymous_files)
    calls.openat = [](int directory, const char* path, int flags, mode_t mode) {
      if ((flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;
      return kRealCalls.openat(directory, path, flags, mode);
    };
  return calls;
}

Store open_store(const fs::path& root, const SystemCalls& calls, std::uint64_t max_bytes = 0) {
  return *StoreWithCalls::open(
      {.directory = root, .limits = {.max_bytes = max_bytes, .min_free_bytes = 1, .grace = 0s}},
      calls);
}

/// What must hold after a kill. `slowest` is the longest that the next caller took.
void expect_whole(const fs::path& root, const SystemCalls& calls, bool anonymous_files,
                  std::chrono::nanoseconds& slowest) {
  Store store = open_store(root, calls);
  for (unsigned i = 0; i < kKeys; ++i) EXPECT_NE(look(store, i), Seen::wrong);
  const auto verified = store.verify();
  ASSERT_TRUE(verified) << verified.error().message();
  for (const auto& info : *verified) EXPECT_EQ(info.damage, "");

  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(store.try_lock(digest_of(key_of(0))).outcome, LockOutcome::held);
  EXPECT_TRUE(publish(store, 0).ok());
  EXPECT_EQ(look(store, 0), Seen::right);
  slowest = std::max<std::chrono::nanoseconds>(slowest, std::chrono::steady_clock::now() - start);

  const auto left = test::dot_names_below(root);
  EXPECT_TRUE(left.size() <= 1 && (left.empty() || !anonymous_files)) << left.size();
  for (const auto& file : fs::recursive_directory_iterator(root))
    if (file.path().filename().string().starts_with(".tmp-"))
      fs::last_write_time(file, fs::file_time_type::clock::now() - 61min);
  EXPECT_EQ(store.collect_garbage().status().ok(), true);
  EXPECT_TRUE(test::dot_names_below(root).empty()) << "an orphan outlives its age";
  ASSERT_TRUE(store.trim({.older_than = 1000h}));
  EXPECT_EQ(store.measure()->kept, store.measure()->entries) << "a recount puts totals right";
}

TEST(Kill, AtAnyInstant) {
  test::use_memory_for_temporary_files();
  const test::TemporaryDirectory directory;
  const fs::path root = directory / "cache";
  std::chrono::nanoseconds slowest{0};
  std::minstd_rand random(5);
  const int rounds = times(300, 5000);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const bool anonymous_files = round % 3 != 0;
    const SystemCalls calls = calls_of(anonymous_files);
    const pid_t child = test::start_child([&] {
      Store store = open_store(root, calls);
      for (unsigned i = 0;; ++i) {
        static_cast<void>(publish(store, i % kKeys).ok());
        static_cast<void>(look(store, (i + 1) % kKeys));
        if (i % 3 == 0) static_cast<void>(store.discard(digest_of(key_of(i % kKeys))).ok());
        if (i % 5 == 0) static_cast<void>(store.trim({.max_bytes = 4000}).status().ok());
      }
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2500));
    ::kill(child, SIGKILL);
    test::wait_for(child);
    if (fs::exists(root)) expect_whole(root, calls, anonymous_files, slowest);
  }
  RecordProperty(
      "slowest_next_caller_us",
      static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(slowest).count()));
  EXPECT_LT(slowest, 10s);
}

/// Runs `work` in a child and kills it at its `stop`-th halt before or after a system call. False
/// when it made fewer.
bool killed_at(int stop, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(99);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int halt = 0; WIFSTOPPED(status); ++halt) {
    if (halt == stop) {
      ::kill(child, SIGKILL);
      while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) continue;
      return true;
    }
    // Signals are passed on; what is left are halts at system calls.
    const int signal = WSTOPSIG(status);
    const int passed = signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
    if (::ptrace(PTRACE_SYSCALL, child, nullptr, passed) != 0) break;
    ::waitpid(child, &status, 0);
  }
  return false;
}

struct Operation {
  const char* name;
  void (*run)(Store& store);
  std::uint64_t max_bytes = 0;  // of the store; 0: no limit
};

TEST(Kill, AtEverySystemCall) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer's own system calls are many times those of the store";
#endif
  test::use_memory_for_temporary_files();
  if (!killed_at(0, [] {})) GTEST_SKIP() << "no process may be traced here";
  const Operation operations[] = {
      {"put of the first entry", [](Store& store) { static_cast<void>(publish(store, 0).ok()); }},
      {"put", [](Store& store) { static_cast<void>(publish(store, 3).ok()); }},
      {"put that trims", [](Store& store) { static_cast<void>(publish(store, 3).ok()); }, 4000},
      {"put over damage", [](Store& store) { static_cast<void>(publish(store, 1).ok()); }},
      {"get", [](Store& store) { static_cast<void>(look(store, 2)); }},
      {"trim", [](Store& store) { static_cast<void>(store.trim({.max_bytes = 0}).status().ok()); }},
      {"discard",
       [](Store& store) { static_cast<void>(store.discard(digest_of(key_of(2))).ok()); }},
  };
  std::chrono::nanoseconds slowest{0};
  for (const bool anonymous_files : {true, false}) {
    const SystemCalls calls = calls_of(anonymous_files);
    for (const Operation& operation : operations) {
      int stop = 0;
      // In CI every third halt of a trim: most of them are one listing after another.
      const int step = operation.name == std::string("trim") ? times(41, 1) : 1;
      for (;; stop += step) {
        SCOPED_TRACE(std::string(operation.name) + " killed at halt " + std::to_string(stop));
        const test::TemporaryDirectory directory;
        const fs::path root = directory / "cache";
        if (operation.name != std::string("put of the first entry")) {
          Store store = open_store(root, calls);
          for (const unsigned i : {0u, 1u, 2u}) ASSERT_TRUE(publish(store, i).ok());
          const std::string hex = digest_of(key_of(1)).hex();
          if (operation.name == std::string("put over damage"))
            test::write_file(root / "v1/e" / hex.substr(0, 2) / hex.substr(2), "damaged");
        }
        const bool killed = killed_at(stop, [&] {
          Store store = open_store(root, calls, operation.max_bytes);
          operation.run(store);
        });
        if (operation.name == std::string("put over damage")) {
          Store store = open_store(root, calls);
          ASSERT_TRUE(publish(store, 1).ok());
        }
        if (fs::exists(root)) expect_whole(root, calls, anonymous_files, slowest);
        if (testing::Test::HasFailure()) return;
        if (!killed) break;
      }
      EXPECT_GT(stop, 10) << operation.name << ": the harness does not see its calls";
    }
  }
  RecordProperty(
      "slowest_next_caller_us",
      static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(slowest).count()));
  EXPECT_LT(slowest, 10s);
}

#ifndef KILN_EMULATED  // no libsodium for the emulated processor
// A bundle may be as large as the cache, and nothing collects what lies beside it.
TEST(Kill, WhileABundleIsWrittenLeavesTheOldOneAndNothingElse) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer's own system calls are many times those of the store";
#endif
  test::use_memory_for_temporary_files();
  if (!killed_at(0, [] {})) GTEST_SKIP() << "no process may be traced here";
  const test::TemporaryDirectory directory;
  const fs::path file = directory / "bundles" / "file.kiln";
  fs::create_directory(file.parent_path());
  Store store = open_store(directory / "cache", kRealCalls);
  for (unsigned i = 0; i < kKeys; ++i) ASSERT_TRUE(publish(store, i).ok());
  std::size_t left = 0;
  int stop = 0;
  for (bool killed = true; killed; ++stop) {
    test::write_file(file, "what was there");
    killed = killed_at(stop, [&] {
      std::vector<BundleSource> sources;
      for (unsigned i = 0; i < kKeys; ++i) sources.push_back({.name = digest_of(key_of(i))});
      static_cast<void>(write_bundle(store, sources, nullptr, file).ok());
    });
    EXPECT_TRUE(test::read_file(file) == "what was there" ||
                Bundle::open(file, {.keys = {}, .anyone = true}));
    for (const auto& name : test::dot_names_below(file.parent_path())) {
      fs::remove(file.parent_path() / name);
      ++left;
    }
  }
  EXPECT_GT(stop, 20) << "the harness does not see its calls";
  EXPECT_LE(left, 2u) << "between its name and its place it may be seen";
}
#endif

}  // namespace
}  // namespace kiln::cache
