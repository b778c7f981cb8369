// The lease of a fleet and small objects: against a real redis-server, and against one that does
// what none does.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cache/remote/pool.hpp"
#include "cache/remote/redis_client.hpp"
#include "cache/remote/redis_connection.hpp"
#include "remote_fixture.hpp"
#include "tests/support/fault_server.hpp"
#include "tests/support/remote_servers.hpp"

namespace kiln::cache {
namespace {

using test::FaultServer;
using test::RedisServer;

RemoteOptions lease_options(std::string url, RemoteTimes times = calm_times()) {
  return {.leases = std::move(url), .signer = key_of_builder(1), .times = times};
}

std::unique_ptr<RedisClient> client_of(const std::string& url, const RemoteOptions& options) {
  return *RedisClient::open(*parse_remote_url(url), options);
}

TEST(RemoteRedis, EachFaultIsCountedUnderItsOwnNameAndIsNoMiss) {
  const auto reply = [](std::string text) {
    return [text = std::move(text)](FaultServer& server, int fd) {
      while (!server.read_until(fd, "\r\n").empty()) FaultServer::write(fd, text);
    };
  };
  std::string nested;
  for (int depth = 0; depth < 1000; ++depth) nested += "*1\r\n";
  const std::vector<std::pair<RemoteFailure, FaultServer::Serve>> faults = {
      {RemoteFailure::stalled, [](FaultServer& server, int) { server.stall(); }},
      {RemoteFailure::too_slow,
       [](FaultServer& server, int fd) {
         server.read_until(fd, "\r\n");
         server.drip(fd, "*2\r\n$4000\r\n" + std::string(4000, 'x'), 10ms);
       }},
      {RemoteFailure::reset,
       [](FaultServer& server, int fd) {
         server.read_until(fd, "lease\r\n");  // earlier it would be no connection at all
         FaultServer::reset(fd);
       }},
      {RemoteFailure::bad_reply, reply("HTTP/1.1 400 Bad Request\r\n\r\n")},
      {RemoteFailure::bad_reply, reply("*1000000000\r\n")},
      {RemoteFailure::bad_reply, reply("*2147483647\r\n$1\r\n")},
      {RemoteFailure::bad_reply, reply("*-7\r\n")},
      {RemoteFailure::bad_reply, reply("*3\r\n$-1\r\n$-1\r\n$-1\r\n")},
      {RemoteFailure::bad_reply, reply(":5\r\n")},
      {RemoteFailure::bad_reply, reply("*2\r\n:1\r\n:1\r\n")},
      {RemoteFailure::stalled, reply("")},
      {RemoteFailure::too_slow, reply("*2\r\n$99999999\r\n")},
      {RemoteFailure::empty_body, reply("*2\r\n$0\r\n\r\n$-1\r\n")},
      {RemoteFailure::access_denied, reply("-NOAUTH Authentication required.\r\n")},
      {RemoteFailure::server_error, reply("-ERR s3cret and more\r\n")},
      {RemoteFailure::wrong_server, reply("-MOVED 3999 127.0.0.1:6381\r\n")},
      {RemoteFailure::overloaded, reply("-LOADING Redis is loading the dataset in memory\r\n")},
      {RemoteFailure::overloaded, reply("-ERR max number of clients reached\r\n")},
      {RemoteFailure::overloaded, reply("-BUSY Redis is busy running a script\r\n")},
      {RemoteFailure::access_denied, reply("-NOPERM s3cret\r\n")},
      {RemoteFailure::bad_reply, reply("*2\r\n*1\r\n$-1\r\n$-1\r\n")},
      {RemoteFailure::bad_reply, reply("*2\r\n-ERR s3cret\r\n$-1\r\n")},
      {RemoteFailure::bad_reply, reply("*2\r\n$-2\r\n$-1\r\n")},
      {RemoteFailure::bad_reply, reply("*2\r\n$99999999999999999999\r\n")},
      {RemoteFailure::bad_reply, reply(nested)},
      {RemoteFailure::damaged_object, reply("*2\r\n$5\r\nhello\r\n$-1\r\n")},
  };
  try_all(faults, [](const auto& fault) {
    const auto failure = fault.first;
    SCOPED_TRACE(std::string(to_string(failure)));
    FaultServer server(fault.second);
    auto options = lease_options(server.redis(), times_for(failure, /*is_http=*/false));
    options.signer = nullptr;  // one question, and no lease after it
    Host host(options);
    const auto started = std::chrono::steady_clock::now();
    const auto fetched = host.fetch(7);
    EXPECT_FALSE(fetched.entry);
    EXPECT_FALSE(fetched.busy);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 20s);
    EXPECT_EQ(host.counters().of(failure), 1u) << host.all_warnings();
    EXPECT_EQ(host.counters().hits, 0u);
    EXPECT_EQ(host.all_warnings().find("s3cret"), std::string::npos);
  });
}

TEST(RemoteRedis, TooLongAReplyIsCutOff) {
  FaultServer server([](FaultServer& self, int fd) {
    self.read_until(fd, "\r\n");
    FaultServer::write(fd, "*2\r\n$-1\r\n$99999999\r\n" + std::string(200'000, 'x'));
    self.stall();
  });
  auto options = lease_options(server.redis());
  options.signer = nullptr;
  Host host(options);
  host.fetch(7);
  EXPECT_EQ(host.counters().of(RemoteFailure::too_large), 1u);
}

TEST(RemoteRedis, AResetAtAnyByteIsAFailure) {
  const std::string whole = "*2\r\n$40\r\n" + std::string(40, 'x') + "\r\n$-1\r\n";
  std::atomic<std::size_t> cut{0};
  FaultServer server([&](FaultServer& self, int fd) {
    if (self.read_until(fd, "lease\r\n").empty()) return;
    FaultServer::write(fd, std::string_view(whole).substr(0, cut));
    FaultServer::reset(fd);
  });
  const auto options = lease_options(server.redis());
  for (cut = 0; cut < whole.size(); ++cut) {
    // Anew, since a kept connection that fails is opened once more.
    const auto look = client_of(server.redis(), options)->look("00");
    EXPECT_NE(look.object.failure, RemoteFailure::none) << cut;
    EXPECT_FALSE(look.object.yes) << cut;
  }
  EXPECT_TRUE(client_of(server.redis(), options)->look("00").object.yes);
}

// A connection that was kept may be dead for reasons that the server knows nothing of.
TEST(RemoteRedis, AKeptConnectionThatFailsIsReplacedOnce) {
  const std::string nothing = "*2\r\n$-1\r\n$-1\r\n";
  const std::vector<FaultServer::Serve> ends = {
      [](FaultServer&, int fd) { FaultServer::reset(fd); },
      [](FaultServer&, int) {},
      [](FaultServer& self, int) { self.stall(); },
      [](FaultServer&, int fd) { FaultServer::write(fd, "no protocol\r\n"); },
  };
  for (std::size_t i = 0; i < ends.size(); ++i) {
    SCOPED_TRACE(i);
    std::atomic<int> asked{0};
    FaultServer server([&](FaultServer& self, int fd) {
      const bool is_first = self.connections() == 1;
      while (!self.read_until(fd, "lease\r\n").empty()) {
        if (is_first && ++asked == 2) return ends[i](self, fd);
        FaultServer::write(fd, nothing);
      }
    });
    auto times = calm_times();
    if (i == 2) times.first_byte = 1s;
    Host host({.leases = server.redis(), .times = times});
    for (int key = 0; key < 4; ++key) host.fetch(key);
    EXPECT_EQ(host.counters().misses, 4u) << host.all_warnings();
    EXPECT_EQ(server.connections(), 2);
  }
}

TEST(RemoteRedis, APoolDropsWhatNobodyUsedForAWhile) {
  using namespace std::chrono;
  Pool<int> pool;
  const steady_clock::time_point start{1h};
  pool.give(std::make_unique<int>(1), start);
  pool.give(std::make_unique<int>(2), start + 20s);
  EXPECT_EQ(*pool.take(start + 29s), 2);
  pool.give(std::make_unique<int>(3), start + 31s);
  EXPECT_EQ(*pool.take(start + 31s), 3);
  EXPECT_EQ(pool.take(start + 31s), nullptr) << "the first is too old by now";
  pool.give(std::make_unique<int>(4), start + 32s);
  pool.clear();
  EXPECT_EQ(pool.take(start + 32s), nullptr);
}

// Passes on what both say, but for a reply when it is to be lost: the connection ends instead.
void pass_on(const FaultServer& server, int client, int port, std::atomic<bool>& lose_a_reply) {
  const int upstream = test::loopback_socket(port, false);
  for (bool open = true; open && !server.stopping();) {
    pollfd ready[] = {{.fd = client, .events = POLLIN, .revents = 0},
                      {.fd = upstream, .events = POLLIN, .revents = 0}};
    ::poll(ready, 2, 10);
    for (const int from : {0, 1}) {
      if (!open || ready[from].revents == 0) continue;
      char bytes[4096];
      const auto got = ::recv(ready[from].fd, bytes, sizeof bytes, 0);
      open = got > 0 && !(from == 1 && lose_a_reply.exchange(false));
      if (open) FaultServer::write(ready[1 - from].fd, {bytes, static_cast<std::size_t>(got)});
    }
  }
  ::close(upstream);
}

TEST(RemoteRedis, ALeaseWhoseGrantWasLostIsKnownAsOurs) {
  KILN_REQUIRES_SERVERS();
  const RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  std::atomic<bool> lose_a_reply{false};
  FaultServer between(
      [&](FaultServer& self, int fd) { pass_on(self, fd, redis.port(), lose_a_reply); });
  const auto options = lease_options(between.redis());
  const auto client = client_of(between.redis(), options);
  EXPECT_FALSE(client->look("00").leased);  // its connection is kept
  lose_a_reply = true;
  EXPECT_TRUE(client->take_lease("00", "a").yes);
  EXPECT_FALSE(lose_a_reply);
  lose_a_reply = true;
  EXPECT_FALSE(client->take_lease("00", "b").yes) << "it is another's";
  EXPECT_FALSE(lose_a_reply);
  EXPECT_TRUE(client->release_lease("00", "a").yes);
}

TEST(RemoteRedis, OneHostMakesWhatTheOthersGet) {
  KILN_REQUIRES_SERVERS();
  const RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  Host maker(lease_options(redis.url(), calm_times()));
  Host waiter(lease_options(redis.url(), calm_times()));
  auto first = maker.fetch(7);
  EXPECT_FALSE(first.entry);
  EXPECT_FALSE(first.busy);
  EXPECT_TRUE(first.lease);
  EXPECT_TRUE(waiter.fetch(7).busy);
  ASSERT_TRUE(maker.publish(7, std::move(first.lease)).ok());
  ASSERT_TRUE(maker.store.flush(kLong).ok());
  EXPECT_EQ(maker.counters().uploaded, 1u);
  EXPECT_TRUE(soon([&] { return waiter.fetch(7).entry.has_value(); }));
  EXPECT_TRUE(waiter.finds(7)) << "it is stored locally";
  EXPECT_EQ(waiter.counters().hits, 1u);
  EXPECT_EQ(waiter.counters().leases, 0u);
}

TEST(RemoteRedis, ALeaseIsRenewedWhileItIsHeldAndGivenUpAfterwards) {
  KILN_REQUIRES_SERVERS();
  const RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto times = calm_times();
  times.lease = 1s;
  const auto options = lease_options(redis.url(), times);
  RedisConnection connection(*parse_remote_url(redis.url()), options);
  ASSERT_TRUE(connection.connect().yes);
  Host maker(options);
  const auto held = maker.fetch(7);
  ASSERT_TRUE(held.lease);
  // What is left of its time only falls by itself. One that ended, since this process was kept from
  // working, has less than none, and is taken anew.
  long long last = 1'000'000;
  EXPECT_TRUE(soon([&] {
    Answer failure;
    const auto left = connection.call({"PTTL", "kiln:{" + wire_name_of(key_text_of(7)) + "}:lease"},
                                      failure, std::chrono::steady_clock::now());
    return left != nullptr && left->integer > std::exchange(last, left->integer);
  }));

  times.lease = 1h;
  Host other(lease_options(redis.url(), times));
  const auto client = client_of(redis.url(), options);
  const auto name = wire_name_of(key_text_of(8));
  {
    const auto taken = other.fetch(8);
    ASSERT_TRUE(taken.lease);
    EXPECT_TRUE(client->look(name).leased);
  }
  EXPECT_TRUE(soon([&] { return !client->look(name).leased; })) << "long before its time is over";
}

TEST(RemoteRedis, ALeaseBelongsToItsTokenAndEndsWithItsTime) {
  KILN_REQUIRES_SERVERS();
  const RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto times = calm_times();
  times.lease = 1h;
  const auto client = client_of(redis.url(), lease_options(redis.url(), times));
  EXPECT_TRUE(client->take_lease("00", "a").yes);
  EXPECT_FALSE(client->take_lease("00", "b").yes);
  EXPECT_FALSE(client->renew_lease("00", "b").yes);
  EXPECT_FALSE(client->release_lease("00", "b").yes);
  EXPECT_TRUE(client->look("00").leased);
  EXPECT_TRUE(client->release_lease("00", "a").yes);
  times.lease = 20ms;
  ASSERT_TRUE(client_of(redis.url(), lease_options(redis.url(), times))->take_lease("00", "a").yes);
  EXPECT_TRUE(soon([&] { return client->take_lease("00", "b").yes; })) << "its holder was killed";
  EXPECT_FALSE(client->release_lease("00", "a").yes);
  EXPECT_TRUE(client->release_lease("00", "b").yes);
  // A server that was restarted knows nothing; a holder at work takes it anew.
  EXPECT_TRUE(client->renew_lease("00", "a").yes);
  EXPECT_FALSE(client->take_lease("00", "b").yes);
}

TEST(RemoteRedis, AHostThatMaySendNothingTakesNoLease) {
  KILN_REQUIRES_SERVERS();
  const RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto options = lease_options(redis.url(), calm_times());
  options.signer = nullptr;
  Host reader(options);
  EXPECT_FALSE(reader.fetch(7).busy);
  const auto client = client_of(redis.url(), options);
  EXPECT_FALSE(client->look(wire_name_of(key_text_of(7))).leased);
  ASSERT_TRUE(reader.publish(7).ok());
  ASSERT_TRUE(reader.store.flush(kLong).ok());
  EXPECT_FALSE(client->look(wire_name_of(key_text_of(7))).object.yes);
  // And yet it waits for one who does.
  const auto other = client_of(redis.url(), options);
  ASSERT_TRUE(other->take_lease(wire_name_of(key_text_of(8)), "another").yes);
  EXPECT_TRUE(reader.fetch(8).busy);
}

TEST(RemoteRedis, UsersAndPasswordsAreAskedFor) {
  KILN_REQUIRES_SERVERS();
  const RedisServer redis({"--requirepass", "s3cret", "--user", "builder", "on", ">pa55", "~kiln:*",
                           "+mget", "+set", "+eval", "+get", "+del", "+auth"});
  ASSERT_TRUE(redis.is_up());
  const test::TemporaryDirectory directory;
  const auto with_password = [&](std::string_view password, const std::string& user) {
    test::write_file(directory / "password", password);
    ::chmod((directory / "password").c_str(), 0600);
    auto url = redis.url();
    url.insert(url.find("//") + 2, user);
    auto options = lease_options(url, calm_times());
    options.lease_password = directory / "password";
    return options;
  };
  EXPECT_TRUE(Host(with_password("s3cret\n", "")).fetch(7).lease);
  EXPECT_TRUE(Host(with_password("pa55", "builder@")).fetch(8).lease);
  Host wrong(with_password("wrong", "builder@"));
  EXPECT_FALSE(wrong.fetch(9).lease);
  EXPECT_EQ(wrong.counters().of(RemoteFailure::access_denied), 1u);
  const auto without = lease_options("redis://builder@127.0.0.1");
  const auto refused = check_remote(without);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("KILN_REMOTE_PASSWORD"), std::string::npos);
  Host none(lease_options(redis.url(), calm_times()));
  none.fetch(9);
  EXPECT_EQ(none.counters().of(RemoteFailure::access_denied), 1u);
  EXPECT_EQ(none.all_warnings().find("s3cret"), std::string::npos);
}

TEST(RemoteRedis, AServerThatGoesAwayKillsNobodyAndIsFoundAgain) {
  KILN_REQUIRES_SERVERS();
  // As a host has it that minds no signals.
  ::signal(SIGPIPE, SIG_DFL);
  RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto times = calm_times();
  times.shortest_break = times.longest_break = 20ms;
  Host host(lease_options(redis.url(), times));
  EXPECT_TRUE(host.fetch(7).lease);
  redis.kill();
  for (int key = 10; key < 14; ++key) EXPECT_FALSE(host.fetch(key).entry);
  EXPECT_GT(
      host.counters().of(RemoteFailure::cannot_connect) + host.counters().of(RemoteFailure::reset),
      0u);
  redis.start();
  ASSERT_TRUE(redis.is_up());
  EXPECT_TRUE(soon([&, key = 20]() mutable { return bool(host.fetch(key++).lease); }));
}

TEST(RemoteRedis, AServerThatServedIsWaitedFor) {
  KILN_REQUIRES_SERVERS();
  RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto times = calm_times();
  times.patience = 1200ms;
  Host host(lease_options(redis.url(), times));
  EXPECT_TRUE(host.fetch(7).lease);
  redis.kill();
  EXPECT_TRUE(host.fetch(8).busy) << "it may be back in a moment";
  EXPECT_TRUE(soon([&] { return !host.fetch(8).busy; })) << "and yet not without end";
}

TEST(RemoteRedis, UploadsThatDoNotFitAreDropped) {
  // Nothing moves while all are handed over, however long that takes.
  std::atomic<bool> held{true};
  FaultServer server([&](FaultServer& self, int) {
    while (held && !self.stopping()) std::this_thread::sleep_for(1ms);
  });
  auto options = lease_options(server.redis());
  options.most_waiting_bytes = 20'000;
  options.times.upload = 0ms;
  Host host(options);
  for (int key = 0; key < 10; ++key) ASSERT_TRUE(host.publish(key).ok());
  EXPECT_GE(host.counters().dropped, 6u);
  held = false;
  const auto status = host.store.flush(kLong);
  EXPECT_EQ(status.code(), ErrorCode::io_failed);
  const auto counters = host.counters();
  EXPECT_EQ(counters.dropped + counters.not_uploaded, 10u);
  EXPECT_TRUE(host.store.flush(kLong).ok()) << "told once";
}

}  // namespace
}  // namespace kiln::cache
