// The server example, without a GPU: what its endpoints say before and after it is ready, and that
// a signal ends it.
#ifdef KILN_HAS_SERVER
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "support/cuda_driver.hpp"
#include "support/process.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

using Json = nlohmann::json;

class Server : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDriver::open().has_value())
      GTEST_SKIP() << "the fake compiler makes no code for the GPU of this machine";
    int out[2];
    ASSERT_EQ(::pipe(out), 0);
    process_ = ::fork();
    ASSERT_GE(process_, 0);
    if (process_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::setenv("KILN_CACHE_DIR", (directory_ / "cache").c_str(), 1);
      ::setenv("KILN_NVRTC", KILN_FAKE_NVRTC, 1);
      ::setenv("KILN_ARCH", "sm_90", 1);
      ::setenv("KILN_FAKE_NVRTC_GATE", gate_.c_str(), 1);
      ::execl(KILN_EXAMPLES_DIRECTORY "/kiln_server", "kiln_server", "0", nullptr);
      ::_exit(127);
    }
    ::close(out[1]);
    FILE* const stream = ::fdopen(out[0], "r");
    ASSERT_NE(stream, nullptr);
    ASSERT_EQ(std::fscanf(stream, "listening on port %d", &port_), 1);
    std::fclose(stream);
    client_.emplace("127.0.0.1", port_);
  }
  void TearDown() override {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  /// The status and the body.
  std::pair<int, std::string> get(const char* path) {
    const auto response = client_->Get(path);
    return response ? std::pair(response->status, response->body) : std::pair(0, std::string());
  }

  TemporaryDirectory directory_;
  std::filesystem::path gate_ = directory_ / "gate";
  pid_t process_ = -1;
  int port_ = 0;
  std::optional<httplib::Client> client_;
};

TEST_F(Server, IsReadyWhenItsFirstGroupIsAndAnswersAllTheWhile) {
  EXPECT_EQ(get("/healthz").first, 200);
  const auto [status, body] = get("/readyz");
  EXPECT_EQ(status, 503);
  EXPECT_EQ(Json::parse(body)["ready"], false) << body;
  EXPECT_NE(get("/metrics").second.find("kiln_compiles_total 0\n"), std::string::npos);

  write_file(gate_, "");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (get("/readyz").first != 200 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  while (Json::parse(get("/readyz").second)["done"] != 8 &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto ready = Json::parse(get("/readyz").second);
  EXPECT_EQ(ready["ready"], true) << ready;
  EXPECT_EQ(ready["requested"], 8) << ready;
  EXPECT_NE(get("/metrics").second.find("kiln_compiles_total 8\n"), std::string::npos)
      << get("/metrics").second;
  EXPECT_EQ(get("/healthz").first, 200);

  const auto [refused, why] = get("/scale?factor=3&values=1,2");
  EXPECT_EQ(refused, 503);
  EXPECT_EQ(Json::parse(why)["code"], "no_device") << why;
  EXPECT_EQ(get("/scale?factor=3&values=1,b").first, 400);
  EXPECT_EQ(get("/scale?factor=9&values=1").first, 400);
}

TEST_F(Server, RefusesAPortThatAnotherOneListensOn) {
  const auto result =
      run_process({.arguments = {KILN_EXAMPLES_DIRECTORY "/kiln_server", std::to_string(port_)},
                   .environment = {{"KILN_NVRTC", KILN_FAKE_NVRTC}},
                   .longest = std::chrono::seconds(10)});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_NE(result.err.find("cannot be listened on"), std::string::npos) << result.err;
}

TEST_F(Server, EndsAtSigtermInTheMiddleOfItsWarmupWithAConnectionOpen) {
  client_->set_keep_alive(true);
  EXPECT_EQ(get("/readyz").first, 503);
  ASSERT_EQ(::kill(process_, SIGTERM), 0);
  int ended = 0;
  ASSERT_EQ(::waitpid(process_, &ended, 0), process_);
  process_ = -1;
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
}

TEST_F(Server, EndsAtSigtermWhileARequestComesByteByByte) {
  const int slow = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(slow, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const auto send = [&](std::string_view bytes) {
    return ::send(slow, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  };
  ASSERT_TRUE(send("GET /healthz HTTP/1.1\r\nHost: server\r\n"));
  EXPECT_EQ(get("/healthz").first, 200);
  ASSERT_EQ(::kill(process_, SIGTERM), 0);
  int ended = 0;
  pid_t gone = 0;
  // Another line before the last one is too long ago for the server.
  for (int i = 0; i < 300 && gone == 0; ++i) {
    send("X-Line: 1\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    gone = ::waitpid(process_, &ended, WNOHANG);
  }
  ::close(slow);
  ASSERT_EQ(gone, process_) << "it still waits for a request that has no end";
  process_ = -1;
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
}

TEST_F(Server, KeepsNoBodyThatNobodyAskedFor) {
  const auto response = client_->Post("/healthz", std::string(1 << 20, 'x'), "text/plain");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 413);
  EXPECT_EQ(get("/healthz").first, 200);
}

}  // namespace
}  // namespace kiln::test
#endif
