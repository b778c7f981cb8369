// Servers that mean harm, or have no time: what they cost is bounded, and who asks to be left alone
// is. Deadlines that are to be missed are short; all others are longer than any test.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cache/remote/http_client.hpp"
#include "cache/remote/object.hpp"
#include "remote_fixture.hpp"
#include "tests/support/fault_server.hpp"

namespace kiln::cache {
namespace {

using test::FaultServer;
using test::http_answer;

constexpr std::string_view kLongBody = "HTTP/1.1 200 OK\r\nContent-Length: 60000000\r\n\r\n";

/// Head, index and seal of an object without labels.
constexpr std::size_t kFrontBytes = 72 + 104 + 64;

/// Sends `start`, and then nothing.
FaultServer::Serve begins_with(std::string start) {
  return [start = std::move(start)](FaultServer& server, int fd) {
    if (server.read_until(fd, kEnd).empty()) return;
    FaultServer::write(fd, start);
    server.stall();
  };
}

/// Sends `start` and then zeros for as long as they are taken, or `most` of them; returns how many
/// were.
std::size_t flood(const FaultServer& server, int fd, std::string_view start,
                  std::size_t most = SIZE_MAX) {
  FaultServer::write(fd, start);
  const std::string part = "10000\r\n" + std::string(0x10000, '\0') + "\r\n";
  std::size_t sent = 0;
  while (sent < most && !server.stopping() &&
         ::send(fd, part.data(), part.size(), MSG_NOSIGNAL) > 0)
    sent += part.size();
  return sent;
}

TEST(RemoteHostile, TheLengthThatAServerNamesBuysItNoTime) {
  FaultServer server(begins_with(std::string(kLongBody)));
  auto options = options_for(server.http());
  options.times.first_byte = 200ms;
  // By its length it would have a year.
  options.times.bytes_per_second = 1;
  Host host(options);
  EXPECT_FALSE(host.fetch(7).entry);
  EXPECT_EQ(host.counters().of(RemoteFailure::too_slow), 1u) << host.all_warnings();
}

TEST(RemoteHostile, WhatIsRefusedIsNotReadToItsEnd) {
  const auto theirs = key_of_builder(2);
  const auto ours = key_of_builder(1);
  const struct {
    RemoteFailure failure;
    std::string front;
  } cases[] = {
      {RemoteFailure::damaged_object, std::string(72, 'x')},
      {RemoteFailure::untrusted_signer, object_text(7, theirs.get()).substr(0, 72)},
      {RemoteFailure::bad_signature, object_text(7, ours.get()).substr(0, kFrontBytes - 1) + '\0'},
      {RemoteFailure::wrong_object, object_text(8, ours.get()).substr(0, kFrontBytes)},
  };
  for (const auto& [failure, front] : cases) {
    SCOPED_TRACE(std::string(to_string(failure)));
    FaultServer server(begins_with(std::string(kLongBody) + front));
    Host host(options_for(server.http()));
    EXPECT_FALSE(host.fetch(7).entry);
    EXPECT_EQ(host.counters().of(failure), 1u) << host.all_warnings();
  }
}

TEST(RemoteHostile, ABodyWithoutEndIsCutOffAtTheSignedSize) {
  const auto front = object_text(7, key_of_builder(1).get()).substr(0, kFrontBytes);
  std::atomic<std::size_t> sent{0};
  FaultServer server([&](FaultServer& self, int fd) {
    if (self.read_until(fd, kEnd).empty()) return;
    FaultServer::write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf0\r\n" + front);
    sent = flood(self, fd, "\r\n");
  });
  const auto options = options_for(server.http());
  Host host(options);
  EXPECT_FALSE(host.fetch(7).entry);
  EXPECT_EQ(host.counters().of(RemoteFailure::too_large), 1u) << host.all_warnings();
  EXPECT_EQ(host.all_warnings().find(std::to_string(options.most_object_bytes)), std::string::npos)
      << host.all_warnings();
}

TEST(RemoteHostile, ARedisReplyWithoutEndIsCutOffAtTheSignedSize) {
  const std::pair<RemoteFailure, std::string> cases[] = {
      {RemoteFailure::too_large, object_text(7, key_of_builder(1).get()).substr(0, kFrontBytes)},
      {RemoteFailure::untrusted_signer, object_text(7, key_of_builder(2).get()).substr(0, 72)},
      {RemoteFailure::damaged_object, std::string(72, 'x')},
  };
  for (const auto& [failure, front] : cases) {
    SCOPED_TRACE(std::string(to_string(failure)));
    std::atomic<std::size_t> sent{0};
    {
      FaultServer server([&, start = "*2\r\n$60000000\r\n" + front](FaultServer& self, int fd) {
        if (self.read_until(fd, "lease\r\n").empty()) return;
        sent = flood(self, fd, start, std::size_t{60} << 20);
        self.stall();
      });
      Host host({.leases = server.redis(), .times = calm_times()});
      EXPECT_FALSE(host.fetch(7).entry);
      EXPECT_EQ(host.counters().of(failure), 1u) << host.all_warnings();
    }
    EXPECT_LT(sent, std::size_t{30} << 20) << "and what the system takes in advance";
  }
}

TEST(RemoteHostile, AllThatAQuestionToRedisTakesHasOneDeadline) {
  const test::TemporaryDirectory directory;
  test::write_file(directory / "password", "s3cret");
  ::chmod((directory / "password").c_str(), 0600);
  {
    FaultServer server([](FaultServer& self, int fd) {
      for (const char* end : {"s3cret\r\n", "\r\n3\r\n", "lease\r\n"}) {
        if (self.read_until(fd, end).empty()) return;
        std::this_thread::sleep_for(600ms);
        FaultServer::write(fd, *end == 'l' ? "*2\r\n$-1\r\n$-1\r\n" : "+OK\r\n");
      }
    });
    RemoteOptions options{.leases = server.redis() + "/3",
                          .lease_password = directory / "password",
                          .times = calm_times()};
    options.times.first_byte = 1s;
    Host host(options);
    host.fetch(7);
    EXPECT_EQ(host.counters().misses, 0u);
    EXPECT_EQ(host.counters().of(RemoteFailure::stalled), 1u) << host.all_warnings();
  }
  // One that answers, and takes its time, is not asked once more.
  FaultServer server([](FaultServer& self, int fd) {
    if (self.read_until(fd, "lease\r\n").empty()) return;
    FaultServer::write(fd, "*2\r\n$-1\r\n$-1\r\n");
    if (self.read_until(fd, "lease\r\n").empty()) return;
    self.drip(fd, "*2\r\n$4000\r\n" + std::string(4000, 'x'), 10ms);
  });
  RemoteOptions options{.leases = server.redis(), .times = calm_times()};
  options.times.first_byte = 1s;
  Host host(options);
  for (const int key : {7, 8}) host.fetch(key);
  EXPECT_EQ(host.counters().of(RemoteFailure::too_slow), 1u) << host.all_warnings();
  EXPECT_EQ(server.connections(), 1);
}

TEST(RemoteHostile, WhatComesUnaskedIsNotTakenForAReply) {
  FaultServer server([](FaultServer& self, int fd) {
    while (!self.read_until(fd, "\r\n").empty())
      FaultServer::write(fd, "*2\r\n$-1\r\n$-1\r\n+OK\r\n");
  });
  Host host({.leases = server.redis(), .times = calm_times()});
  for (const int key : {7, 8}) host.fetch(key);
  EXPECT_EQ(host.counters().misses, 2u);
  EXPECT_EQ(server.connections(), 2);
}

TEST(RemoteHostile, AMissIsOneHoweverMuchComesWithIt) {
  FaultServer server([&](FaultServer& self, int fd) {
    if (self.read_until(fd, kEnd).empty()) return;
    flood(self, fd, "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n");
  });
  Host host(options_for(server.http()));
  for (const int key : {7, 8}) EXPECT_FALSE(host.fetch(key).busy);
  EXPECT_EQ(host.counters().misses, 2u) << host.all_warnings();
}

TEST(RemoteHostile, AServerOfRefusedObjectsIsLeftAloneWhereTheyCostTimeAndNotWaitedFor) {
  std::atomic<int> gets{0};
  const auto refused = http_answer("200 OK", object_text(7, key_of_builder(2).get()));
  FaultServer server([&](FaultServer& self, int fd) {
    while (!self.read_until(fd, kEnd).empty()) {
      ++gets;
      if (gets == 6) std::this_thread::sleep_for(700ms);
      FaultServer::write(fd, gets == 1 ? http_answer("404 None", "") : refused);
    }
  });
  auto options = options_for(server.http());
  options.times.connect = 600ms;
  options.times.shortest_break = options.times.longest_break = 1h;
  options.times.patience = 1h;
  Host host(options);
  for (int key = 0; key < 20; ++key) EXPECT_FALSE(host.fetch(key).busy) << key;
  EXPECT_EQ(gets, 6);
  EXPECT_EQ(host.counters().misses, 1u);
  EXPECT_EQ(host.counters().of(RemoteFailure::untrusted_signer), 5u);
  EXPECT_EQ(host.counters().of(RemoteFailure::skipped), 14u);
}

TEST(RemoteHostile, AnAnswerOfAnyOldKindIsUnderstoodOrRefused) {
  const auto good = object_text(7, key_of_builder(1).get());
  const auto length = "Content-Length: " + std::to_string(good.size()) + "\r\n";
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", good.size());
  const struct {
    const char* what;
    std::string answer;
    bool is_hit;
  } cases[] = {
      {"HTTP/1.0 that ends with the connection", "HTTP/1.0 200 OK\r\n\r\n" + good, true},
      {"HTTP/1.0 with a length", "HTTP/1.0 200 OK\r\n" + length + "\r\n" + good, true},
      {"chunks, and headers after them",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(size) + good +
           "\r\n0\r\nX-After: HTTP/1.1 404\r\n\r\n",
       true},
      {"an interim answer first",
       "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + length + "\r\n" + good, true},
      // Not asked for, and so not undone: what is there is no object.
      {"gzip by name",
       "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + length + "\r\n\x1f\x8b" + good.substr(2),
       false},
      {"too short a length", "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n" + good, false},
      // libcurl takes the last; what came is signed all the same.
      {"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + length + "\r\n" + good, true},
      {"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + good, false},
      {"another place of another kind",
       "HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", false},
      {"no HTTP version", good, false},
  };
  for (const auto& [what, answer, is_hit] : cases) {
    SCOPED_TRACE(what);
    // It closes the connection after each answer.
    FaultServer server([&text = answer](FaultServer& self, int fd) {
      if (!self.read_until(fd, kEnd).empty()) FaultServer::write(fd, text);
    });
    Host host(options_for(server.http()));
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(host.fetch(7).entry.has_value(), is_hit) << host.all_warnings();
      EXPECT_EQ(host.counters().misses, 0u);
    }
    EXPECT_EQ(host.counters().hits, is_hit ? 2u : 0u);
  }
}

TEST(RemoteHostile, AServerThatAsksForItIsLeftAlone) {
  for (const char* answer :
       {"429 Too Many Requests\r\nRetry-After: 3000", "503 Slow Down\r\nRetry-After: 3000",
        "503 Slow Down\r\nRetry-After: Fri, 31 Dec 2100 23:59:59 GMT",
        "408 Request Timeout\r\nRetry-After: 3000"}) {
    SCOPED_TRACE(answer);
    FaultServer server([&](FaultServer& self, int fd) {
      while (!self.read_until(fd, kEnd).empty()) FaultServer::write(fd, http_answer(answer, ""));
    });
    auto options = options_for(server.http());
    options.times.shortest_break = 0ms;
    options.times.longest_break = 1h;
    Host host(options);
    EXPECT_FALSE(host.fetch(0).busy);
    // Longer than the break that the request's own time would make.
    std::this_thread::sleep_for(100ms);
    for (int key = 1; key < 5; ++key) EXPECT_FALSE(host.fetch(key).busy);
    EXPECT_EQ(host.counters().of(RemoteFailure::overloaded), 1u) << host.all_warnings();
    EXPECT_EQ(host.counters().of(RemoteFailure::skipped), 4u);
    EXPECT_EQ(host.counters().misses, 0u);
  }
}

TEST(RemoteHostile, AnUploadWaitsAsLongAsItIsAskedToAndIsTriedAgain) {
  std::atomic<int> puts{0};
  const auto serve = [&](std::string first) {
    return [&puts, first = std::move(first)](FaultServer& self, int fd) {
      for (;;) {
        auto request = self.read_until(fd, kEnd);
        if (request.empty()) return;
        const auto length = std::stoul(request.substr(request.find("Content-Length: ") + 16));
        while (request.size() < request.find(kEnd) + kEnd.size() + length) {
          char part[4096];
          if (!self.wait(fd)) return;
          const auto got = ::recv(fd, part, sizeof part, 0);
          if (got <= 0) return;
          request.append(part, static_cast<std::size_t>(got));
        }
        FaultServer::write(fd, puts++ == 0 ? first : http_answer("201 Created", ""));
      }
    };
  };
  const auto send_to = [&](const FaultServer& server, std::chrono::milliseconds longest) {
    auto options = options_for(server.http());
    options.signer = key_of_builder(1);
    options.times.upload = longest;
    Host host(options);
    EXPECT_TRUE(host.publish(7).ok());
    static_cast<void>(host.store.flush(kLong).ok());
    return host.counters();
  };
  {
    FaultServer server(serve(http_answer("429 Too Many", "")));
    EXPECT_EQ(send_to(server, 60s).uploaded, 1u);
    EXPECT_EQ(puts, 2);
  }
  puts = 0;
  FaultServer server(serve(http_answer("503 Slow Down", "", "Retry-After: 3000\r\n")));
  EXPECT_EQ(send_to(server, 500ms).not_uploaded, 1u) << "its time was over first";
  EXPECT_EQ(puts, 1);
}

}  // namespace
}  // namespace kiln::cache
