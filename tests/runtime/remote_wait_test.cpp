// How a Runtime waits for a fleet, against a server of leases that says what the test wants.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "kiln/cache/signing.hpp"
#include "support/fault_server.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

constexpr const char* kNothing = "*2\r\n$-1\r\n$-1\r\n";
constexpr const char* kAnotherHasIt = "*2\r\n$-1\r\n$5\r\nother\r\n";

class RemoteWait : public RuntimeFixture {
 protected:
  /// Answers each look with `look`; counts the leases that it grants.
  FaultServer::Serve serving(std::string look) {
    return [this, look = std::move(look)](FaultServer& server, int fd) {
      for (;;) {
        char part[4096];
        if (!server.wait(fd)) return;
        const auto got = ::recv(fd, part, sizeof part, 0);
        if (got <= 0) return;
        const std::string_view command(part, static_cast<std::size_t>(got));
        const bool looks = command.find("MGET") != std::string_view::npos;
        if (command.find("\nNX\r") != std::string_view::npos) ++leases_;
        FaultServer::write(fd, looks ? look : "+OK\r\n");
      }
    };
  }
  RuntimeOptions options_with(const FaultServer& server) {
    auto with = options();
    with.remote.leases = server.redis();
    with.remote.accept_anyone = with.remote.send_unsigned = true;
    with.remote.times.connect = with.remote.times.first_byte = std::chrono::seconds(10);
    return with;
  }

  std::atomic<int> leases_{0};
};

TEST_F(RemoteWait, AnotherHostIsWaitedForUpToTheLimit) {
  FaultServer server(serving(kAnotherHasIt));
  auto impatient = options_with(server);
  impatient.longest_wait = std::chrono::milliseconds(100);
  auto runtime = open(impatient);
  const auto artifact = compile(runtime, "extern \"C\" __global__ void entry() {}");
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_EQ(warnings_with("longer than the wait limit"), 1u);
  EXPECT_EQ(leases_, 0);
}

TEST_F(RemoteWait, OneProcessOfAHostAsksForAllOfThem) {
  int urls[2];
  ASSERT_EQ(::pipe2(urls, O_CLOEXEC), 0);
  // Started before there are threads; each waits for its URL.
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back(start_child([&] {
      char url[64] = {};
      if (::read(urls[0], url, sizeof url) != sizeof url) return 2;
      auto with = options();
      with.remote.leases = url;
      with.remote.accept_anyone = with.remote.send_unsigned = true;
      with.remote.times.connect = with.remote.times.first_byte = std::chrono::seconds(10);
      auto runtime = open(with);
      return compile(runtime, "extern \"C\" __global__ void entry(char) {}") ? 0 : 1;
    }));
  std::atomic<int> looks{0}, asking{0}, leases{0};
  FaultServer server([&](FaultServer& self, int fd) {
    for (bool asked = false;;) {
      char part[4096];
      if (!self.wait(fd)) return;
      const auto got = ::recv(fd, part, sizeof part, 0);
      if (got <= 0) return;
      const std::string_view command(part, static_cast<std::size_t>(got));
      const bool is_look = command.find("MGET") != std::string_view::npos;
      if (command.find("\nNX\r") != std::string_view::npos) ++leases;
      if (is_look && !std::exchange(asked, true)) ++asking;
      // Another host has it for some looks, so that all come to wait for it.
      FaultServer::write(fd, !is_look ? "+OK\r\n" : ++looks < 7 ? kAnotherHasIt : kNothing);
    }
  });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    char url[64] = {};
    server.redis().copy(url, sizeof url - 1);
    EXPECT_EQ(::write(urls[1], url, sizeof url), static_cast<ssize_t>(sizeof url));
  }
  for (const pid_t rank : ranks) EXPECT_EQ(wait_for(rank), 0);
  EXPECT_EQ(asking, 1) << "connections that asked for the object";
  EXPECT_EQ(leases, 1);
  ::close(urls[0]);
  ::close(urls[1]);
}

TEST_F(RemoteWait, WithoutACompilerNoLeaseIsTaken) {
  ASSERT_TRUE(compile("extern \"C\" __global__ void entry() {}"));  // the cache knows a toolchain
  FaultServer server(serving(kNothing));
  auto without = options_with(server);
  without.nvrtc = directory_ / "nowhere";
  {
    auto runtime = open(without);
    EXPECT_FALSE(compile(runtime, "extern \"C\" __global__ void entry(int) {}"));
    EXPECT_EQ(leases_, 0);
  }
  auto runtime = open(options_with(server));
  EXPECT_TRUE(compile(runtime, "extern \"C\" __global__ void entry(int) {}"));
  EXPECT_EQ(leases_, 1) << "the control: with one it is";
}

TEST_F(RemoteWait, ARemoteCacheWithoutADirectoryIsWarnedOf) {
  FaultServer server(serving(kNothing));
  auto without = options_with(server);
  without.cache_directory.clear();
  open(without);
  EXPECT_EQ(warnings_with("KILN_CACHE_DIR"), 1u);
}

}  // namespace
}  // namespace kiln::test
