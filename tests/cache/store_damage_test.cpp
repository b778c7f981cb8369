// Whatever stands in the place of an entry counts as absent, is told of once, and is replaced.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/store_fixture.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::read_file;
using test::write_file;

struct Damage {
  const char* name;
  void (*apply)(const fs::path& entry, const std::string& good, const std::string& other);
};

std::string flipped(std::string bytes, std::size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  return bytes;
}

constexpr Damage kDamages[] = {
    {"empty", [](auto& p, auto&, auto&) { write_file(p, ""); }},
    {"one byte", [](auto& p, auto& good, auto&) { write_file(p, good.substr(0, 1)); }},
    {"half", [](auto& p, auto& good, auto&) { write_file(p, good.substr(0, good.size() / 2)); }},
    {"short by one",
     [](auto& p, auto& good, auto&) { write_file(p, good.substr(0, good.size() - 1)); }},
    {"flip in front", [](auto& p, auto& good, auto&) { write_file(p, flipped(good, 0)); }},
    {"flip in the middle",
     [](auto& p, auto& good, auto&) { write_file(p, flipped(good, good.size() / 2)); }},
    {"flip at the end",
     [](auto& p, auto& good, auto&) { write_file(p, flipped(good, good.size() - 1)); }},
    {"junk appended", [](auto& p, auto& good, auto&) { write_file(p, good + "junk"); }},
    {"another key's entry", [](auto& p, auto&, auto& other) { write_file(p, other); }},
    {"zeros of the right size",
     [](auto& p, auto& good, auto&) { write_file(p, std::string(good.size(), '\0')); }},
    {"older schema",
     [](auto& p, auto& good, auto&) {
       auto b = good;
       b[8] = 0;
       write_file(p, b);
     }},
    {"newer schema",
     [](auto& p, auto& good, auto&) {
       auto b = good;
       b[8] = 2;
       write_file(p, b);
     }},
    {"sparse terabyte",
     [](auto& p, auto&, auto&) {
       write_file(p, "");
       fs::resize_file(p, std::uintmax_t{1} << 40);
     }},
    {"sparse tail",
     [](auto& p, auto& good, auto&) {
       write_file(p, good);
       fs::resize_file(p, 3u << 20);
     }},
    {"empty directory",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_directory(p);
     }},
    {"full directory",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_directories(p / "a/b");
     }},
    {"pipe",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       ::mkfifo(p.c_str(), 0666);
     }},
    {"dangling link",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_symlink("nowhere", p);
     }},
    {"link to a good file",
     [](auto& p, auto& good, auto&) {
       write_file(p.parent_path() / "x", good);
       fs::remove(p);
       fs::create_symlink("x", p);
     }},
    {"link to itself",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       fs::create_symlink(p, p);
     }},
    {"device",
     [](auto& p, auto&, auto&) {
       fs::remove(p);
       ::mknod(p.c_str(), S_IFCHR | 0666, makedev(1, 5));
     }},
};

TEST(Store, TreatsADamagedEntryAsAbsentWarnsOnceAndReplacesIt) {
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    Fixture f;
    ASSERT_TRUE(publish(f.store, kKey).ok());
    ASSERT_TRUE(publish(f.store, "k=2").ok());
    const fs::path path = path_of(f.root, kKey);
    damage.apply(path, read_file(path), read_file(path_of(f.root, "k=2")));
    for (int i = 0; i < 3; ++i) {
      const Found found = f.store.find(digest_of(kKey), kKey);
      EXPECT_FALSE(found.entry);
      EXPECT_NE(found.damage, "");
    }
    EXPECT_EQ(f.store.read(digest_of(kKey)).error().code(), ErrorCode::io_failed);
    const auto listed = f.store.verify();
    ASSERT_TRUE(listed) << listed.error().message();
    EXPECT_EQ(std::count_if(listed->begin(), listed->end(),
                            [](const EntryInfo& info) { return !info.damage.empty(); }),
              1);

    EXPECT_TRUE(publish(f.store, kKey).ok());
    EXPECT_TRUE(finds(f.store, kKey));
    EXPECT_TRUE(finds(f.store, "k=2"));
    const auto repaired = f.store.verify();
    ASSERT_TRUE(repaired) << repaired.error().message();
    for (const EntryInfo& info : *repaired) EXPECT_EQ(info.damage, "");
    ASSERT_EQ(f.warnings.size(), 1u);
    EXPECT_NE(f.warnings[0].find(path.string()), std::string::npos) << f.warnings[0];
  }
}

TEST(Store, NamesWhatStandsInThePlaceOfAnEntry) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, kKey).ok());
  const fs::path path = path_of(f.root, kKey);
  const auto damage = [&] { return f.store.find(digest_of(kKey), kKey).damage; };
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(damage(), "is a directory");
  fs::remove(path);
  ::mkfifo(path.c_str(), 0666);
  EXPECT_EQ(damage(), "is a pipe");
  fs::remove(path);
  fs::create_symlink("nowhere", path);
  EXPECT_EQ(damage(), "is a symbolic link");
  fs::remove(path);
  if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 5)) != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(damage(), "is a device");
}

TEST(Store, NoticesSwappedEntries) {
  Fixture f;
  ASSERT_TRUE(publish(f.store, "k=1").ok());
  ASSERT_TRUE(publish(f.store, "k=2").ok());
  fs::rename(path_of(f.root, "k=1"), f.directory / "kept");
  fs::rename(path_of(f.root, "k=2"), path_of(f.root, "k=1"));
  fs::rename(f.directory / "kept", path_of(f.root, "k=2"));
  for (const char* key : {"k=1", "k=2"}) {
    EXPECT_EQ(f.store.find(digest_of(key), key).damage, "holds the entry of another key");
    EXPECT_TRUE(publish(f.store, key).ok());
    EXPECT_TRUE(finds(f.store, key));
  }
  EXPECT_EQ(f.warnings.size(), 2u);
}

}  // namespace
}  // namespace kiln::cache
