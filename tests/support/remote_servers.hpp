// The servers of a remote tier, on loopback: real ones from the system's packages, each in a
// directory of its own and ended with its object.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.hpp"

namespace kiln::test {

inline int loopback_socket(int port, bool listening) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const int done = listening ? ::bind(fd, any, sizeof address) : ::connect(fd, any, sizeof address);
  if (done == 0) return fd;
  ::close(fd);
  return -1;
}

inline int port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

inline int free_port() {
  const int fd = loopback_socket(0, true);
  const int port = port_of(fd);
  ::close(fd);
  return port;
}

/// A port that no other process is given meanwhile, by a socket that never listens: a server that
/// allows its address to be reused, as servers do, may listen there.
class ReservedPort {
 public:
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      number_ = port_of(fd_);
  }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  ~ReservedPort() { ::close(fd_); }
  int number() const { return number_; }

 private:
  int fd_ = -1;
  int number_ = 0;
};

inline bool answers(int port) {
  const int fd = loopback_socket(port, false);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

/// Where a program of the system is; empty when it is not installed.
inline std::string program(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/usr/sbin/"})
    if (::access((folder + name).c_str(), X_OK) == 0) return folder + name;
  return {};
}

/// A server in a process group of its own, which is killed with the object, or with us.
class ServerProcess {
 public:
  ServerProcess() = default;
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess() { kill(); }

  /// False when it does not listen on `port`, which nobody else may do, within half a minute.
  bool start(std::vector<std::string> arguments, int port) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      std::vector<char*> pointers;
      for (auto& argument : arguments) pointers.push_back(argument.data());
      pointers.push_back(nullptr);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ::setpgid(pid_, pid_);
    for (int i = 0; i < 3000; ++i) {
      if (answers(port)) return true;
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    kill();
    return false;
  }
  void signal(int number) const {
    if (pid_ > 0) ::kill(-pid_, number);
  }
  void kill() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

/// Certificates of 127.0.0.1, and of an authority of our own that signed them.
class Certificates {
 public:
  static bool can_be_made() { return !program("openssl").empty(); }

  Certificates() {
    const auto make = [&](const std::string& name, const std::string& more) {
      const auto at = (directory_ / name).string();
      const auto command = program("openssl") +
                           " req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
                           "-days 2 -subj /CN=kiln-" +
                           name + " -keyout " + at + ".key -out " + at + ".pem " + more +
                           " 2>/dev/null";
      return std::system(command.c_str()) == 0;
    };
    made_ = make("authority", "") && make("server", "-CA " + authority().string() + " -CAkey " +
                                                        (directory_ / "authority.key").string() +
                                                        " -addext subjectAltName=IP:127.0.0.1");
  }
  bool are_made() const { return made_; }
  std::filesystem::path authority() const { return directory_ / "authority.pem"; }
  std::string server() const { return (directory_ / "server.pem").string(); }
  std::string key() const { return (directory_ / "server.key").string(); }

 private:
  TemporaryDirectory directory_;
  bool made_ = false;
};

class RedisServer {
 public:
  static bool is_installed() { return !program("redis-server").empty(); }

  /// `tls`, which may be null, must live as long.
  explicit RedisServer(std::vector<std::string> more = {}, const Certificates* tls = nullptr)
      : more_(std::move(more)), tls_(tls) {
    start();
  }
  void start() {
    std::vector<std::string> arguments = {program("redis-server"),
                                          tls_ != nullptr ? "--tls-port" : "--port",
                                          std::to_string(port()),
                                          "--bind",
                                          "127.0.0.1",
                                          "--save",
                                          "",
                                          "--appendonly",
                                          "no",
                                          "--dir",
                                          directory_.path().string(),
                                          "--logfile",
                                          (directory_ / "log").string()};
    if (tls_ != nullptr)
      arguments.insert(
          arguments.end(),
          {"--port", "0", "--tls-auth-clients", "no", "--tls-cert-file", tls_->server(),
           "--tls-key-file", tls_->key(), "--tls-ca-cert-file", tls_->authority().string()});
    arguments.insert(arguments.end(), more_.begin(), more_.end());
    up_ = process_.start(std::move(arguments), port());
  }
  void stall() { process_.signal(SIGSTOP); }
  void go_on() { process_.signal(SIGCONT); }
  void kill() { process_.kill(); }
  bool is_up() const { return up_; }
  int port() const { return port_.number(); }
  /// Where its files are.
  std::filesystem::path folder() const { return directory_.path(); }
  std::string url() const {
    return (tls_ != nullptr ? "rediss" : "redis") + ("://127.0.0.1:" + std::to_string(port()));
  }

 private:
  std::vector<std::string> more_;
  const Certificates* tls_;
  TemporaryDirectory directory_;
  ReservedPort port_;
  bool up_ = false;
  ServerProcess process_;
};

/// nginx with its DAV module, as REMOTE.md shows it.
class NginxServer {
 public:
  static bool is_installed() { return !program("nginx").empty(); }

  /// `tls`, which may be null, must live as long.
  explicit NginxServer(const std::string& in_location = {}, const Certificates* tls = nullptr)
      : scheme_(tls != nullptr ? "https" : "http") {
    const auto folder = directory_.path().string();
    std::filesystem::create_directories(directory_ / "objects");
    // One process: workers of a killed master would go on, and keep the test's output open.
    std::string text = "daemon off;\nmaster_process off;\n";
    // Its workers would otherwise be somebody who cannot write here.
    if (::geteuid() == 0) text += "user root;\n";
    text += "pid " + folder + "/pid;\nerror_log " + folder + "/error.log;\n" +
            "events { worker_connections 2048; }\nhttp {\n  access_log off;\n" +
            "  keepalive_requests 100000;\n";
    for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
      text += std::string("  ") + kind + "_temp_path " + folder + "/" + kind + ";\n";
    text += "  server {\n    listen 127.0.0.1:" + std::to_string(port_.number()) + " backlog=4096" +
            (tls != nullptr ? " ssl http2;\n    ssl_certificate " + tls->server() +
                                  ";\n    ssl_certificate_key " + tls->key()
                            : "") +
            ";\n    location /kiln/ {\n      root " + folder +
            "/objects;\n      dav_methods PUT;\n      create_full_put_path on;\n"
            "      client_max_body_size 64m;\n" +
            in_location + "    }\n  }\n}\n";
    write_file(directory_ / "nginx.conf", text);
    start();
  }
  void start() {
    const auto folder = directory_.path().string();
    up_ = process_.start(
        {program("nginx"), "-e", folder + "/error.log", "-p", folder, "-c", folder + "/nginx.conf"},
        port_.number());
  }
  void stall() { process_.signal(SIGSTOP); }
  void go_on() { process_.signal(SIGCONT); }
  void kill() { process_.kill(); }
  bool is_up() const { return up_; }
  std::string url() const {
    return scheme_ + "://127.0.0.1:" + std::to_string(port_.number()) + "/kiln";
  }
  std::filesystem::path object(const std::string& name) const {
    return directory_ / ("objects/kiln/ac/" + name);
  }

 private:
  std::string scheme_;
  TemporaryDirectory directory_;
  ReservedPort port_;
  bool up_ = false;
  ServerProcess process_;
};

}  // namespace kiln::test
