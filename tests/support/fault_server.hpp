// A server on loopback that does to each connection what the test says: for answers that no real
// server gives.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/remote_servers.hpp"

namespace kiln::test {

class FaultServer {
 public:
  /// Does its work on one connection, whose descriptor is closed afterwards; it is gone when
  /// `stopping()`.
  using Serve = std::function<void(FaultServer&, int fd)>;

  explicit FaultServer(Serve serve) : serve_(std::move(serve)) {
    listener_ = loopback_socket(0, true);
    ::listen(listener_, 64);
    port_ = port_of(listener_);
    thread_ = std::thread([this] { accept_all(); });
  }
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;
  ~FaultServer() {
    stopping_ = true;
    thread_.join();
    for (auto& thread : connections_) thread.join();
    ::close(listener_);
  }

  std::string http() const { return "http://127.0.0.1:" + std::to_string(port_) + "/kiln"; }
  std::string redis() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  bool stopping() const { return stopping_; }
  int connections() const { return accepted_; }

  /// Waits for something to read; false once the server stops or the client is gone.
  bool wait(int fd) const {
    for (pollfd ready{.fd = fd, .events = POLLIN, .revents = 0}; !stopping_;)
      if (::poll(&ready, 1, 10) > 0) return true;
    return false;
  }
  /// Reads up to `end`, such as an empty line; empty when the client went away.
  std::string read_until(int fd, std::string_view end) const {
    std::string text;
    while (text.find(end) == std::string::npos) {
      char part[4096];
      if (!wait(fd)) return {};
      const auto got = ::recv(fd, part, sizeof part, 0);
      if (got <= 0) return {};
      text.append(part, static_cast<std::size_t>(got));
    }
    return text;
  }
  static void write(int fd, std::string_view text) {
    while (!text.empty()) {
      const auto sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// Sends one byte after another with a pause between.
  void drip(int fd, std::string_view text, std::chrono::milliseconds pause) const {
    for (std::size_t i = 0; i < text.size() && !stopping_; ++i) {
      if (::send(fd, text.data() + i, 1, MSG_NOSIGNAL) != 1) return;
      std::this_thread::sleep_for(pause);
    }
  }
  void stall() const {
    while (!stopping_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  /// The connection ends with RST, and what is under way may be lost.
  static void reset(int fd) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

 private:
  void accept_all() {
    while (!stopping_) {
      pollfd ready{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 10) <= 0) continue;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      ++accepted_;
      connections_.emplace_back([this, fd] {
        serve_(*this, fd);
        ::close(fd);
      });
    }
  }

  Serve serve_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> accepted_{0};
  std::thread thread_;
  std::vector<std::thread> connections_;  // by accept_all() until it is joined
};

/// A whole answer of HTTP.
inline std::string http_answer(std::string_view status, std::string_view body,
                               std::string_view more = {}) {
  return "HTTP/1.1 " + std::string(status) + "\r\n" + std::string(more) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace kiln::test
