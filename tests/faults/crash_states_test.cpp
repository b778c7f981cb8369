// What a power cut can leave of a publish. Without fsync a file system may keep any part of what
// was done, as long as nothing is in a directory that is not there: every such part is built from
// a recorded publish, with the data of the file whole, cut, or zero, and must read as the exact
// entry or as none, and take a publish afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "tests/faults/harness.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::read_file;
using test::write_file;

std::vector<std::string>* recorded = nullptr;

/// The order of the steps of a first publish, by the calls that it makes.
std::vector<std::string> record_calls(const fs::path& root, bool anonymous_files) {
  static bool anonymous = true;
  anonymous = anonymous_files;
  std::vector<std::string> log;
  recorded = &log;
  SystemCalls calls = kRealCalls;
  calls.mkdirat = [](int directory, const char* path, mode_t mode) {
    const int result = kRealCalls.mkdirat(directory, path, mode);
    if (result == 0) recorded->push_back("mkdir");
    return result;
  };
  calls.openat = [](int directory, const char* path, int flags, mode_t mode) {
    if (!anonymous && (flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;
    return kRealCalls.openat(directory, path, flags, mode);
  };
  calls.writev = [](int fd, const iovec* parts, int count) {
    recorded->push_back("write");
    return kRealCalls.writev(fd, parts, count);
  };
  calls.linkat = [](int from, const char* path, int directory, const char* to, int flags) {
    recorded->push_back("name");
    return kRealCalls.linkat(from, path, directory, to, flags);
  };
  calls.renameat2 = [](int from, const char* path, int directory, const char* to, unsigned flags) {
    recorded->push_back("name");
    return kRealCalls.renameat2(from, path, directory, to, flags);
  };
  calls.pwrite = [](int fd, const void* from, size_t size, off_t at) {
    recorded->push_back("total");
    return kRealCalls.pwrite(fd, from, size, at);
  };
  Store store = *StoreWithCalls::open({.directory = root}, calls);
  EXPECT_TRUE(publish(store, 1).ok());
  return log;
}

/// What may be on the disk of a file whose data was never synced.
std::vector<std::string> data_states(const std::string& whole) {
  std::vector<std::string> states = {whole, ""};
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{79}, std::size_t{80}, whole.size() / 2, whole.size() - 1})
    states.push_back(whole.substr(0, size));
  states.emplace_back(whole.size(), '\0');
  // Pages that came, in every combination of a few, and zeros for those that did not.
  constexpr std::size_t kPage = 512;
  const std::size_t pages = std::min<std::size_t>((whole.size() + kPage - 1) / kPage, 6);
  for (std::size_t kept = 1; kept + 1 < (std::size_t{1} << pages); ++kept) {
    std::string state = whole;
    for (std::size_t page = 0; page < pages; ++page)
      if ((kept >> page & 1) == 0)
        std::fill_n(state.begin() + static_cast<std::ptrdiff_t>(page * kPage),
                    std::min(kPage, whole.size() - page * kPage), '\0');
    states.push_back(std::move(state));
  }
  return states;
}

void check_state(const fs::path& root, bool may_be_there) {
  int warnings = 0;
  Store store =
      *Store::open({.directory = root, .log = [&](LogLevel, std::string_view) { ++warnings; }});
  const std::string key = key_of(1);
  const Found found = store.find(digest_of(key), key);
  if (found.entry) {
    EXPECT_TRUE(may_be_there);
    EXPECT_EQ(look(store, 1), Seen::right);
  }
  ASSERT_TRUE(publish(store, 1).ok());
  EXPECT_EQ(look(store, 1), Seen::right);
  EXPECT_LE(warnings, 1);
  ASSERT_TRUE(store.trim({.older_than = std::chrono::hours(1000)}));
  EXPECT_EQ(store.measure()->kept, store.measure()->entries);
  EXPECT_EQ(store.verify()->size(), 1u);
}

TEST(CrashStates, EveryPartOfAPublishReadsAsTheEntryOrNone) {
  test::use_memory_for_temporary_files();
  const test::TemporaryDirectory made;
  const auto calls = record_calls(made / "cache", /*anonymous_files=*/true);
  // What the model below rests on: four directories, then the data, the name and the total.
  ASSERT_EQ(calls, (std::vector<std::string>{"mkdir", "mkdir", "mkdir", "mkdir", "write", "name",
                                             "total"}));
  const std::string hex = digest_of(key_of(1)).hex();
  const fs::path entry = fs::path("cache/v1/e") / hex.substr(0, 2) / hex.substr(2);
  const fs::path usage = "cache/v1/usage";
  const std::string whole = read_file(made.path() / entry);
  const std::string total = read_file(made.path() / usage);
  const std::vector<std::string> totals = {total, "", std::string(total.size(), '\0'),
                                           total.substr(0, total.size() - 3)};
  const auto states = data_states(whole);
  ASSERT_GT(states.size(), 8u);

  int tried = 0;
  // Directories come with those above them: a number of them says it all.
  for (int depth = 0; depth <= 4; ++depth) {
    for (std::size_t data = 0; data <= states.size(); ++data) {  // the last one: no name
      const bool named = data < states.size();
      if (named && depth < 4) continue;
      for (std::size_t kept = 0; kept <= totals.size(); ++kept) {  // the last one: no file
        if (kept < totals.size() && depth < 2) continue;
        const test::TemporaryDirectory directory;
        const std::string parts[] = {"cache", "v1", "e", hex.substr(0, 2)};
        fs::path at = directory.path();
        for (int part = 0; part < depth; ++part) {
          at /= parts[part];
          fs::create_directory(at);
          fs::permissions(at, fs::perms(0755));
        }
        if (named) write_file(directory.path() / entry, states[data]);
        if (kept < totals.size()) write_file(directory.path() / usage, totals[kept]);
        SCOPED_TRACE("directories " + std::to_string(depth) + ", data " + std::to_string(data) +
                     ", total " + std::to_string(kept));
        check_state(directory / "cache", data == 0);
        if (testing::Test::HasFailure()) return;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 200);
}

// Where files cannot be nameless, the temporary may be there too, in any state.
TEST(CrashStates, ATemporaryThatACrashLeavesIsSweptInTime) {
  test::use_memory_for_temporary_files();
  const test::TemporaryDirectory made;
  const auto calls = record_calls(made / "cache", /*anonymous_files=*/false);
  ASSERT_EQ(calls, (std::vector<std::string>{"mkdir", "mkdir", "mkdir", "mkdir", "write", "name",
                                             "total"}));
  const std::string hex = digest_of(key_of(1)).hex();
  const fs::path shard = fs::path("cache/v1/e") / hex.substr(0, 2);
  const std::string whole = read_file(made.path() / shard / hex.substr(2));
  for (const auto& state : data_states(whole)) {
    for (const bool named_as_well : {false, true}) {
      const test::TemporaryDirectory directory;
      fs::create_directories(directory.path() / shard);
      for (const char* part : {"cache", "cache/v1", "cache/v1/e"})
        fs::permissions(directory / part, fs::perms(0755));
      fs::permissions(directory.path() / shard, fs::perms(0755));
      const fs::path temporary = directory.path() / shard / ".tmp-0123456789abcdef";
      write_file(temporary, state);
      if (named_as_well) write_file(directory.path() / shard / hex.substr(2), state);
      check_state(directory / "cache", state == whole);
      fs::last_write_time(temporary, fs::file_time_type::clock::now() - std::chrono::hours(2));
      EXPECT_EQ(*(*Store::open({.directory = directory / "cache"})).collect_garbage(), 1u);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace kiln::cache
