// Redis servers that are none for us: nodes of a cluster, replicas, full ones, those that let
// others in. Each is named with its cure and counted, is no miss, and keeps nobody from compiling.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remote_fixture.hpp"
#include "tests/support/remote_servers.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::RedisServer;

RemoteOptions options_for(std::string url) {
  RemoteOptions options{
      .leases = std::move(url), .signer = key_of_builder(1), .times = calm_times()};
  // What will not be better in a moment is not to be waited for.
  options.times.patience = 1h;
  return options;
}

std::vector<std::string> joined(std::vector<std::string> one, std::vector<std::string> more) {
  one.insert(one.end(), more.begin(), more.end());
  return one;
}

/// A node of a cluster listens on a second port.
std::vector<std::string> node_on(const test::ReservedPort& bus) {
  return {"--cluster-enabled",      "yes",   "--cluster-port", std::to_string(bus.number()),
          "--cluster-node-timeout", "600000"};
}

TEST(RemoteRedisModes, AServerThatIsOfNoUseIsNamedWithItsCureAndNotWaitedFor) {
  KILN_REQUIRES_SERVERS();
  const test::TemporaryDirectory directory;
  test::write_file(directory / "password", "pa55");
  ::chmod((directory / "password").c_str(), 0600);
  const test::ReservedPort bus, nobody;
  const std::vector<std::string> replica = {"--replicaof",
                                            "127.0.0.1 " + std::to_string(nobody.number())};
  const std::vector<std::string> user = {"--user", "builder", "on", ">pa55", "~kiln:*"};
  struct Case {
    std::vector<std::string> server;
    RemoteFailure failure;
    std::string_view cure;
    bool reads;
    std::string user{};  // with a password
  };
  const std::vector<Case> cases = {
      {node_on(bus), RemoteFailure::wrong_server, "CLUSTERDOWN: it is a node of a cluster", false},
      {replica, RemoteFailure::wrong_server, "READONLY: it is a replica; name its master", true},
      {joined(replica, {"--replica-serve-stale-data", "no"}), RemoteFailure::overloaded,
       "MASTERDOWN", false},
      {{"--maxmemory", "1"}, RemoteFailure::server_error, "OOM: its memory is full", true},
      {{"--requirepass", "other"}, RemoteFailure::access_denied, "NOAUTH: name a file", false},
      {{"--requirepass", "other"}, RemoteFailure::access_denied, "WRONGPASS", false, "default"},
      {user, RemoteFailure::access_denied, "NOPERM: allow its user +mget", false, "builder"},
      {joined(user, {"+mget"}), RemoteFailure::access_denied, "NOPERM", true, "builder"},
      {joined(user, {"+mget", "+set"}), RemoteFailure::none, "", true, "builder"},
  };
  try_all(cases, [&](const Case& one) {
    SCOPED_TRACE(std::string(one.cure));
    const RedisServer redis(one.server);
    ASSERT_TRUE(redis.is_up());
    auto url = redis.url();
    if (!one.user.empty()) url.insert(url.find("//") + 2, one.user + '@');
    auto options = options_for(url);
    if (!one.user.empty()) options.lease_password = directory / "password";
    if (one.failure != RemoteFailure::wrong_server) options.times.upload = 0ms;
    const bool grants = one.failure == RemoteFailure::none;
    Host host(options);
    for (const int key : {7, 8}) {
      const auto fetched = host.fetch(key);
      EXPECT_FALSE(fetched.busy || fetched.entry);
      EXPECT_EQ(bool(fetched.lease), grants);
    }
    EXPECT_EQ(host.counters().misses, one.reads ? 2u : 0u);
    EXPECT_TRUE(host.publish(7).ok());
    EXPECT_EQ(host.store.flush(kLong).ok(), grants);
    EXPECT_TRUE(host.finds(7)) << "it is kept here";
    if (grants) return;
    EXPECT_EQ(host.counters().not_uploaded, 1u);
    const auto counters = host.counters();
    EXPECT_GE(counters.of(one.failure), 1u) << host.all_warnings();
    EXPECT_LE(counters.of(one.failure), 4u) << host.all_warnings();
    EXPECT_NE(host.all_warnings().find(one.cure), std::string::npos) << host.all_warnings();
    EXPECT_EQ(host.all_warnings().find("pa55"), std::string::npos);
    const auto checks = check_remote(options);
    ASSERT_TRUE(checks);
    EXPECT_EQ(checks->front().failure, one.failure);
    EXPECT_EQ(checks->front().reads, one.reads);
    EXPECT_NE(checks->front().trouble.find(one.cure), std::string::npos) << checks->front().trouble;
  });
}

TEST(RemoteRedisModes, AUserWithoutAPasswordOnAServerWithoutOne) {
  KILN_REQUIRES_SERVERS();
  const test::TemporaryDirectory directory;
  test::write_file(directory / "password", "pa55");
  ::chmod((directory / "password").c_str(), 0600);
  const RedisServer redis;
  ASSERT_TRUE(redis.is_up());
  auto options = options_for(redis.url());
  options.lease_password = directory / "password";
  Host host(options);
  EXPECT_FALSE(host.fetch(7).busy);
  EXPECT_EQ(host.counters().of(RemoteFailure::access_denied), 1u);
  EXPECT_NE(host.all_warnings().find("it has no password"), std::string::npos);
}

TEST(RemoteRedisModes, OfAClusterTheKeysOfOneNodeAreServedAndTheOthersCompiled) {
  KILN_REQUIRES_SERVERS();
  const test::ReservedPort bus;
  RedisServer redis(node_on(bus));
  ASSERT_TRUE(redis.is_up());
  redis.kill();
  // Half of the keys belong to another node, which nobody can reach.
  const auto id = [](char digit) { return std::string(40, digit); };
  test::write_file(redis.folder() / "nodes.conf",
                   id('a') + " 127.0.0.1:" + std::to_string(redis.port()) + "@" +
                       std::to_string(bus.number()) + " myself,master - 0 0 1 connected 0-8191\n" +
                       id('b') + " 127.0.0.1:1@2 master - 0 0 2 connected 8192-16383\n" +
                       "vars currentEpoch 2 lastVoteEpoch 0\n");
  redis.start();
  ASSERT_TRUE(redis.is_up());
  const auto options = options_for(redis.url());
  // A node is down for two seconds after its start.
  ASSERT_TRUE(soon([&] {
    const auto checks = check_remote(options);
    return checks && (checks->front().trouble.empty() ||
                      checks->front().trouble.find("MOVED") != std::string::npos);
  }));
  Host host(options);
  int served = 0, elsewhere = 0;
  for (int key = 0; key < 20; ++key) {
    auto fetched = host.fetch(key);
    EXPECT_FALSE(fetched.busy || fetched.entry) << key;
    const bool is_served(fetched.lease);
    ++(is_served ? served : elsewhere);
    EXPECT_TRUE(host.publish(key, std::move(fetched.lease)).ok());
    EXPECT_EQ(host.store.flush(kLong).ok(), is_served) << key;
    EXPECT_EQ(Host(options).fetch(key).entry.has_value(), is_served) << key;
  }
  EXPECT_GT(served, 0);
  EXPECT_GT(elsewhere, 0);
  EXPECT_EQ(host.counters().misses, static_cast<unsigned>(served));
  EXPECT_EQ(host.counters().of(RemoteFailure::wrong_server), 2u * static_cast<unsigned>(elsewhere));
  EXPECT_NE(host.all_warnings().find("MOVED: it is a node of a cluster"), std::string::npos);
}

}  // namespace
}  // namespace kiln::cache
