#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cache/layout.hpp"
#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/faulty_calls.hpp"
#include "tests/cache/store_fixture.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::dot_names_below;
using test::write_file;

TEST(StoreFaults, ShortReadsAndWritesAndOlderKernelsMakeNoDifference) {
  const SystemCalls calls = faulty_calls();
  for (const bool anonymous : {true, false}) {
    for (const bool openat2 : {true, false}) {
      Fixture f;
      faults = {.no_anonymous_files = !anonymous, .no_openat2 = !openat2, .short_transfers = true};
      Store store = *StoreWithCalls::open({.directory = f.root, .log = f.sink()}, calls);
      ASSERT_TRUE(publish(store, kKey).ok());
      EXPECT_TRUE(finds(store, kKey));
      ASSERT_TRUE(publish(store, kKey).ok());
      write_file(path_of(f.root, kKey), "damaged");
      ASSERT_TRUE(publish(store, kKey).ok());
      EXPECT_TRUE(finds(store, kKey));
      fs::remove(path_of(f.root, kKey));
      fs::create_directories(path_of(f.root, kKey) / "full");
      ASSERT_TRUE(publish(store, kKey).ok());
      EXPECT_TRUE(finds(store, kKey));
      for (const auto& name : dot_names_below(f.root)) EXPECT_TRUE(name.starts_with(".aside-"));
      EXPECT_EQ(f.warnings.size(), 1u);
    }
  }
}

// SELinux and AppArmor can forbid what file systems do not lack.
TEST(StoreFaults, WhereNoLinkMayBeMadeAFileIsRenamedIntoItsPlace) {
  static int refusal = 0;
  SystemCalls calls = kRealCalls;
  calls.linkat = [](int, const char*, int, const char*, int) { return errno = refusal, -1; };
  for (const int error : {EACCES, EPERM, EOPNOTSUPP, EMLINK, EXDEV}) {
    SCOPED_TRACE(::strerrordesc_np(error));
    refusal = error;
    Fixture f;
    Store store = *StoreWithCalls::open({.directory = f.root, .log = f.sink()}, calls);
    EXPECT_TRUE(publish(store, kKey).ok());
    EXPECT_TRUE(finds(store, kKey));
    EXPECT_TRUE(f.warnings.empty());
    EXPECT_TRUE(test::dot_names_below(f.root).empty());
  }
}

TEST(StoreFaults, APublishEndsWithAWholeEntryOrWithNone) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  for (const bool anonymous : {true, false}) {
    for (const bool damaged : {false, true}) {
      for_every_fault({.no_anonymous_files = !anonymous}, [&] {
        const TemporaryDirectory directory;
        const fs::path root = directory / "cache";
        // A store that a group shares makes three calls more.
        Trust trust;
        if (damaged) trust.group = ::getegid();
        Store store =
            *StoreWithCalls::open({.directory = root, .durable = true, .trust = trust}, calls);
        if (damaged) {
          fs::create_directories(path_of(root, kKey).parent_path());
          write_file(path_of(root, kKey), "damaged");
        }
        const Status status = publish(store, kKey);
        const bool reached = faults.calls > faults.first;
        const bool once = !faults.all_from_there;
        faults = {};

        if (!status.ok()) expect_useful(status, root);
        const Found found = store.find(digest_of(kKey), kKey);
        EXPECT_TRUE(!status.ok() || finds(store, kKey));
        EXPECT_TRUE(damaged || found.damage.empty()) << found.damage;
        EXPECT_TRUE(!once || dot_names_below(root).empty());
        EXPECT_TRUE(publish(store, kKey).ok());
        EXPECT_TRUE(finds(store, kKey));
        return reached;
      });
    }
  }
}

TEST(StoreFaults, ALookUpEndsWithTheEntryOrWithout) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  const TemporaryDirectory directory;
  Store store = *StoreWithCalls::open({.directory = directory / "cache"}, calls);
  faults = {};
  ASSERT_TRUE(publish(store, kKey).ok());
  for_every_fault({}, [&] {
    const Found found = store.find(digest_of(kKey), kKey);
    const bool reached = faults.calls > faults.first;
    EXPECT_TRUE(found.entry || reached);
    EXPECT_TRUE(!found.entry || text_of(found.entry->payload()) == kPayload + std::string(kKey));
    return reached;
  });
}

/// A trim makes hundreds of calls, most of them alike: every one fails in the long form alone.
int each_or(int step) {
  return std::getenv("KILN_FULL") != nullptr ? 1 : step;
}

#ifdef KILN_SANITIZE
constexpr int kTrimStep = 61;
#else
constexpr int kTrimStep = 13;
#endif

// All else that a store does, each with every fault at every call: it does it, or says why not, or
// does less; what is left is whole, and the same done again without a fault does it.
TEST(StoreFaults, MaintenanceEndsWellOrSaysWhyNot) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  struct {
    const char* name;
    bool (*run)(Store& store);  // false when it said that it failed
    std::size_t left;           // of three entries, once it was done
  } const works[] = {
      {"trim", [](Store& s) { return s.trim({.max_bytes = 0}).has_value(); }, 0},
      {"clear", [](Store& s) { return s.clear().has_value(); }, 0},
      {"discard", [](Store& s) { return s.discard(digest_of(kKey)).ok(); }, 2},
      {"repair", [](Store& s) { return s.repair(Repair::quarantine).has_value(); }, 2},
      {"collect garbage", [](Store& s) { return s.collect_garbage().has_value(); }, 3},
      {"measure", [](Store& s) { return s.measure().has_value(); }, 3},
      {"list", [](Store& s) { return s.list().has_value(); }, 3},
      {"verify", [](Store& s) { return s.verify().has_value(); }, 3},
      {"records", [](Store& s) { return s.records("tools").size() <= 1; }, 3},
      {"add a record", [](Store& s) { return s.add_record("tools", "b").ok(); }, 3},
  };
  for (const auto& work : works) {
    const bool repairs = work.name == std::string("repair");
    const TemporaryDirectory directory;
    // Few calls of a whole trim are unlike those before them.
#ifdef KILN_SANITIZE
    const int step = each_or(work.left == 0 ? kTrimStep : 5);
#else
    const int step = each_or(work.left == 0 ? kTrimStep : 1);
#endif
    for_every_fault(
        {},
        [&] {
          const fs::path root = directory / "cache";
          Store store = *StoreWithCalls::open({.directory = root}, calls);
          const Faults fault = std::exchange(faults, {});
          for (const char* key : {"k=1", "k=2", "k=3"}) EXPECT_TRUE(publish(store, key).ok());
          EXPECT_TRUE(store.add_record("tools", "a").ok());
          if (repairs) write_file(path_of(root, kKey), "damaged");
          faults = fault;
          static_cast<void>(work.run(store));
          const bool reached = faults.calls > faults.first;
          faults = {};
          std::size_t whole = 0;
          for (const char* key : {"k=1", "k=2", "k=3"}) {
            const Found found = store.find(digest_of(key), key);
            whole += found.entry ? 1 : 0;
            EXPECT_TRUE(found.damage.empty() || repairs) << found.damage;
          }
          EXPECT_GE(whole, work.left) << work.name;
          EXPECT_TRUE(work.run(store)) << work.name;
          EXPECT_EQ(store.list()->size(), work.left) << work.name;
          EXPECT_TRUE(publish(store, kKey).ok());
          EXPECT_TRUE(finds(store, kKey));
          return reached;
        },
        step);
  }
}

// A publish beyond the limit, whose trimming is an aid to it: whatever fails of that, the entry is
// there or absent, all others are whole or gone, and a later publish keeps to the limit.
TEST(StoreFaults, APublishThatTrimsEndsWellWhateverFails) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  const Limits limits{.max_bytes = 25'000, .grace = std::chrono::seconds(0)};
#ifdef KILN_SANITIZE
  const int step = each_or(89);
#else
  const int step = each_or(7);
#endif
  const TemporaryDirectory directory;
  Store filler = *Store::open({.directory = directory / "cache", .limits = {.max_bytes = 0}});
  for_every_fault(
      {},
      [&] {
        const Faults fault = std::exchange(faults, {});
        for (const char* key : {"k=1", "k=2", "k=3"}) EXPECT_TRUE(publish(filler, key).ok());
        Store store =
            *StoreWithCalls::open({.directory = directory / "cache", .limits = limits}, calls);
        faults = fault;
        const Status status = publish(store, "k=4");
        const bool reached = faults.calls > faults.first;
        faults = {};
        EXPECT_TRUE(!status.ok() || finds(store, "k=4") || store.counters().trimmed.entries > 0);
        const auto verified = store.verify();
        EXPECT_TRUE(verified);
        for (const auto& info : *verified) EXPECT_EQ(info.damage, "");
        EXPECT_TRUE(dot_names_below(directory / "cache").empty());
        // Where its lock failed a total may be off, until its shard is counted.
        EXPECT_TRUE(filler.trim({.older_than = std::chrono::hours(1000)}));
        EXPECT_EQ(filler.measure()->kept, filler.measure()->entries);
        for (const char* key : {"k=5", "k=6"}) EXPECT_TRUE(publish(store, key).ok());
        EXPECT_LE(store.measure()->entries.bytes, limits.max_bytes);
        EXPECT_EQ(store.measure()->kept, store.measure()->entries);
        EXPECT_TRUE(filler.clear());
        return reached;
      },
      step);
}

TEST(StoreFaults, AUseThatCannotBeNotedIsAHitAllTheSame) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  const TemporaryDirectory directory;
  Store store = *StoreWithCalls::open({.directory = directory / "cache"}, calls);
  faults = {};
  ASSERT_TRUE(publish(store, kKey).ok());
  for_every_fault({}, [&] {
    fs::last_write_time(path_of(directory / "cache", kKey),
                        fs::file_time_type::clock::now() - std::chrono::hours(5));
    const Found found = store.find(digest_of(kKey), kKey);
    const bool reached = faults.calls > faults.first;
    EXPECT_TRUE(found.entry || reached);
    return reached;
  });
}

// A network file system may hide for a while what another machine has just named.
TEST(StoreFaults, AnEntryOfAnotherThatDoesNotShowYetIsNoFailure) {
  const SystemCalls calls = faulty_calls();
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  faults = {.late_names = true};
  Store store = *StoreWithCalls::open({.directory = f.root, .log = f.sink()}, calls);
  EXPECT_FALSE(store.find(digest_of(kKey), kKey).entry);
  EXPECT_TRUE(publish(store, kKey).ok());
  EXPECT_TRUE(f.warnings.empty());
  faults = {};
  EXPECT_TRUE(finds(store, kKey));
}

TEST(StoreFaults, ALockIsHadOrUnavailable) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  for_every_fault({}, [&] {
    const TemporaryDirectory directory;
    Store store = *StoreWithCalls::open({.directory = directory / "cache"}, calls);
    {
      const LockAttempt attempt = store.try_lock(digest_of(kKey));
      const bool refused_as_taken = faults.error == EACCES;
      EXPECT_TRUE(refused_as_taken || attempt.outcome != LockOutcome::busy);
    }
    const bool reached = faults.calls > faults.first;
    faults = {};
    EXPECT_EQ(store.try_lock(digest_of(kKey)).outcome, LockOutcome::held);
    return reached;
  });
}

// What a publish costs must not grow with what is there; instructions are counted by the benchmark.
TEST(StoreFaults, APublishMakesAsManyCallsHoweverMuchIsThere) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  const TemporaryDirectory directory;
  Store store = *StoreWithCalls::open({.directory = directory / "cache"}, calls);
  // Three keys of one shard, so that its directory is there and swept.
  std::vector<std::string> keys;
  for (int i = 0; keys.size() < 3; ++i) {
    const std::string key = "key " + std::to_string(i);
    if (keys.empty() || shard_of(digest_of(key)) == shard_of(digest_of(keys[0])))
      keys.push_back(key);
  }
  faults = {};
  const auto calls_of = [&](const std::string& key) {
    faults.calls = 0;
    EXPECT_TRUE(publish(store, key).ok());
    return faults.calls;
  };
  calls_of(keys[0]);
  const int few = calls_of(keys[1]);
  for (int i = 0; i < 3000; ++i)
    ASSERT_TRUE(store.publish("fill " + std::to_string(i), {}, {}).ok());
  EXPECT_EQ(calls_of(keys[2]), few);
  EXPECT_LT(few, 40);
}

Store* intruder = nullptr;
int looks = 1;  // at which of them it comes

TEST(StoreFaults, AGoodEntryThatReplacesADamagedOneMeanwhileIsKept) {
  Fixture f;
  SystemCalls calls = kRealCalls;
  calls.read = [](int fd, void* to, size_t size) {
    const ssize_t count = kRealCalls.read(fd, to, size);
    Store* const other = looks++ == 1 ? std::exchange(intruder, nullptr) : nullptr;
    EXPECT_TRUE(other == nullptr || other->publish(kKey, "theirs", {}).ok());
    return count;
  };
  Store store = *StoreWithCalls::open({.directory = f.root}, calls);
  fs::create_directories(path_of(f.root, kKey).parent_path());
  write_file(path_of(f.root, kKey), std::string(100, 'x'));
  intruder = &f.store;
  ASSERT_TRUE(publish(store, kKey).ok());
  const Found found = store.find(digest_of(kKey), kKey);
  ASSERT_TRUE(found.entry);
  EXPECT_EQ(found.entry->facts(), "theirs");

  // Neither removed by a repair that saw the damage nor put aside.
  for (const Repair how : {Repair::remove, Repair::quarantine}) {
    write_file(path_of(f.root, kKey), std::string(100, 'x'));
    looks = 0;
    intruder = &f.store;
    ASSERT_TRUE(store.repair(how));
    EXPECT_TRUE(store.find(digest_of(kKey), kKey).entry);
    EXPECT_EQ(store.measure()->kept, store.measure()->entries);
  }
}

TEST(StoreFaults, OnlyADurableStoreSyncs) {
  const SystemCalls calls = faulty_calls();
  for (const bool durable : {false, true}) {
    const TemporaryDirectory directory;
    faults = {};
    Store store =
        *StoreWithCalls::open({.directory = directory / "cache", .durable = durable}, calls);
    ASSERT_TRUE(publish(store, kKey).ok());
    // The file, its shard, and the parents of root, v1, e and the shard.
    EXPECT_EQ(faults.syncs, durable ? 6 : 0);
  }
}

}  // namespace
}  // namespace kiln::cache
