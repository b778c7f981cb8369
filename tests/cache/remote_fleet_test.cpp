// A fleet on one machine: each host is a process with a local cache of its own, and all share one
// redis-server and one nginx. A compile is a pause and a line in a file, so that they can be
// counted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "remote_fixture.hpp"
#include "tests/support/remote_servers.hpp"

namespace kiln::cache {
namespace {

using test::NginxServer;
using test::RedisServer;

struct Fleet {
  int hosts = 200;
  int keys = 50;
  std::chrono::milliseconds compile = 20ms;
  RemoteOptions remote{};
  std::string log{};    // one line for each compile
  int in_contact = -1;  // a pipe that each host writes a byte to once the servers have served it
  int go = -1;          // a pipe that ends when the hosts may go on then
  int not_theirs = -1;  // its other end

  /// Odd keys are too large for the server of the leases.
  static std::size_t size_of(int key) { return key % 2 == 0 ? 6'000 : 20'000; }

  /// Takes part as host `number`; 0, or what went wrong.
  int take_part(int number) const {
    const test::TemporaryDirectory directory;
    auto store = *Store::open({.directory = directory / "cache",
                               .trust = {.signers = {key_of_builder(1)->public_key()}},
                               .remote = remote});
    std::vector<int> left;
    for (int key = 0; key < keys; ++key) left.push_back(key);
    const auto give_up = std::chrono::steady_clock::now() + 200s;
    if (go >= 0) {
      ::close(not_theirs);
      while (advance(store, number, 0) == 0) std::this_thread::sleep_for(10ms);
      char byte = 0;
      if (::write(in_contact, &byte, 1) != 1) return 8;
      ::close(in_contact);
      if (::read(go, &byte, 1) != 0) return 8;
    }
    while (!left.empty()) {
      if (std::chrono::steady_clock::now() > give_up) return 2;
      const auto before = left.size();
      for (std::size_t i = 0; i < left.size();) {
        const int result = advance(store, number, left[i]);
        if (result > 1) return result;
        if (result == 1)
          left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
        else
          ++i;
      }
      if (left.size() == before) std::this_thread::sleep_for(10ms);
    }
    // What a killed or stalled server lost is made again by whoever needs it.
    static_cast<void>(store.flush(30s).ok());
    for (int key = 0; key < keys; ++key) {
      const auto text = key_text_of(key);
      const auto found = store.find(digest_of(text), text);
      if (!found.entry || !is_right(*found.entry, key, size_of(key))) return 3;
    }
    return 0;
  }

 private:
  /// 0: another is at work on it; 1: it is there; more: a failure.
  int advance(Store& store, int number, int key) const {
    const auto text = key_text_of(key);
    const auto name = digest_of(text);
    const auto lock = store.try_lock(name);
    if (lock.outcome != LockOutcome::held) return 4;
    auto fetched = store.fetch(name, text);
    if (fetched.busy) return 0;
    if (fetched.entry) return is_right(*fetched.entry, key, size_of(key)) ? 1 : 5;
    const int fd = ::open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    const auto line = std::to_string(key) + ' ' + std::to_string(number) + '\n';
    if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 6;
    ::close(fd);
    std::this_thread::sleep_for(compile);
    const auto payload = payload_of_key(key, size_of(key));
    const auto status = store.publish(text, "{}", as_bytes_of(payload), std::move(fetched.lease));
    return status.ok() ? 1 : 7;
  }
};

struct Compiles {
  std::map<int, int> of_key{};
  int all = 0;
};

Compiles compiles_in(const std::string& log) {
  Compiles compiles;
  std::istringstream lines(test::read_file(log));
  for (int key = 0, host = 0; lines >> key >> host; ++compiles.all) ++compiles.of_key[key];
  return compiles;
}

bool is_sanitized() {
#ifdef KILN_SANITIZE
  return true;
#else
  return false;
#endif
}

Fleet fleet_for(const RedisServer& redis, const NginxServer& nginx,
                const test::TemporaryDirectory& directory) {
  Fleet fleet{.remote = {.objects = nginx.url(),
                         .leases = redis.url(),
                         .signer = key_of_builder(1),
                         .small_object_bytes = 8'000,
                         // With as many processes for one processor, a moment may be long.
                         .times = {.connect = 30s, .first_byte = 30s, .lease = 60s}},
              .log = (directory / "compiles").string()};
  // A sanitized process takes a hundred times the memory, and 200 of them the whole machine.
  if (is_sanitized()) {
    fleet.hosts = 12;
    fleet.keys = 12;
  } else if (std::getenv("KILN_FULL") == nullptr) {
    fleet.hosts = 60;
  }
  return fleet;
}

template <class Meanwhile>
std::vector<int> run(const Fleet& fleet, const Meanwhile& meanwhile) {
  std::vector<pid_t> hosts;
  for (int host = 0; host < fleet.hosts; ++host)
    hosts.push_back(test::start_child([&] { return fleet.take_part(host); }));
  meanwhile();
  std::vector<int> results;
  for (const pid_t host : hosts) results.push_back(test::wait_for(host));
  return results;
}

void report(const char* what, const Fleet& fleet, const Compiles& compiles,
            std::chrono::steady_clock::duration took) {
  std::cout << what << ": " << fleet.hosts << " hosts, " << fleet.keys << " keys, " << compiles.all
            << " compiles, " << std::chrono::duration_cast<std::chrono::milliseconds>(took).count()
            << " ms\n";
}

TEST(RemoteFleet, CompilesEachKeyOnce) {
  KILN_REQUIRES_SERVERS();
  const test::TemporaryDirectory directory;
  const RedisServer redis;
  const NginxServer nginx;
  ASSERT_TRUE(redis.is_up() && nginx.is_up());
  const Fleet fleet = fleet_for(redis, nginx, directory);
  const auto started = std::chrono::steady_clock::now();
  for (const int result : run(fleet, [] {})) EXPECT_EQ(result, 0);
  const auto compiles = compiles_in(fleet.log);
  report("quiet", fleet, compiles, std::chrono::steady_clock::now() - started);
  EXPECT_EQ(compiles.all, fleet.keys);
  for (const auto& [key, count] : compiles.of_key) EXPECT_EQ(count, 1) << key;
}

/// What happens to the servers for a second.
struct Outage {
  const char* what;
  bool redis_is_killed = false;
  bool redis_is_stopped = false;
  bool nginx_is_killed = false;
  bool nginx_is_stopped = false;

  void begin(RedisServer& redis, NginxServer& nginx) const {
    if (redis_is_killed) redis.kill();
    if (redis_is_stopped) redis.stall();
    if (nginx_is_killed) nginx.kill();
    if (nginx_is_stopped) nginx.stall();
  }
  void end(RedisServer& redis, NginxServer& nginx) const {
    if (redis_is_killed) redis.start();
    if (redis_is_stopped) redis.go_on();
    if (nginx_is_killed) nginx.start();
    if (nginx_is_stopped) nginx.go_on();
    EXPECT_TRUE(redis.is_up() && nginx.is_up());
  }
};

void go_on_through(const Outage& outage) {
  const test::TemporaryDirectory directory;
  RedisServer redis;
  NginxServer nginx;
  ASSERT_TRUE(redis.is_up() && nginx.is_up());
  Fleet fleet = fleet_for(redis, nginx, directory);
  // Longer, so that the outages meet the fleet at work.
  fleet.compile = 60ms;
  fleet.remote.times.first_byte = 700ms;
  // Longer than the outages, and than a moment without a processor.
  fleet.remote.times.patience = 6s;
  fleet.remote.times.lease = 10s;
  int in_contact[2], go[2];
  ASSERT_EQ(::pipe2(in_contact, O_CLOEXEC) | ::pipe2(go, O_CLOEXEC), 0);
  fleet.in_contact = in_contact[1];
  fleet.go = go[0];
  fleet.not_theirs = go[1];
  auto started = std::chrono::steady_clock::now();
  int outage_keys = 0;
  const auto results = run(fleet, [&] {
    // The end comes when each has written or is gone.
    ::close(in_contact[1]);
    int present = 0;
    pollfd ready{.fd = in_contact[0], .events = POLLIN, .revents = 0};
    for (char byte = 0; ::poll(&ready, 1, 120'000) > 0 && ::read(in_contact[0], &byte, 1) == 1;)
      ++present;
    EXPECT_EQ(present, fleet.hosts);
    started = std::chrono::steady_clock::now();
    // Whatever happened, nobody waits any longer.
    ::close(go[1]);
    const auto until = [&](int compiles) {
      while (compiles_in(fleet.log).all < compiles &&
             std::chrono::steady_clock::now() - started < 60s)
        std::this_thread::sleep_for(5ms);
    };
    until(fleet.keys / 4);
    for (int key = 0; key < fleet.keys; ++key)
      outage_keys += std::filesystem::exists(nginx.object(wire_name_of(key_text_of(key)))) ? 0 : 1;
    outage.begin(redis, nginx);
    std::this_thread::sleep_for(1s);
    outage.end(redis, nginx);
  });
  ::close(in_contact[0]);
  ::close(go[0]);
  for (const int result : results) EXPECT_EQ(result, 0);
  const auto compiles = compiles_in(fleet.log);
  report(outage.what, fleet, compiles, std::chrono::steady_clock::now() - started);
  // Its keys are those that no server had when it began.
  std::cout << "of them in the outage: " << outage_keys << " keys\n";
  EXPECT_LE(compiles.all, fleet.keys + outage_keys);
}

TEST(RemoteFleet, GoesOnThroughOutages) {
  KILN_REQUIRES_SERVERS();
  go_on_through(
      {.what = "Redis killed, nginx stopped", .redis_is_killed = true, .nginx_is_stopped = true});
  if (std::getenv("KILN_FULL") == nullptr) return;
  go_on_through({.what = "Redis killed", .redis_is_killed = true});
  go_on_through({.what = "Redis stopped", .redis_is_stopped = true});
  go_on_through({.what = "nginx killed", .nginx_is_killed = true});
  go_on_through({.what = "nginx stopped", .nginx_is_stopped = true});
}

}  // namespace
}  // namespace kiln::cache
