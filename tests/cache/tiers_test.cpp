// Read-only directories below the writable one: asked in order, counted apart, never written.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {
namespace {

using test::in_child;
using test::write_file;

/// Three stores: k=1 in all, k=2 in both lower ones, k=3 in the lowest.
struct Tiers : Fixture {
  fs::path upper = directory / "upper";
  fs::path lowest = directory / "lowest";

  Tiers() {
    Store high = *Store::open({.directory = upper});
    Store low = *Store::open({.directory = lowest});
    EXPECT_TRUE(publish(store, "k=1").ok());
    for (const char* key : {"k=1", "k=2"}) EXPECT_TRUE(publish(high, key).ok());
    for (const char* key : {"k=1", "k=2", "k=3"}) EXPECT_TRUE(publish(low, key).ok());
    EXPECT_TRUE(high.add_record("tools", "b").ok());
    EXPECT_TRUE(low.add_record("tools", "a").ok() && low.add_record("tools", "b").ok());
  }

  StoreOptions options() {
    return {.directory = root, .log = sink(), .read_only = {upper, lowest}};
  }
  std::vector<std::uint64_t> hits(const Store& of) {
    std::vector<std::uint64_t> counts;
    for (const auto& tier : of.counters().tiers) counts.push_back(tier.hits);
    return counts;
  }
};

TEST(StoreTiers, AreAskedInOrderAndCountedApart) {
  Tiers f;
  Store tiered = *Store::open(f.options());
  for (const char* key : {"k=1", "k=2", "k=3"}) {
    EXPECT_TRUE(finds(tiered, key)) << key;
    EXPECT_TRUE(tiered.read(digest_of(key))) << key;
  }
  EXPECT_FALSE(finds(tiered, "k=4"));
  EXPECT_EQ(f.hits(tiered), (std::vector<std::uint64_t>{1, 1, 1}));
  const auto counters = tiered.counters();
  EXPECT_EQ(counters.misses, 1u);
  EXPECT_FALSE(counters.tiers[0].read_only);
  EXPECT_EQ(counters.tiers[2].path, f.lowest.string());
  EXPECT_TRUE(counters.tiers[2].read_only);
  EXPECT_FALSE(tiered.find(digest_of("k=1"), "k=1").in_lower_tier);
  EXPECT_TRUE(tiered.find(digest_of("k=2"), "k=2").in_lower_tier);
  EXPECT_EQ(tiered.records("tools"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(tiered.list()->size(), 1u) << "a listing is of the writable directory";
  std::vector<Digest> names;
  for (const char* key : {"k=1", "k=2", "k=3"}) names.push_back(digest_of(key));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(*tiered.names(), names);
  EXPECT_TRUE(f.warnings.empty());
}

TEST(StoreTiers, ServeWithoutAWritableDirectory) {
  Tiers f;
  Store tiered = *Store::open({.log = f.sink(), .read_only = {f.upper, f.lowest}});
  EXPECT_TRUE(finds(tiered, "k=3"));
  EXPECT_EQ(tiered.directory(), fs::path());
  EXPECT_EQ(tiered.try_lock(digest_of("k=4")).outcome, LockOutcome::unavailable);
  EXPECT_EQ(publish(tiered, "k=4").code(), ErrorCode::io_failed);
  EXPECT_TRUE(tiered.discard(digest_of("k=3")).ok());
  EXPECT_TRUE(tiered.verify()->empty() && tiered.list()->empty());
  EXPECT_TRUE(tiered.trim({.max_bytes = 0})->removed.empty());
  EXPECT_EQ(*tiered.clear(), Totals{});
  EXPECT_EQ(*tiered.collect_garbage(), 0u);
  EXPECT_EQ(tiered.measure()->entries, Totals{});
  EXPECT_TRUE(finds(tiered, "k=3"));
  EXPECT_EQ(Store::open({.read_only = {""}}).error().code(), ErrorCode::invalid_argument);
}

TEST(StoreTiers, OneThatIsOfNoUseIsPassedOverWithOneWarning) {
  struct {
    const char* name;
    void (*spoil)(const fs::path& tier);
    std::uint64_t refused, unavailable;
  } const cases[] = {
      {"everybody writes", [](auto& t) { ::chmod(t.c_str(), 0777); }, 3, 0},
      {"a file",
       [](auto& t) {
         fs::remove_all(t);
         write_file(t, "x");
       },
       0, 3},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Tiers f;
    c.spoil(f.upper);
    Store tiered = *Store::open(f.options());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(finds(tiered, "k=2"));
    EXPECT_EQ(f.hits(tiered), (std::vector<std::uint64_t>{0, 0, 3}));
    EXPECT_EQ(tiered.counters().tiers[1].refused, c.refused);
    EXPECT_EQ(tiered.counters().tiers[1].unavailable, c.unavailable);
    ASSERT_EQ(f.warnings.size(), 1u);
    EXPECT_NE(f.warnings[0].find(f.upper.string()), std::string::npos) << f.warnings[0];
    EXPECT_NE(f.warnings[0].find("KILN_CACHE_READONLY"), std::string::npos) << f.warnings[0];
  }
  Tiers f;
  fs::remove_all(f.upper);
  EXPECT_TRUE(finds(*Store::open(f.options()), "k=2"));
  EXPECT_TRUE(f.warnings.empty()) << "one that is not there is only empty";
}

TEST(StoreTiers, ADamagedEntryOfOneIsFoundInTheNext) {
  Tiers f;
  write_file(path_of(f.upper, "k=2"), "damaged");
  Store tiered = *Store::open(f.options());
  EXPECT_TRUE(finds(tiered, "k=2"));
  EXPECT_TRUE(finds(tiered, "k=2"));
  EXPECT_EQ(tiered.counters().tiers[1].damaged, 2u);
  EXPECT_EQ(f.warnings.size(), 1u);
  EXPECT_EQ(test::read_file(path_of(f.upper, "k=2")), "damaged") << "it is not ours to mend";
}

int writing_calls = 0;

TEST(StoreTiers, NothingIsEverWrittenToThem) {
  Tiers f;
  // Uses that are long ago are noted in the writable directory, and only there.
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(5);
  for (const auto& root : {f.root, f.upper, f.lowest})
    for (const char* key : {"k=1", "k=2", "k=3"})
      if (fs::exists(path_of(root, key))) fs::last_write_time(path_of(root, key), long_ago);
  SystemCalls calls = kRealCalls;
  calls.futimens = [](int fd, const timespec* times) {
    return ++writing_calls, kRealCalls.futimens(fd, times);
  };
  calls.openat = [](int directory, const char* path, int flags, mode_t mode) {
    writing_calls += (flags & O_ACCMODE) != O_RDONLY;
    return kRealCalls.openat(directory, path, flags, mode);
  };
  calls.set_lock = [](int fd, const struct flock* lock) {
    return ++writing_calls, kRealCalls.set_lock(fd, lock);
  };
  calls.mkdirat = [](int directory, const char* path, mode_t mode) {
    return ++writing_calls, kRealCalls.mkdirat(directory, path, mode);
  };
  Store tiered = *StoreWithCalls::open(f.options(), calls);
  writing_calls = 0;
  for (const char* key : {"k=2", "k=3", "k=4"}) static_cast<void>(finds(tiered, key));
  EXPECT_EQ(writing_calls, 0);
  EXPECT_TRUE(finds(tiered, "k=1"));
  EXPECT_EQ(writing_calls, 1);
  EXPECT_TRUE(finds(tiered, "k=1"));
  EXPECT_EQ(writing_calls, 1) << "noted more than once an hour";
  EXPECT_EQ(fs::last_write_time(path_of(f.upper, "k=2")), long_ago);
}

TEST(StoreTiers, ServeAnyUserFromAReadOnlyMount) {
  Tiers f;
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(f.lowest.c_str(), f.lowest.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, f.lowest.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0)
      return 100;
    return as_nobody([&] {
      Store tiered = *Store::open(
          {.directory = f.directory / "home", .log = f.sink(), .read_only = {f.lowest}});
      for (const char* key : {"k=1", "k=2", "k=3"})
        if (!finds(tiered, key)) return 1;
      if (fs::exists(f.directory / "home")) return 2;
      if (!publish(tiered, "k=4").ok() || !finds(tiered, "k=4")) return 3;
      return f.warnings.empty() ? 0 : 4;
    });
  });
  if (status == 100) GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(status, 0);
}

// As an image has it: the lower layer of an overlay, its store the lower part of what is written.
TEST(StoreTiers, AStoreOnAnOverlayIsReadAndRepairedInItsUpperLayer) {
  Tiers f;
  const int status = in_child([&] {
    const std::string work = f.directory / "work";
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mkdir(work.c_str(), 0755) != 0 ||
        ::mount("tmpfs", work.c_str(), "tmpfs", 0, "mode=755") != 0)
      return 100;
    for (const char* part : {"/up", "/w", "/merged"})
      if (::mkdir((work + part).c_str(), 0755) != 0) return 100;
    const std::string options =
        "lowerdir=" + f.lowest.string() + ",upperdir=" + work + "/up,workdir=" + work + "/w";
    if (::mount("overlay", (work + "/merged").c_str(), "overlay", 0, options.c_str()) != 0)
      return 100;
    const auto body = [&] {
      Store store = *Store::open({.directory = work + "/merged", .log = f.sink()});
      if (!finds(store, "k=3")) return 1;
      if (!fs::is_empty(work + "/up")) return 2;  // read without a copy
      if (!publish(store, "k=9").ok() || !finds(store, "k=9")) return 3;
      if (!store.trim({.max_bytes = 0}) || finds(store, "k=3") || !store.list()->empty()) return 4;
      if (!publish(store, "k=3").ok() || !finds(store, "k=3")) return 5;
      return f.warnings.empty() ? 0 : 6;
    };
    const int result = body();
    ::umount2((work + "/merged").c_str(), MNT_DETACH);
    ::umount2(work.c_str(), MNT_DETACH);
    return result;
  });
  if (status == 100) GTEST_SKIP() << "needs the right to mount an overlay";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(finds(*Store::open({.directory = f.lowest}), "k=3"));
}

}  // namespace
}  // namespace kiln::cache
