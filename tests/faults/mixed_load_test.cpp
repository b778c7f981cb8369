// Many processes that get, put and trim the same keys under a limit of half of what they put.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/harness.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

enum Outcome : int { all_right = 0, wrong_bytes, failed_publish, failed_trim, warned };

int work(const fs::path& root, unsigned seed, int operations, unsigned keys, std::uint64_t limit) {
  int warnings = 0;
  Store store = *Store::open({.directory = root,
                              .log = [&](LogLevel, std::string_view) { ++warnings; },
                              .limits = {.max_bytes = limit, .min_free_bytes = 0, .grace = 0s}});
  std::minstd_rand random(seed);
  for (int i = 0; i < operations; ++i) {
    const auto index = static_cast<unsigned>(random() % keys);
    const auto kind = random() % 100;
    if (kind == 0) {
      // Another may be trimming at this moment, and that takes as long as it takes.
      const auto report = store.trim({.max_bytes = limit / 10 * 9});
      if (!report && report.error().message().find("another process") == std::string::npos)
        return failed_trim;
    } else if (kind < 60) {
      if (look(store, index) == Seen::wrong) return wrong_bytes;
    } else if (!publish(store, index).ok()) {
      return failed_publish;
    }
  }
  return warnings == 0 ? all_right : warned;
}

TEST(MixedLoad, NoWrongByteNoErrorNoLeftoverAndTotalsThatAddUp) {
  test::use_memory_for_temporary_files();
  const int processes = times(24, 64);
  const int operations = times(250, 10'000);
  const auto keys = static_cast<unsigned>(times(300, 2000));
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < keys; ++i) bytes += 80 + key_of(i).size() + 2 + payload_of(i).size();

  const test::TemporaryDirectory directory;
  const fs::path root = directory / "cache";
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i)
    children.push_back(test::start_child(
        [&] { return work(root, static_cast<unsigned>(i) + 1, operations, keys, bytes / 2); }));
  for (const pid_t child : children) EXPECT_EQ(test::wait_for(child), all_right);

  EXPECT_TRUE(test::dot_names_below(root).empty());
  Store store = *Store::open({.directory = root});
  const auto verified = store.verify();
  ASSERT_TRUE(verified);
  EXPECT_GT(verified->size(), keys / 4);
  for (const auto& info : *verified) EXPECT_EQ(info.damage, "");
  // Nobody was killed, so nothing needs a recount; and a recount changes nothing.
  EXPECT_EQ(store.measure()->kept, store.measure()->entries);
  ASSERT_TRUE(store.trim({.older_than = 1000h}));
  EXPECT_EQ(store.measure()->kept, store.measure()->entries);
  EXPECT_LE(store.measure()->entries.bytes, bytes / 2 + bytes / 50);
}

}  // namespace
}  // namespace kiln::cache
