// What an HTTP server may do wrong: each time the host goes on within its deadline, nothing wrong
// is loaded, and the failure is counted under its own name.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zstd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/remote/http_client.hpp"
#include "cache/remote/object.hpp"
#include "remote_fixture.hpp"
#include "tests/support/fault_server.hpp"

namespace kiln::cache {
namespace {

using test::FaultServer;
using test::http_answer;

/// Answers each request of a connection alike.
FaultServer::Serve always(std::string answer) {
  return [answer = std::move(answer)](FaultServer& server, int fd) {
    while (!server.read_until(fd, kEnd).empty()) FaultServer::write(fd, answer);
  };
}

struct HttpFault {
  RemoteFailure failure;
  FaultServer::Serve serve;
};

std::vector<HttpFault> http_faults() {
  const auto ours = key_of_builder(1);
  const std::string good = object_text(7, ours.get());
  std::string grafted = good;
  const std::string other = object_text(8, ours.get());
  grafted.replace(72 + 104, 64, other, 72 + 104, 64);  // the seal
  std::string bomb = good.substr(0, 72 + 104 + 64);
  const std::string zeros(std::size_t{40} << 20, '\0');
  std::string frame(ZSTD_compressBound(zeros.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), zeros.data(), zeros.size(), 1));
  bomb += frame;

  const auto once = [](auto serve) {
    return [serve](FaultServer& server, int fd) {
      if (!server.read_until(fd, kEnd).empty()) serve(server, fd);
    };
  };
  const std::string whole = http_answer("200 OK", good);
  std::string many_headers;
  for (int i = 0; i < 700; ++i) many_headers += "X-Number: " + std::string(90, 'n') + "\r\n";
  return {
      {RemoteFailure::stalled, once([](FaultServer& server, int) { server.stall(); })},
      {RemoteFailure::stalled, once([](FaultServer& server, int fd) {
         FaultServer::write(fd, "HTTP/1.1 103 Soon\r\nLink: here\r\n\r\n");
         server.stall();
       })},
      {RemoteFailure::too_slow, once([whole](FaultServer& server, int fd) {
         const auto body = whole.find(kEnd) + kEnd.size();
         FaultServer::write(fd, std::string_view(whole).substr(0, body));
         server.drip(fd, std::string_view(whole).substr(body), 10ms);
       })},
      {RemoteFailure::too_slow, once([](FaultServer& server, int fd) {
         FaultServer::write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
         server.stall();
       })},
      {RemoteFailure::reset, once([](FaultServer&, int fd) { FaultServer::reset(fd); })},
      {RemoteFailure::reset, once([](FaultServer&, int) {})},
      {RemoteFailure::empty_body, always(http_answer("200 OK", ""))},
      {RemoteFailure::short_body, once([whole](FaultServer&, int fd) {
         FaultServer::write(fd, std::string_view(whole).substr(0, whole.size() - 1));
       })},
      {RemoteFailure::server_error, always(http_answer("500 Broken", "broken"))},
      {RemoteFailure::server_error, always(http_answer("507 Full", ""))},
      {RemoteFailure::access_denied, always(http_answer("401 Who", ""))},
      {RemoteFailure::access_denied, always(http_answer("403 No", ""))},
      {RemoteFailure::redirected,
       always(http_answer("302 Found", "", "Location: http://127.0.0.1:1/secret=1\r\n"))},
      {RemoteFailure::bad_status, always(http_answer("204 Nothing", ""))},
      {RemoteFailure::bad_status, always(http_answer("206 Part", good))},
      {RemoteFailure::bad_reply, always("no HTTP at all\r\n\r\n")},
      {RemoteFailure::too_large, always("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")},
      {RemoteFailure::too_large, always(http_answer("200 OK", good, many_headers))},
      {RemoteFailure::too_large, once([](FaultServer& server, int fd) {
         while (!server.stopping()) FaultServer::write(fd, "HTTP/1.1 103 Soon\r\n\r\n");
       })},
      {RemoteFailure::wrong_object, always(http_answer("200 OK", other))},
      {RemoteFailure::bad_signature, always(http_answer("200 OK", grafted))},
      {RemoteFailure::untrusted_signer,
       always(http_answer("200 OK", object_text(7, key_of_builder(2).get())))},
      {RemoteFailure::unsigned_object, always(http_answer("200 OK", object_text(7, nullptr)))},
      {RemoteFailure::expands_too_far, always(http_answer("200 OK", bomb))},
      {RemoteFailure::damaged_object, always(http_answer("200 OK", "<html>hello</html>"))},
      {RemoteFailure::damaged_object, always(http_answer("200 OK", good.substr(0, 300)))},
  };
}

TEST(RemoteHttp, EachFaultIsCountedUnderItsOwnNameAndIsNoMiss) {
  try_all(http_faults(), [](const HttpFault& fault) {
    const auto failure = fault.failure;
    SCOPED_TRACE(std::string(to_string(failure)));
    FaultServer server(fault.serve);
    Host host(options_for(server.http(), times_for(failure)));
    const auto started = std::chrono::steady_clock::now();
    const auto fetched = host.fetch(7);
    const auto took = std::chrono::steady_clock::now() - started;
    EXPECT_FALSE(fetched.entry);
    EXPECT_FALSE(fetched.busy) << "nobody waits for a server that never served";
    EXPECT_LT(took, 20s) << "the deadlines of a hundred bytes, with room for a slow machine";
    const auto counters = host.counters();
    EXPECT_EQ(counters.of(failure), 1u) << host.all_warnings();
    EXPECT_EQ(counters.hits, 0u);
    EXPECT_NE(host.all_warnings().find(to_string(failure)), std::string::npos);
    EXPECT_EQ(host.all_warnings().find("secret"), std::string::npos);
    // What it would have been goes its way.
    EXPECT_TRUE(host.publish(7).ok());
    EXPECT_TRUE(host.finds(7));
  });
}

TEST(RemoteHttp, AnAbsentObjectIsAMissAndNoFailure) {
  FaultServer server(always(http_answer("404 None", "<html>none</html>")));
  Host host(options_for(server.http()));
  EXPECT_FALSE(host.fetch(7).entry);
  const auto counters = host.counters();
  EXPECT_EQ(counters.misses, 1u);
  for (const auto count : counters.failures) EXPECT_EQ(count, 0u);
  EXPECT_EQ(host.all_warnings(), "");
  // It is remembered for a while: in memory, so that another process asks again.
  EXPECT_FALSE(host.fetch(7).entry);
  EXPECT_EQ(host.counters().misses, 1u);
}

TEST(RemoteHttp, AResetAtAnyByteIsAFailure) {
  const std::string whole =
      http_answer("200 OK", object_text(7, key_of_builder(1).get()).substr(0, 400));
  std::atomic<std::size_t> cut{0};
  FaultServer server([&](FaultServer& self, int fd) {
    if (self.read_until(fd, kEnd).empty()) return;
    FaultServer::write(fd, std::string_view(whole).substr(0, cut));
    FaultServer::reset(fd);
  });
  const auto client =
      *HttpClient::open(*parse_remote_url(server.http()), options_for(server.http()));
  for (cut = 0; cut < whole.size(); ++cut) {
    const Answer answer = client->get("00");
    EXPECT_NE(answer.failure, RemoteFailure::none) << cut;
    EXPECT_FALSE(answer.yes) << cut;
  }
  EXPECT_TRUE(client->get("00").yes);
}

TEST(RemoteHttp, ADeadServerIsAskedOnceInAWhile) {
  RemoteTimes times = times_for(RemoteFailure::stalled);
  times.shortest_break = times.longest_break = 1h;
  FaultServer server([](FaultServer& self, int) { self.stall(); });
  Host host(options_for(server.http(), times));
  for (int key = 0; key < 50; ++key) EXPECT_FALSE(host.fetch(key).busy);
  EXPECT_EQ(server.connections(), 1);
  EXPECT_EQ(host.counters().of(RemoteFailure::stalled), 1u);
  EXPECT_EQ(host.counters().of(RemoteFailure::skipped), 49u);
}

TEST(RemoteHttp, NoOtherProgramInheritsAConnection) {
  std::atomic<int> inherited{0}, ours{0};
  FaultServer server([&](FaultServer& self, int fd) {
    self.read_until(fd, kEnd);
    for (int other = 0; other < 1024; ++other) {
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      if (::getpeername(other, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
          ntohs(peer.sin_port) != self.port())
        continue;
      ++ours;
      if ((::fcntl(other, F_GETFD) & FD_CLOEXEC) == 0) ++inherited;
    }
    FaultServer::write(fd, http_answer("404 None", ""));
  });
  Host host(options_for(server.http()));
  host.fetch(7);
  EXPECT_EQ(host.counters().misses, 1u);
  EXPECT_EQ(ours, 1);
  EXPECT_EQ(inherited, 0);
}

TEST(RemoteHttp, CredentialsComeFromFilesAndAreNeverShown) {
  const test::TemporaryDirectory directory;
  const auto file = [&](const char* name, std::string_view text, mode_t mode = 0600) {
    test::write_file(directory / name, text);
    ::chmod((directory / name).c_str(), mode);
    return directory / name;
  };
  std::string seen;
  std::mutex mutex;
  FaultServer server([&](FaultServer& self, int fd) {
    const auto request = self.read_until(fd, kEnd);
    const std::lock_guard lock(mutex);
    seen = request;
    FaultServer::write(fd, http_answer("403 No", ""));
  });
  auto options = options_for(server.http());
  options.bearer_token = file("token", "tok3n\r\n");
  options.headers = file("headers", "# ours\nX-Api-Key: k3y\n");
  Host host(options);
  host.fetch(7);
  {
    const std::lock_guard lock(mutex);
    EXPECT_NE(seen.find("Authorization: Bearer tok3n\r\n"), std::string::npos) << seen;
    EXPECT_NE(seen.find("X-Api-Key: k3y\r\n"), std::string::npos) << seen;
  }
  EXPECT_EQ(host.all_warnings().find("tok3n"), std::string::npos);
  EXPECT_EQ(host.all_warnings().find("k3y"), std::string::npos);

  options = options_for(server.http());
  options.netrc = file("netrc", "machine 127.0.0.1 login me password s3cret\n");
  Host with_netrc(options);
  with_netrc.fetch(7);
  {
    const std::lock_guard lock(mutex);
    EXPECT_NE(seen.find("Authorization: Basic bWU6czNjcmV0\r\n"), std::string::npos) << seen;
  }

  const auto refused = [&](RemoteOptions wrong) {
    const auto store = Store::open({.directory = directory / "cache",
                                    .trust = {.signers = {key_of_builder(1)->public_key()}},
                                    .remote = std::move(wrong)});
    EXPECT_FALSE(store);
    return store ? std::string() : store.error().message();
  };
  options.netrc.clear();
  for (const mode_t mode : {0644u, 0444u, 0660u}) {
    options.bearer_token = file("token", "tok3n\n", mode);
    EXPECT_NE(refused(options).find("chmod"), std::string::npos) << mode;
  }
  // As Kubernetes mounts a secret: by links, and with the mode that was asked for.
  for (const mode_t mode : {0400u, 0440u}) {
    std::filesystem::create_directories(directory / "..1");
    file("..1/token", "tok3n\n", mode);
    for (const auto& [link, to] : {std::pair("..data", "..1"), std::pair("link", "..data/token")})
      if (!std::filesystem::is_symlink(directory / link))
        std::filesystem::create_symlink(to, directory / link);
    options.bearer_token = directory / "link";
    EXPECT_TRUE(HttpClient::open(*parse_remote_url(server.http()), options)) << mode;
  }
  for (const std::string_view text :
       {std::string_view("tok3n\r\nX-Evil: 1\n"), std::string_view("tok3n\r\n\nmore"),
        std::string_view("tok3n\0", 6), std::string_view("\r\n"), std::string_view()}) {
    options.bearer_token = file("token", text);
    EXPECT_NE(refused(options).find("not one line"), std::string::npos);
    EXPECT_EQ(refused(options).find("tok3n"), std::string::npos);
  }
  options.bearer_token = directory / "pipe";
  ASSERT_EQ(::mkfifo(options.bearer_token.c_str(), 0600), 0);
  EXPECT_NE(refused(options).find("no regular file"), std::string::npos);
  options.bearer_token = directory / "none";
  EXPECT_NE(refused(options).find("none"), std::string::npos);
  options.bearer_token.clear();
  options.headers = file("headers", "s3cret\n");
  EXPECT_EQ(refused(options).find("s3cret"), std::string::npos);
}

TEST(RemoteHttp, WhatTheEnvironmentNamesSeesNothing) {
  FaultServer proxy(always(http_answer("404 None", "")));
  FaultServer server(always(http_answer("404 None", "")));
  const auto url = "http://127.0.0.1:" + std::to_string(proxy.port());
  constexpr const char* kNames[] = {"http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"};
  for (const char* name : kNames) ::setenv(name, url.c_str(), 1);
  Host host(options_for(server.http()));
  host.fetch(7);
  FaultServer redis([](FaultServer& self, int fd) {
    while (!self.read_until(fd, "\r\n").empty()) FaultServer::write(fd, "*2\r\n$-1\r\n$-1\r\n");
  });
  Host leased({.leases = redis.redis(), .times = calm_times()});
  leased.fetch(7);
  for (const char* name : kNames) ::unsetenv(name);
  EXPECT_EQ(proxy.connections(), 0);
  EXPECT_EQ(server.connections(), 1);
  EXPECT_EQ(host.counters().misses, 1u);
  EXPECT_EQ(leased.counters().misses, 1u);
}

// The token is for the server that is named, and for no other that this one names.
TEST(RemoteHttp, NobodyIsSentOnWithTheToken) {
  const test::TemporaryDirectory directory;
  test::write_file(directory / "token", "tok3n");
  ::chmod((directory / "token").c_str(), 0600);
  FaultServer other(always(http_answer("404 None", "")));
  for (const char* status : {"301 M", "302 F", "303 S", "307 T", "308 P", "300 C", "401 Who"}) {
    FaultServer server(always(http_answer(
        status, "", "WWW-Authenticate: Basic\r\nLocation: " + other.http() + "/ac/x\r\n")));
    auto options = options_for(server.http());
    options.bearer_token = directory / "token";
    Host host(options);
    EXPECT_FALSE(host.fetch(7).entry);
    EXPECT_EQ(server.connections(), 1) << status;
  }
  EXPECT_EQ(other.connections(), 0);
}

TEST(RemoteUrl, IsTakenApartAndNeverShowsASecret) {
  const auto url = *parse_remote_url("https://cache.example:8443/team/kiln/");
  EXPECT_TRUE(url.keeps_objects && url.tls);
  EXPECT_EQ(url.server(), "cache.example:8443");
  EXPECT_EQ(url.path, "/team/kiln");
  const auto redis = *parse_remote_url("redis://reader@[::1]/3");
  EXPECT_EQ(redis.user, "reader");
  EXPECT_EQ(redis.server(), "[::1]:6379");
  EXPECT_EQ(redis.path, "/3");
  for (const std::string_view wrong :
       {"https://me:s3cret@host/kiln", "https://s3cret@host/kiln", "redis://me:s3cret@host",
        "https://host/kiln?token=s3cret", "https://host/kiln#s3cret", "ftp://s3cret@host",
        "https://host/a@s3cret@b?s3cret", "me:s3cret@host"}) {
    const auto parsed = parse_remote_url(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code(), ErrorCode::invalid_argument);
    EXPECT_EQ(parsed.error().message().find("s3cret"), std::string::npos) << wrong;
  }
  for (const std::string_view wrong : {"",
                                       "http://",
                                       "http://:80",
                                       "http://host:0",
                                       "http://host:x",
                                       "http://ho st/",
                                       "redis://host/x",
                                       "http://host\r\n/",
                                       "http://host/a\r\nX-Evil: 1",
                                       "http://host/a%0d%0ab",
                                       "http://[::1",
                                       "http://::1/x",
                                       "http://[::1]x/",
                                       "http://[host]/",
                                       "http://a;b/",
                                       "http://host:80:81/",
                                       "http://host:80 /",
                                       "unix:///run/redis.sock",
                                       "redis:/run/redis.sock",
                                       "file:///etc/passwd",
                                       "http:host",
                                       "//host/x"})
    EXPECT_FALSE(parse_remote_url(wrong)) << wrong;
  RemoteOptions listed;
  ASSERT_TRUE(listed.add(" http://host/x ").ok());
  EXPECT_EQ(listed.objects, "http://host/x");
}

TEST(RemoteOptions, NeedSignersOrALoudNo) {
  const test::TemporaryDirectory directory;
  std::string warned;
  StoreOptions options{.directory = directory / "cache",
                       .log = [&](LogLevel, std::string_view text) { warned += text; },
                       .remote = {.objects = "http://127.0.0.1:1/kiln"}};
  const auto refused = Store::open(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
  options.remote.accept_anyone = true;
  EXPECT_TRUE(Store::open(options));
  EXPECT_NE(warned.find("WITHOUT SIGNATURES"), std::string::npos);
  RemoteOptions both;
  EXPECT_TRUE(both.add("http://a/x").ok() && both.add("valkey://b").ok());
  EXPECT_FALSE(both.add("https://c/x").ok());
}

}  // namespace
}  // namespace kiln::cache
