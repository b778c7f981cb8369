// When a server is left alone, and for how long: one that fails, and one that answers late and has
// nothing.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cache/remote/breaker.hpp"
#include "remote_fixture.hpp"
#include "tests/support/fault_server.hpp"

namespace kiln::cache {
namespace {

using test::FaultServer;
using test::http_answer;

/// An answer after 400 ms is late. One that a slow machine makes later is a failure, which is left
/// alone as well.
RemoteTimes short_times() {
  return {.connect = 300ms,
          .first_byte = 600ms,
          .shortest_break = 1h,
          .longest_break = 1h,
          .patience = 0ms};
}

// A compile is cheaper than most of these answers.
TEST(RemoteBreaking, AServerThatTakesItsTimeToSayNoIsLeftAlone) {
  struct Case {
    const char* what;
    bool is_http;
    std::string end;
    std::string answer;
  };
  const std::vector<Case> cases = {
      {"absent", true, "\r\n\r\n", http_answer("404 None", "")},
      {"failed", true, "\r\n\r\n", http_answer("500 Broken", "")},
      {"no lease and no object", false, "lease\r\n", "*2\r\n$-1\r\n$-1\r\n"},
      {"refused", false, "lease\r\n", "-ERR no\r\n"},
  };
  try_all(cases, [](const Case& one) {
    SCOPED_TRACE(one.what);
    std::atomic<int> asked{0};
    FaultServer server([&](FaultServer& self, int fd) {
      while (!self.read_until(fd, one.end).empty()) {
        ++asked;
        std::this_thread::sleep_for(400ms);
        FaultServer::write(fd, one.answer);
      }
    });
    RemoteOptions options;
    ASSERT_TRUE(options.add(one.is_http ? server.http() : server.redis()).ok());
    options.times = short_times();
    Host host(options);
    for (int key = 0; key < 20; ++key) EXPECT_FALSE(host.fetch(key).busy) << key;
    // Of 20; one that stalls may be asked twice.
    EXPECT_LE(asked, 4);
    EXPECT_GE(host.counters().of(RemoteFailure::skipped), 18u) << host.all_warnings();
  });
}

// What takes a lease is asked a second time for each key, and more is at stake than an object.
TEST(RemoteBreaking, AServerThatTakesItsTimeOverLeasesIsLeftAlone) {
  std::atomic<int> sets{0};
  FaultServer server([&](FaultServer& self, int fd) {
    for (;;) {
      char part[4096];
      if (!self.wait(fd)) return;
      const auto got = ::recv(fd, part, sizeof part, 0);
      if (got <= 0) return;
      const bool looks = std::string_view(part, static_cast<std::size_t>(got)).find("MGET") !=
                         std::string_view::npos;
      if (!looks) {
        ++sets;
        std::this_thread::sleep_for(400ms);
      }
      FaultServer::write(fd, looks ? "*2\r\n$-1\r\n$-1\r\n" : "+OK\r\n");
    }
  });
  RemoteOptions options{
      .leases = server.redis(), .signer = key_of_builder(1), .times = short_times()};
  options.times.lease = 1h;
  Host host(options);
  std::vector<FleetLease> held;
  for (int key = 0; key < 20; ++key) held.push_back(host.fetch(key).lease);
  EXPECT_LE(sets, 6) << "of 20";
}

// The clock is the test's.
class RemoteBreaker : public ::testing::Test {
 protected:
  const RemoteTimes times_{
      .first_byte = 1s, .shortest_break = 250ms, .longest_break = 30s, .patience = 5s};
  Breaker breaker_{times_};
  Breaker::Time now_{Breaker::Clock::duration(24h)};

  /// How long it stays closed to all, to a tenth of a second.
  std::chrono::milliseconds closed_for() {
    for (auto waited = 0ms;; waited += 100ms, now_ += 100ms)
      if (breaker_.admits(now_)) return waited;
  }
};

TEST_F(RemoteBreaker, ABreakGrowsUpToItsLimitAndEndsWithAnAnswer) {
  EXPECT_TRUE(breaker_.admits(now_));
  EXPECT_TRUE(breaker_.failed(now_, RemoteFailure::cannot_connect));
  auto least = 125ms;
  for (int i = 0; i < 10; ++i, least = std::min(2 * least, 15'000ms)) {
    const auto closed = closed_for();
    EXPECT_GE(closed, least);
    EXPECT_LE(closed, 3 * least + 100ms);
    EXPECT_FALSE(breaker_.admits(now_)) << "one is sent ahead";
    EXPECT_TRUE(breaker_.failed(now_, RemoteFailure::cannot_connect));
  }
  closed_for();
  breaker_.served(now_);
  EXPECT_TRUE(breaker_.admits(now_) && breaker_.admits(now_));
}

TEST_F(RemoteBreaker, ABreakLastsNoLessThanItsFailureCost) {
  EXPECT_TRUE(breaker_.failed(now_, RemoteFailure::too_large, 16s)) << "one is enough";
  EXPECT_GE(closed_for(), 16s);
  EXPECT_TRUE(breaker_.failed(now_, RemoteFailure::stalled, 300s));
  EXPECT_LE(closed_for(), 45'100ms) << "and no more than the limit";
}

TEST_F(RemoteBreaker, ABreakLastsNoLessThanIsAskedFor) {
  EXPECT_TRUE(breaker_.failed(now_, RemoteFailure::overloaded, 1ms, 20s));
  EXPECT_GE(closed_for(), 20s);
  EXPECT_TRUE(breaker_.failed(now_, RemoteFailure::overloaded, 1ms, 3600s));
  EXPECT_LE(closed_for(), 45'100ms);
}

TEST_F(RemoteBreaker, SomeFailuresNeedThreeInARow) {
  for (const auto failure : {RemoteFailure::server_error, RemoteFailure::reset}) {
    Breaker breaker(times_);
    EXPECT_FALSE(breaker.failed(now_, failure));
    EXPECT_FALSE(breaker.failed(now_, failure));
    breaker.served(now_);
    EXPECT_FALSE(breaker.failed(now_, failure));
    EXPECT_FALSE(breaker.failed(now_, failure));
    EXPECT_TRUE(breaker.failed(now_, failure));
    EXPECT_FALSE(breaker.admits(now_));
  }
}

TEST_F(RemoteBreaker, AnswersThatComeLateForNothingHaveABudget) {
  EXPECT_FALSE(breaker_.lagged(now_, 900ms));
  EXPECT_TRUE(breaker_.lagged(now_, 900ms));
  EXPECT_GE(closed_for(), 800ms) << "no less than the last one cost";
  EXPECT_TRUE(breaker_.lagged(now_, 300ms)) << "whoever is sent ahead finds it no better";
  EXPECT_FALSE(breaker_.admits(now_));
  closed_for();
  breaker_.served(now_);
  EXPECT_TRUE(breaker_.lagged(now_, 300ms)) << "the budget is that of half a minute";
  now_ += 30s;
  EXPECT_TRUE(breaker_.admits(now_));
  breaker_.served(now_);
  EXPECT_FALSE(breaker_.lagged(now_, 900ms));
  EXPECT_TRUE(breaker_.failed(now_, RemoteFailure::server_error, 900ms)) << "failures share it";
}

TEST_F(RemoteBreaker, AServerThatIsFarAwayIsAskedAllTheSame) {
  // Three round trips of 80 ms.
  for (int key = 0; key < 1000; ++key, now_ += 240ms) {
    ASSERT_TRUE(breaker_.admits(now_)) << key;
    ASSERT_FALSE(breaker_.lagged(now_, 240ms)) << key;
  }
}

TEST_F(RemoteBreaker, OneThatServedIsTriedOnceMoreBeforeItIsWaitedForNoLonger) {
  for (int i = 0; i < 100; ++i) {
    Breaker breaker(times_);
    breaker.served(now_);
    now_ += 4s;
    EXPECT_TRUE(breaker.failed(now_, RemoteFailure::stalled, 3s));
    while (!breaker.admits(now_)) now_ += 100ms;
    ASSERT_TRUE(breaker.is_waited_for(now_));
    EXPECT_TRUE(breaker.failed(now_ + 900ms, RemoteFailure::stalled, 900ms));
    EXPECT_FALSE(breaker.is_waited_for(now_ + 5s)) << "and not without end";
    now_ += 1h;
  }
}

TEST_F(RemoteBreaker, OneThatServedIsWaitedForUnlessItsObjectsAreRefused) {
  EXPECT_FALSE(breaker_.is_waited_for(now_));
  breaker_.served(now_);
  breaker_.failed(now_, RemoteFailure::cannot_connect);
  EXPECT_TRUE(breaker_.is_waited_for(now_ + 4900ms));
  EXPECT_FALSE(breaker_.is_waited_for(now_ + 10s));
  breaker_.failed(now_, RemoteFailure::bad_signature);
  EXPECT_FALSE(breaker_.is_waited_for(now_));
}

}  // namespace
}  // namespace kiln::cache
