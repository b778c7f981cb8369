// What an HTTP server sends, byte by byte as the input has it, to the client as it is: libcurl is a
// part of it, and so is a connection of loopback.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "cache/remote/http_client.hpp"
#include "fuzz.hpp"

namespace {

using namespace kiln::cache;
using kiln::fuzz::must;

constexpr std::uint64_t kMostBytes = 2048;
// So much of a body tells how long it may be.
constexpr std::size_t kEnoughBytes = 8;
constexpr std::uint64_t kMostWanted = 512;

/// Answers each request with the input of the moment, and closes the connection.
struct Server {
  int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  int port = 0;
  std::mutex mutex;
  std::string answer;

  Server() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    must(::bind(listener, any, size) == 0 && ::listen(listener, 16) == 0 &&
             ::getsockname(listener, any, &size) == 0,
         "a server listens");
    port = ntohs(address.sin_port);
    std::thread([this] {
      for (;;) {
        const int fd = ::accept(listener, nullptr, nullptr);
        if (fd < 0) continue;
        char request[4096];
        if (::recv(fd, request, sizeof request, 0) > 0) {
          // A copy: the client may have given up, and gone on to the next one.
          const std::string text = [this] {
            const std::lock_guard lock(mutex);
            return answer;
          }();
          static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL));
        }
        // What the client has not read yet would be lost with an early end.
        ::shutdown(fd, SHUT_WR);
        while (::recv(fd, request, sizeof request, 0) > 0) continue;
        ::close(fd);
      }
    }).detach();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Server& server = *new Server;
  static const std::string url = "http://127.0.0.1:" + std::to_string(server.port) + "/kiln";
  using std::chrono::milliseconds;
  static const auto& client = *new std::unique_ptr<HttpClient>(*HttpClient::open(
      *parse_remote_url(url),
      {.objects = url,
       .most_object_bytes = kMostBytes,
       .times = {.connect = milliseconds(5000), .first_byte = milliseconds(5000)}}));
  {
    const std::lock_guard lock(server.mutex);
    server.answer.assign(reinterpret_cast<const char*>(data), size);
  }
  std::size_t seen = 0;
  const Answer got = client->get("00", [&](std::span<const std::byte> so_far) {
    must(so_far.size() > seen, "it is asked when more has come");
    seen = so_far.size();
    return Verdict{.most_bytes = seen < kEnoughBytes ? std::nullopt : std::optional(kMostWanted)};
  });
  must(got.body.size() <= (seen < kEnoughBytes ? kMostBytes : kMostWanted),
       "no more is kept than was allowed");
  must(got.failure == RemoteFailure::none || !got.yes, "a failure is no yes");
  must(!got.yes || !got.body.empty(), "success comes with a body");
  must(got.why.size() < 128, "little of what a server writes is shown");
  return 0;
}
