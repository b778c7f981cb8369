// What the tests of limits and trimming share: entries of known ages below a limit, and clocks that
// a test sets.
#pragma once

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {

using namespace std::chrono_literals;

inline std::string key_of(int number) {
  return "key " + std::to_string(number);
}

inline void set_age(const fs::path& root, const std::string& key, std::chrono::seconds age) {
  fs::last_write_time(path_of(root, key), fs::file_time_type::clock::now() - age);
}

/// The numbers of the keys that are there, of `count`.
inline std::set<int> present(const fs::path& root, int count) {
  std::set<int> found;
  for (int i = 0; i < count; ++i)
    if (fs::exists(path_of(root, key_of(i)))) found.insert(i);
  return found;
}

inline void expect_exact_totals(const Store& store) {
  const auto size = store.measure();
  ASSERT_TRUE(size) << size.error().message();
  ASSERT_TRUE(size->kept);
  EXPECT_EQ(*size->kept, size->entries);
}

inline std::int64_t step_of_clock = 0;    // nanoseconds that a look at the steady clock takes
inline std::int64_t cost_of_removal = 0;  // nanoseconds
inline std::int64_t lead_of_clock = 0;    // seconds that the wall clock is ahead
inline int looked_at = 0;

/// Clocks that do not depend on how busy the machine is.
inline SystemCalls calls_with_clocks() {
  SystemCalls calls = kRealCalls;
  static std::int64_t steady = 0;
  calls.clock_gettime = [](clockid_t clock, timespec* to) {
    if (clock == CLOCK_REALTIME) {
      const int result = kRealCalls.clock_gettime(clock, to);
      to->tv_sec += lead_of_clock;
      return result;
    }
    steady += step_of_clock;
    *to = {.tv_sec = steady / 1'000'000'000, .tv_nsec = steady % 1'000'000'000};
    return 0;
  };
  calls.fstatat = [](int directory, const char* path, struct stat* to, int flags) {
    ++looked_at;
    return kRealCalls.fstatat(directory, path, to, flags);
  };
  calls.unlinkat = [](int directory, const char* path, int flags) {
    steady += cost_of_removal;
    return kRealCalls.unlinkat(directory, path, flags);
  };
  return calls;
}

/// A store with a limit, and `count` entries of about 10 KB, the first ones used longest ago.
struct Limited : Fixture {
  explicit Limited(int count) {
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(publish(store, key_of(i)).ok());
      set_age(root, key_of(i), 100h - std::chrono::minutes(i));
    }
    bytes = store.measure()->entries.bytes;
  }
  Store limited(std::uint64_t most, std::chrono::seconds grace = 10min) {
    return open({.max_bytes = most, .min_free_bytes = 0, .grace = grace});
  }
  /// Over calls_with_clocks(), whose time stands still.
  Store open(const Limits& limits) {
    step_of_clock = cost_of_removal = lead_of_clock = 0;
    return *StoreWithCalls::open({.directory = root, .log = sink(), .limits = limits}, calls);
  }
  std::uint64_t bytes = 0;
  const SystemCalls calls = calls_with_clocks();
};

}  // namespace kiln::cache
