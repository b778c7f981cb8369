// What follows from what a server says: who is asked again, who waits, and what is given up.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/remote/redis_client.hpp"
#include "remote_fixture.hpp"
#include "tests/support/fault_server.hpp"

namespace kiln::cache {
namespace {

using test::FaultServer;
using test::http_answer;

/// Answers GET and PUT as told, and counts them.
class Objects {
 public:
  Objects(std::string to_get, std::string to_put)
      : server_([this, to_get = std::move(to_get), to_put = std::move(to_put)](FaultServer& server,
                                                                               int fd) {
          for (;;) {
            const auto request = server.read_until(fd, "\r\n\r\n");
            if (request.empty()) return;
            const bool is_put = request.starts_with("PUT");
            ++(is_put ? puts : gets);
            if (is_put && !skip_body(server, fd, request)) return;
            const auto& answer = is_put ? to_put : to_get;
            if (answer.empty()) return server.stall();
            FaultServer::write(fd, answer);
          }
        }) {}

  std::string url() const { return server_.http(); }

  std::atomic<int> gets{0}, puts{0};

 private:
  static bool skip_body(FaultServer& server, int fd, const std::string& request) {
    const auto at = request.find("Content-Length: ");
    auto rest = at == std::string::npos ? 0 : std::stoul(request.substr(at + 16));
    rest -= request.size() - request.find("\r\n\r\n") - 4;
    while (rest > 0) {
      char part[4096];
      if (!server.wait(fd)) return false;
      const auto got = ::recv(fd, part, std::min(sizeof part, rest), 0);
      if (got <= 0) return false;
      rest -= static_cast<std::size_t>(got);
    }
    return true;
  }

  FaultServer server_;
};

/// Answers MGET, SET and EVAL as told, and counts the last; an empty answer is none at all.
class Leases {
 public:
  Leases(std::string to_mget, std::string to_set, std::string to_eval)
      : server_([this, to_mget = std::move(to_mget), to_set = std::move(to_set),
                 to_eval = std::move(to_eval)](FaultServer& server, int fd) {
          for (;;) {
            char part[4096];
            if (!server.wait(fd)) return;
            const auto got = ::recv(fd, part, sizeof part, 0);
            if (got <= 0) return;
            const std::string_view command(part, static_cast<std::size_t>(got));
            const auto is = [&](const char* word) {
              return command.substr(0, 20).find(word) != std::string_view::npos;
            };
            if (is("EVAL")) ++evals;
            const auto& answer = is("MGET") ? to_mget : is("EVAL") ? to_eval : to_set;
            if (answer.empty()) return server.stall();
            FaultServer::write(fd, answer);
          }
        }) {}

  std::string url() const { return server_.redis(); }

  std::atomic<int> evals{0};

 private:
  FaultServer server_;
};

constexpr const char* kNothing = "*2\r\n$-1\r\n$-1\r\n";

RemoteOptions leases_at(std::string url, RemoteTimes times = calm_times()) {
  return {.leases = std::move(url), .signer = key_of_builder(1), .times = times};
}

TEST(RemotePolicy, WritesThatAreRefusedAreNotTriedAgainAndKeepNoReadAway) {
  for (const char* status : {"401 Who", "403 No", "405 Not So", "413 Too Large"}) {
    Objects objects(http_answer("404 Not Found", ""), http_answer(status, ""));
    Host host({.objects = objects.url(), .signer = key_of_builder(1), .times = calm_times()});
    ASSERT_TRUE(host.publish(1).ok());
    EXPECT_FALSE(host.store.flush(30s).ok());
    EXPECT_EQ(objects.puts, 1) << status;
    EXPECT_EQ(host.counters().not_uploaded, 1u);
    EXPECT_FALSE(host.fetch(2).busy);
    EXPECT_EQ(host.counters().misses, 1u) << status;
    EXPECT_EQ(host.counters().of(RemoteFailure::skipped), 0u) << status;
  }
}

TEST(RemotePolicy, AServerThatGrantsNoLeaseIsReadAndNotWaitedFor) {
  for (const char* refusal : {"-NOPERM this user may not\r\n", "-OOM command not allowed\r\n"}) {
    Leases leases(kNothing, refusal, refusal);
    RemoteOptions options{
        .leases = leases.url(), .signer = key_of_builder(1), .times = calm_times()};
    options.times.patience = 60s;
    Host host(options);
    for (int key = 0; key < 5; ++key) EXPECT_FALSE(host.fetch(key).busy) << refusal;
    EXPECT_EQ(host.counters().misses, 5u);
    EXPECT_EQ(host.counters().of(RemoteFailure::skipped), 0u) << refusal;
  }
}

TEST(RemotePolicy, LeasesThatCannotBeGivenUpAreLeftToEnd) {
  Leases leases(kNothing, "+OK\r\n", "");
  RemoteOptions options{.leases = leases.url(), .signer = key_of_builder(1), .times = calm_times()};
  options.times.first_byte = 500ms;
  options.times.lease = 600s;
  {
    Host host(options);
    std::vector<FleetLease> held;
    for (int key = 0; key < 30; ++key) {
      held.push_back(host.fetch(key).lease);
      ASSERT_TRUE(held.back());
    }
    held.clear();
  }
  EXPECT_GE(leases.evals, 1);
  EXPECT_LT(leases.evals, 10);
}

TEST(RemotePolicy, AStoreEndsWhateverItsServersDo) {
  Objects objects(http_answer("404 Not Found", ""), "");
  Leases leases(kNothing, "+OK\r\n", "");
  const auto started = std::chrono::steady_clock::now();
  {
    auto options = leases_at(leases.url());
    options.objects = objects.url();
    Host host(options);
    ASSERT_TRUE(host.fetch(1).lease) << "which is given up at once";
    ASSERT_TRUE(host.publish(2).ok());
    ASSERT_TRUE(soon([&] { return objects.puts > 0 && leases.evals > 0; }));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - started, 20s) << "its deadlines are longer";
}

TEST(RemotePolicy, ALeaseIsNotRenewedWithoutEnd) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  RemoteOptions options{.leases = redis.url(), .signer = key_of_builder(1), .times = calm_times()};
  options.times.lease = 300ms;
  Host waiter(options);
  options.times.longest_lease_wait = 300ms;
  Host hanging(options);
  const auto held = hanging.fetch(7);
  ASSERT_TRUE(held.lease);
  Fetched taken;
  EXPECT_TRUE(soon([&] { return bool((taken = waiter.fetch(7)).lease); }));
  EXPECT_EQ(waiter.counters().gave_up, 0u);
}

#ifndef KILN_SANITIZE  // whose allocator may be locked by another thread at the fork
TEST(RemotePolicy, AForkedChildAsksNobodyAndLeavesItsParentAlone) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  Objects objects(http_answer("404 Not Found", ""), http_answer("201 Created", ""));
  auto options = leases_at(redis.url());
  options.objects = objects.url();
  Host host(options);
  auto held = host.fetch(7);
  ASSERT_TRUE(held.lease);
  const pid_t child = test::start_child([&] {
    const auto fetched = host.fetch(8);
    if (fetched.busy || fetched.lease || fetched.entry) return 1;
    if (!host.publish(8).ok() || !host.finds(8) || !host.store.flush(kLong).ok()) return 2;
    held = {};
    host.store = *Store::open({.directory = host.directory / "cache"});
    return 0;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(objects.gets, 2) << "before and after the lease was taken";
  EXPECT_EQ(objects.puts, 0);
  const auto client = *RedisClient::open(*parse_remote_url(redis.url()), options);
  EXPECT_TRUE(client->look(wire_name_of(key_text_of(7))).leased) << "it is still the parent's";
  ASSERT_TRUE(host.publish(7, std::move(held.lease)).ok());
  EXPECT_TRUE(host.store.flush(kLong).ok());
  EXPECT_EQ(objects.puts, 1);
  EXPECT_EQ(host.all_warnings(), "");
}
#endif

TEST(RemotePolicy, WithoutThreadsItGoesOn) {
  pthread_attr_t before, huge;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(::pthread_attr_init(&huge), 0);
  Leases leases(kNothing, "+OK\r\n", ":1\r\n");
  Host host({.leases = leases.url(), .signer = key_of_builder(1), .times = calm_times()});
  // The server has a thread for this connection, which is kept.
  const auto text = key_text_of(1);
  ASSERT_FALSE(host.store.fetch(digest_of(text), text, Wish::look).busy);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 46), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  const auto fetched = host.fetch(1);
  const auto published = host.publish(2);
  const auto counters = host.counters();
  ASSERT_EQ(::pthread_setattr_default_np(&before), 0);
  EXPECT_FALSE(fetched.busy || fetched.lease) << "it ends by itself";
  EXPECT_EQ(counters.leases, 1u);
  EXPECT_TRUE(published.ok());
  EXPECT_EQ(counters.dropped, 1u);
}

TEST(RemotePolicy, UploadsBehindOneThatFailedForTooLongAreGivenUp) {
  Objects objects("", "");
  RemoteOptions options{.objects = objects.url(),
                        .signer = key_of_builder(1),
                        .times = times_for(RemoteFailure::stalled)};
  options.times.upload = 400ms;
  Host host(options);
  for (int key = 0; key < 30; ++key) ASSERT_TRUE(host.publish(key).ok());
  EXPECT_FALSE(host.store.flush(60s).ok());
  EXPECT_EQ(host.counters().not_uploaded, 30u);
  EXPECT_LT(objects.puts, 20);
}

TEST(RemotePolicy, ALeaseGoesWhenItsUploadFails) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  Objects objects(http_answer("404 Not Found", ""), http_answer("500 Broken", ""));
  RemoteOptions options{.objects = objects.url(),
                        .leases = redis.url(),
                        .signer = key_of_builder(1),
                        .times = calm_times()};
  options.times.upload = 600s;
  Host maker(options), waiter(options);
  auto made = maker.fetch(7);
  ASSERT_TRUE(made.lease);
  ASSERT_TRUE(waiter.fetch(7).busy);
  ASSERT_TRUE(maker.publish(7, std::move(made.lease)).ok());
  Fetched taken;
  EXPECT_TRUE(soon([&] { return bool((taken = waiter.fetch(7)).lease); }));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(maker.store.flush(600s, stop.get_token()).ok()) << "it is still tried";
}

TEST(RemotePolicy, SendingWaitsForRoom) {
  Objects objects(http_answer("404 Not Found", ""), http_answer("201 Created", ""));
  RemoteOptions options{.objects = objects.url(),
                        .signer = key_of_builder(1),
                        .most_waiting_bytes = 10'000,
                        .times = calm_times()};
  Host host(options);
  for (int key = 0; key < 20; ++key) ASSERT_TRUE(host.publish(key).ok());
  static_cast<void>(host.store.flush(60s).ok());
  const auto before = host.counters();
  for (int key = 0; key < 20; ++key)
    EXPECT_TRUE(host.store.send(digest_of(key_text_of(key))).ok()) << key;
  EXPECT_TRUE(host.store.flush(60s).ok());
  EXPECT_EQ(host.counters().dropped, before.dropped);
  EXPECT_EQ(host.counters().uploaded, before.uploaded + 20);
}

TEST(RemotePolicy, SendingWithoutAKeyIsRefused) {
  Objects objects(http_answer("404 Not Found", ""), http_answer("201 Created", ""));
  Host host({.objects = objects.url(), .times = calm_times()});
  ASSERT_TRUE(host.publish(1).ok());
  const auto status = host.store.send(digest_of(key_text_of(1)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::invalid_argument);
}

TEST(RemotePolicy, AnObjectThatIsRefusedIsNoMissAndIsAskedForAgain) {
  Objects objects(http_answer("200 OK", "garbage"), http_answer("201 Created", ""));
  Host host({.objects = objects.url(), .times = calm_times()});
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(host.fetch(1).busy);
  EXPECT_EQ(host.counters().misses, 0u);
  EXPECT_EQ(host.counters().of(RemoteFailure::damaged_object), 2u);
  EXPECT_EQ(objects.gets, 2);
}

TEST(RemotePolicy, ACompileThatFailedIsTriedAgainUnderALease) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  Host host({.leases = redis.url(), .signer = key_of_builder(1), .times = calm_times()});
  {
    const auto first = host.fetch(7);
    ASSERT_TRUE(first.lease);
  }
  Fetched again;
  EXPECT_TRUE(soon([&] { return bool((again = host.fetch(7)).lease); }));
}

TEST(RemotePolicy, WhoMakesNothingTakesNoLease) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  Host host({.leases = redis.url(), .signer = key_of_builder(1), .times = calm_times()});
  const auto text = key_text_of(7);
  const auto looked = host.store.fetch(digest_of(text), text, Wish::look);
  EXPECT_FALSE(looked.lease || looked.busy);
  EXPECT_TRUE(host.fetch(7).lease) << "it is still asked for when it is to be made";
}

TEST(RemotePolicy, ALeaseEndsWithAHolderThatIsKilled) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto times = calm_times();
  times.lease = 400ms;
  int taken[2];
  ASSERT_EQ(::pipe(taken), 0);
  const pid_t holder = test::start_child([&] {
    Host host(leases_at(redis.url(), times));
    const auto fetched = host.fetch(7);
    if (!fetched.lease || ::write(taken[1], "x", 1) != 1) return 1;
    std::this_thread::sleep_for(kLong);
    return 0;
  });
  char byte = 0;
  ::close(taken[1]);
  ASSERT_EQ(::read(taken[0], &byte, 1), 1);
  ::close(taken[0]);
  ::kill(holder, SIGKILL);
  EXPECT_EQ(test::wait_for(holder), 128 + SIGKILL);
  Host waiter(leases_at(redis.url(), calm_times()));
  Fetched fetched;
  EXPECT_TRUE(soon([&] { return bool((fetched = waiter.fetch(7)).lease); }));
  EXPECT_EQ(waiter.counters().gave_up, 0u);
}

TEST(RemotePolicy, AHolderThatNeverEndsIsWaitedForUpToTheLimit) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto times = calm_times();
  times.longest_lease_wait = 200ms;
  Host waiter(leases_at(redis.url(), times));
  auto long_lease = times;
  long_lease.lease = 1h;
  const auto client =
      *RedisClient::open(*parse_remote_url(redis.url()), leases_at(redis.url(), long_lease));
  ASSERT_TRUE(client->take_lease(wire_name_of(key_text_of(7)), "another").yes);
  EXPECT_TRUE(waiter.fetch(7).busy);
  EXPECT_TRUE(soon([&] { return !waiter.fetch(7).busy; }));
  EXPECT_EQ(waiter.counters().gave_up, 1u);
}

TEST(RemotePolicy, ObjectsOfABuilderWhoIsOffTheListKeepNoLeaseAway) {
  KILN_REQUIRES_SERVERS();
  const test::RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  const auto options = leases_at(redis.url());
  auto old = options;
  old.signer = key_of_builder(2);
  Host before(old);
  Host now(options);
  for (int key = 0; key < 6; ++key) ASSERT_TRUE(before.publish(key).ok());
  ASSERT_TRUE(before.store.flush(kLong).ok());
  for (int key = 0; key < 6; ++key) {
    auto fetched = now.fetch(key);
    EXPECT_TRUE(fetched.lease) << key;
    ASSERT_TRUE(now.publish(key, std::move(fetched.lease)).ok());
  }
  ASSERT_TRUE(now.store.flush(kLong).ok());
  // It looks before and after it takes the lease.
  EXPECT_EQ(now.counters().of(RemoteFailure::untrusted_signer), 12u);
  Host reader(options);
  EXPECT_TRUE(reader.fetch(5).entry) << "and they are replaced";
}

}  // namespace
}  // namespace kiln::cache
