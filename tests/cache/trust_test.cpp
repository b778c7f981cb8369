// Whose directories and entries are believed, and that nothing is reached through a link.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {
namespace {

using test::in_child;
using test::read_file;
using test::write_file;

constexpr uid_t kOne = 61001;
constexpr uid_t kTwo = 61002;
constexpr gid_t kGroup = 61100;

#define KILN_NEEDS_ROOT() \
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user"

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

void give(const fs::path& path, uid_t user, gid_t group, mode_t mode) {
  ASSERT_EQ(::chown(path.c_str(), user, group), 0);
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

/// That nothing of the store is used, with one warning that names it and says `said`.
void expect_off(Fixture& f, Store store, const std::string& said) {
  for (int i = 0; i < 2; ++i) {
    const Found found = store.find(digest_of(kKey), kKey);
    EXPECT_FALSE(found.entry);
    EXPECT_EQ(found.damage, "");
    EXPECT_EQ(store.try_lock(digest_of(kKey)).outcome, LockOutcome::unavailable);
    expect_useful(publish(store, "k=2"), f.root);
  }
  EXPECT_FALSE(store.list());
  EXPECT_TRUE(store.records("tools").empty());
  EXPECT_FALSE(fs::exists(path_of(f.root, "k=2")));
  const StoreCounters counters = store.counters();
  EXPECT_EQ(counters.tiers.at(0).refused, 4u);
  EXPECT_EQ(counters.not_writable, 2u);
  ASSERT_EQ(f.warnings.size(), 1u) << testing::PrintToString(f.warnings);
  for (const auto& text : {f.root.string(), said, std::string("KILN_CACHE_DIR")})
    EXPECT_NE(f.warnings[0].find(text), std::string::npos) << f.warnings[0];
}

TEST(StoreTrust, ARootThatOthersMayWriteIsOff) {
  for (const mode_t mode : {0777u, 01777u, 0757u, 0775u}) {
    SCOPED_TRACE(mode);
    Fixture f;
    ASSERT_TRUE(publish(f.store, kKey).ok());
    ASSERT_EQ(::chmod(f.root.c_str(), mode), 0);
    expect_off(f, f.reopened(), mode == 0775 ? "may be written by group" : "written by everybody");
    ASSERT_EQ(::chmod(f.root.c_str(), 0755), 0);
    EXPECT_TRUE(finds(f.reopened(), kKey)) << "the cure";
  }
}

TEST(StoreTrust, ARootOfAnotherUserIsOffUntilThatUserIsTrusted) {
  KILN_NEEDS_ROOT();
  Fixture f;
  ASSERT_EQ(as_user(kOne, kOne, [&] { return publish(f.store, kKey).ok() ? 0 : 1; }), 0);
  expect_off(f, f.reopened(), "belongs to user 61001");
  EXPECT_TRUE(finds(f.reopened(Trust{.users = {kTwo, kOne}}), kKey));
  EXPECT_EQ(as_user(kTwo, kTwo, [&] { return finds(f.reopened(), kKey) ? 1 : 0; }), 0);
}

TEST(StoreTrust, RootsCacheServesEverybody) {
  KILN_NEEDS_ROOT();
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_EQ(as_user(kOne, kOne, [&] { return finds(f.reopened(), kKey) ? 0 : 1; }), 0);
}

// An entry is judged by itself as well: somebody may have got into a directory for a while.
TEST(StoreTrust, AnEntryThatIsNotTrustedIsDamagedAndReplaced) {
  struct {
    const char* name;
    uid_t user;
    gid_t group;
    mode_t mode;
    const char* said;
  } const cases[] = {
      {"everybody writes", 0, 0, 0446, "may be written by everybody"},
      {"its group writes", 0, kGroup, 0464, "may be written by group 61100"},
      {"a foreign owner", kTwo, 0, 0444, "belongs to user 61002"},
      {"setuid", 0, 0, 04444, "run as another user or group (mode 4444)"},
      {"setgid", 0, 0, 02444, "run as another user or group (mode 2444)"},
  };
  KILN_NEEDS_ROOT();
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Fixture f;
    ASSERT_TRUE(publish(f.store, kKey).ok());
    give(path_of(f.root, kKey), c.user, c.group, c.mode);
    const Found found = f.store.find(digest_of(kKey), kKey);
    EXPECT_FALSE(found.entry);
    EXPECT_NE(found.damage.find(c.said), std::string::npos) << found.damage;
    EXPECT_EQ(f.store.verify()->at(0).damage, found.damage);
    ASSERT_TRUE(publish(f.store, kKey).ok());
    EXPECT_TRUE(finds(f.store, kKey));
    EXPECT_EQ(f.warnings.size(), 1u);
    EXPECT_EQ(f.store.counters().tiers.at(0).damaged, 2u);
  }
}

TEST(StoreTrust, BitsThatSayNothingOfTrustAreNoReasonToRefuse) {
  KILN_NEEDS_ROOT();
  for (const mode_t bit : {04000u, 02000u, 01000u}) {
    SCOPED_TRACE(bit);
    Fixture f;
    ASSERT_TRUE(publish(f.store, kKey).ok());
    for (const auto& path : {f.root, path_of(f.root, kKey).parent_path()})
      ASSERT_EQ(::chmod(path.c_str(), 0755 | bit), 0);
    if (bit == 01000u) {
      ASSERT_EQ(::chmod(path_of(f.root, kKey).c_str(), 0444 | bit), 0);
    }
    EXPECT_EQ(as_user(kOne, kOne, [&] { return finds(f.reopened(), kKey) ? 0 : 1; }), 0);
    EXPECT_TRUE(publish(f.store, "k=2").ok());
    EXPECT_TRUE(f.warnings.empty()) << f.warnings[0];
  }
}

// Layers of images and backups share files: owner and mode go with the file, whatever its names.
TEST(StoreTrust, AnEntryWithMoreNamesIsBelievedAndOnlyItsNameIsRemoved) {
  KILN_NEEDS_ROOT();
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const fs::path entry = path_of(f.root, kKey), copy = f.directory / "copy";
  fs::create_hard_link(entry, copy);
  EXPECT_EQ(as_user(kOne, kOne, [&] { return finds(f.reopened(), kKey) ? 0 : 1; }), 0);
  EXPECT_TRUE(f.store.verify()->at(0).damage.empty());
  ASSERT_EQ(f.store.clear()->entries, 1u);
  EXPECT_FALSE(fs::exists(entry));
  EXPECT_EQ(mode_of(copy), 0444u);
  EXPECT_EQ(fs::hard_link_count(copy), 1u);
}

TEST(StoreTrust, ALinkMakesNothingGoodThatWouldBeRefusedInItsPlace) {
  KILN_NEEDS_ROOT();
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const fs::path entry = path_of(f.root, kKey), theirs = f.directory / "theirs";
  // The right bytes, in a file that its owner may change at any time.
  fs::copy_file(entry, theirs);
  give(theirs, kTwo, kTwo, 0444);
  fs::remove(entry);
  fs::create_hard_link(theirs, entry);
  EXPECT_NE(f.store.find(digest_of(kKey), kKey).damage.find("belongs to user 61002"),
            std::string::npos);
  // A good entry under the name of another.
  ASSERT_TRUE(publish(f.store, "k=2").ok());
  fs::remove(entry);
  fs::create_hard_link(path_of(f.root, "k=2"), entry);
  EXPECT_NE(f.store.find(digest_of(kKey), kKey).damage, "");
  ASSERT_TRUE(publish(f.store, kKey).ok());
  EXPECT_TRUE(finds(f.store, kKey) && finds(f.store, "k=2"));
  EXPECT_EQ(mode_of(theirs), 0444u);
}

// A member of the group may link a file of ours into the tree, where we write to two files.
TEST(StoreTrust, AFileThatIsLinkedInPlaceOfTheStoresOwnIsNotChanged) {
  KILN_NEEDS_ROOT();
  Fixture f;
  const Trust shared{.users = {}, .group = kGroup};
  for (const char* name : {"v1/lock", "v1/usage"}) {
    SCOPED_TRACE(name);
    fs::create_directories(f.root / "v1");
    give(f.root, 0, kGroup, 02775);
    const fs::path diary = f.directory / "diary";
    write_file(diary, std::string(8192, 'd'));
    ASSERT_EQ(::chmod(diary.c_str(), 0600), 0);
    fs::create_hard_link(diary, f.root / name);
    Store store = f.reopened(shared);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(publish(store, "k=" + std::to_string(i)).ok());
    EXPECT_EQ(store.try_lock(digest_of(kKey)).outcome, LockOutcome::held);
    EXPECT_EQ(read_file(diary), std::string(8192, 'd'));
    EXPECT_EQ(mode_of(diary), 0600u);
    EXPECT_EQ(store.measure()->kept, store.measure()->entries);
    EXPECT_TRUE(f.warnings.empty());
    fs::remove_all(f.root);
    fs::remove(diary);
  }
}

TEST(StoreTrust, AGroupSharesAStoreOnceItIsDeclared) {
  KILN_NEEDS_ROOT();
  Fixture f;
  const Trust shared{.users = {}, .group = kGroup};
  const auto as = [&](uid_t user, auto&& work) {
    return as_user(user, kGroup, [&] {
      ::umask(022);
      return work();
    });
  };
  fs::create_directory(f.root);
  give(f.root, 0, kGroup, 02775);
  ASSERT_EQ(as(kOne,
               [&] {
                 Store store = f.reopened(shared);
                 return publish(store, kKey).ok() && store.add_record("tools", "a").ok() &&
                                store.try_lock(digest_of(kKey)).outcome == LockOutcome::held
                            ? 0
                            : 1;
               }),
            0);
  EXPECT_EQ(as(kTwo,
               [&] {
                 Store store = f.reopened(shared);
                 if (!finds(store, kKey)) return 1;
                 // The other half of the name space, the lock and the totals are open to it as
                 // well.
                 for (int i = 0; i < 40; ++i)
                   if (!publish(store, "k=" + std::to_string(i)).ok()) return 2;
                 if (store.try_lock(digest_of(kKey)).outcome != LockOutcome::held) return 3;
                 if (store.measure()->kept != store.measure()->entries) return 4;
                 return store.discard(digest_of(kKey)).ok() && !finds(store, kKey) ? 0 : 5;
               }),
            0);
  EXPECT_EQ(as(kOne, [&] { return finds(f.reopened(shared), "k=7") ? 0 : 1; }), 0);
  EXPECT_TRUE(f.warnings.empty());
  // To those who have not declared it, the store is off.
  EXPECT_FALSE(f.reopened().find(digest_of("k=7"), "k=7").entry);
  // Being of the group makes nothing good that everybody may write.
  ASSERT_EQ(::chmod(f.root.c_str(), 02777), 0);
  EXPECT_FALSE(finds(f.reopened(shared), "k=7"));
}

TEST(StoreTrust, ASharedStoreIsMadeForItsGroup) {
  KILN_NEEDS_ROOT();
  Fixture f;
  const Trust shared{.users = {}, .group = kGroup};
  Store store = f.reopened(shared);
  ASSERT_TRUE(publish(store, kKey).ok());
  ASSERT_EQ(store.try_lock(digest_of(kKey)).outcome, LockOutcome::held);
  for (const auto& path :
       {f.root, f.root / "v1", f.root / "v1/e", path_of(f.root, kKey).parent_path()})
    EXPECT_EQ(mode_of(path), 02775u) << path;
  for (const char* name : {"v1/lock", "v1/usage"}) EXPECT_EQ(mode_of(f.root / name), 0664u) << name;
  struct stat status {};
  ASSERT_EQ(::stat(path_of(f.root, kKey).c_str(), &status), 0);
  EXPECT_EQ(status.st_gid, kGroup);
}

TEST(StoreTrust, AUmaskKeepsNothingFromTheGroup) {
  KILN_NEEDS_ROOT();
  for (const bool anonymous : {true, false}) {
    Fixture f;
    const Trust shared{.users = {}, .group = kGroup};
    SystemCalls calls = kRealCalls;
    if (!anonymous)
      calls.linkat = [](int, const char*, int, const char*, int) { return errno = EPERM, -1; };
    const auto as = [&](uid_t user, auto&& work) {
      return as_user(user, kGroup, [&] {
        ::umask(077);
        Store store =
            *StoreWithCalls::open({.directory = f.root, .log = f.sink(), .trust = shared}, calls);
        return work(store) && f.warnings.empty() ? 0 : 1;
      });
    };
    fs::create_directory(f.root);
    give(f.root, 0, kGroup, 02775);
    EXPECT_EQ(as(kOne, [](Store& s) { return publish(s, kKey).ok() && s.add_record("a", "b"); }),
              0);
    EXPECT_EQ(as(kTwo, [](Store& s) { return finds(s, kKey) && s.records("a").size() == 1; }), 0);
  }
}

TEST(StoreTrust, TheUmaskTakesFromTheModesAndGivesNothing) {
  for (const mode_t mask : {0u, 002u, 022u, 027u, 077u}) {
    SCOPED_TRACE(mask);
    Fixture f;
    EXPECT_EQ(in_child([&] {
                ::umask(mask);
                return publish(f.store, kKey).ok() &&
                               f.store.try_lock(digest_of(kKey)).outcome == LockOutcome::held
                           ? 0
                           : 1;
              }),
              0);
    EXPECT_EQ(mode_of(path_of(f.root, kKey)), 0444u & ~mask);
    for (const auto& path : {f.root, f.root / "v1", path_of(f.root, kKey).parent_path()})
      EXPECT_EQ(mode_of(path), 0755u & ~mask) << path;
    for (const char* name : {"v1/lock", "v1/usage"})
      EXPECT_EQ(mode_of(f.root / name), 0644u & ~mask) << name;
    EXPECT_TRUE(finds(f.reopened(), kKey));
  }
}

TEST(StoreTrust, NoLinkIsFollowedAtAnyComponentBelowTheRoot) {
  SystemCalls without_openat2 = kRealCalls;
  without_openat2.openat2 = [](int, const char*, int, unsigned long long) {
    return errno = ENOSYS, -1;
  };
  const fs::path entry = fs::relative(path_of("/", kKey), "/");
  for (const SystemCalls& calls : {kRealCalls, without_openat2}) {
    for (fs::path part = entry; !part.empty(); part = part.parent_path()) {
      SCOPED_TRACE(part);
      Fixture f;
      Store store = *StoreWithCalls::open({.directory = f.root, .log = f.sink()}, calls);
      ASSERT_TRUE(publish(store, kKey).ok());
      EXPECT_TRUE(finds(store, kKey));
      fs::rename(f.root / part, f.directory / "moved");
      fs::create_symlink(f.directory / "moved", f.root / part);
      EXPECT_FALSE(store.find(digest_of(kKey), kKey).entry);
      EXPECT_FALSE(store.read(digest_of(kKey)));
      const auto listed = store.verify();
      EXPECT_TRUE(!listed || (listed->size() == 1 && !listed->at(0).damage.empty()));
      static_cast<void>(store.trim({.max_bytes = 0}));
      static_cast<void>(store.repair(Repair::remove));
      EXPECT_TRUE(fs::exists(f.directory / "moved")) << "removed through a link";
      if (fs::is_directory(f.directory / "moved")) {
        EXPECT_FALSE(fs::is_empty(f.directory / "moved"));
      }
    }
  }
  // What leads to the root is the choice of who named it.
  Fixture f;
  fs::create_directory(f.directory / "real");
  fs::create_symlink("real", f.root);
  EXPECT_TRUE(publish(f.store, kKey).ok());
  EXPECT_TRUE(finds(f.store, kKey));
}

TEST(StoreTrust, ALinkToAnUntrustedRootIsJudgedByWhereItLeads) {
  Fixture f;
  const fs::path real = f.directory / "real";
  fs::create_directory(real);
  ASSERT_EQ(::chmod(real.c_str(), 0777), 0);
  fs::create_symlink("real", f.root);
  EXPECT_EQ(publish(f.store, kKey).code(), ErrorCode::io_failed);
  EXPECT_TRUE(fs::is_empty(real));
}

TEST(StoreTrust, AHugeFileIsRefusedBeforeAnythingIsAllocatedForIt) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  // The header declares a gigabyte and the file has it, but for the digests.
  std::string bytes = read_file(path_of(f.root, kKey));
  const std::uint64_t declared = (std::uint64_t{1} << 30) + 1;
  for (std::size_t i = 0; i < 8; ++i) bytes[40 + i] = static_cast<char>(declared >> (8 * i) & 0xFF);
  write_file(path_of(f.root, kKey), bytes);
  fs::resize_file(path_of(f.root, kKey), 80 + 3 + 2 + declared);
#ifdef KILN_SANITIZE
  const rlim_t most = RLIM_INFINITY;  // a sanitizer's own memory is beyond any limit
#else
  const rlim_t most = rlim_t{512} << 20;
#endif
  const int status = in_child([&] {
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    const auto damage = f.store.find(digest_of(kKey), kKey).damage;
    return damage.find("over the limit") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

// One that is as large as an entry may be, and says so, takes the memory that there is.
TEST(StoreTrust, AFileThatMemoryHasNoRoomForIsPassedOver) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer's own memory is beyond any limit";
#endif
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const fs::path path = path_of(f.root, kKey);
  std::string bytes = read_file(path);
  const std::uint64_t declared = std::uint64_t{1} << 30;
  for (std::size_t i = 0; i < 8; ++i) bytes[40 + i] = static_cast<char>(declared >> (8 * i));
  write_file(path, bytes);
  fs::resize_file(path, 80 + std::string_view(kKey).size() + 2 + declared);
  EXPECT_EQ(in_child([&] {
              const rlimit limit{.rlim_cur = rlim_t{512} << 20, .rlim_max = rlim_t{512} << 20};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
              const Found found = f.store.find(digest_of(kKey), kKey);
              if (found.entry || !found.damage.empty()) return 2;
              if (f.store.counters().tiers.at(0).unavailable != 1) return 3;
              return publish(f.store, "k=2").ok() && finds(f.store, "k=2") ? 0 : 4;
            }),
            0);
  const auto damage = f.store.find(digest_of(kKey), kKey).damage;
  EXPECT_NE(damage.find("digest"), std::string::npos) << damage;
}

}  // namespace
}  // namespace kiln::cache
