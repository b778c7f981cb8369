// What the remote tier costs a host: an object of 40 KB that is fetched, verified and stored
// locally, beside the bare round trip; and a server that is dead. Needs redis-server and nginx.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/rounds.hpp"
#include "cache/remote/http_client.hpp"
#include "cache/remote/redis_client.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/remote_servers.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using bench::fail;
using bench::must;

constexpr std::size_t kPayloadBytes = 40'000;
constexpr double kGoalMicroseconds = 600;
constexpr double kDeadGoalMicroseconds = 250'000;
const std::string kKey = "key" + std::string(3000, 'k');

std::shared_ptr<const SecretKey> signer() {
  static const auto key = std::make_shared<const SecretKey>(must(SecretKey::generate()));
  return key;
}

/// Half of it compresses, as about of a cubin.
std::string payload() {
  std::string bytes(kPayloadBytes, 'p');
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < bytes.size(); i += 2)
    bytes[i] = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

Store open_store(const test::TemporaryDirectory& directory, RemoteOptions remote) {
  remote.signer = signer();
  return must(Store::open({.directory = directory / "cache",
                           .trust = {.signers = {signer()->public_key()}},
                           .remote = std::move(remote)}));
}

void add_hits(bench::Report& report, const std::string& name, const RemoteOptions& remote,
              std::vector<double> bare) {
  const test::TemporaryDirectory ours;
  const Digest digest = digest_of(kKey);
  Store reader = open_store(ours, remote);
  std::vector<double> times;
  for (int i = -10; i < report.rounds(); ++i) {
    must(reader.discard(digest));
    bool hit = false;
    const double time = bench::time_of([&] { hit = reader.fetch(digest, kKey).entry.has_value(); });
    if (!hit || !reader.find(digest, kKey).entry) fail("no hit that is stored");
    if (i >= 0) times.push_back(time);
  }
  report.add("hit of 40 KB, verified and stored, " + name, "us", times,
             {"goal", {kGoalMicroseconds}});
  report.add("of it, get with nothing looked at, " + name, "us", std::move(bare));
}

/// `get` as often as there are rounds, after some that do not count.
template <class Get>
std::vector<double> times_of(const bench::Report& report, const Get& get) {
  std::vector<double> times;
  for (int i = -10; i < report.rounds(); ++i) {
    bool yes = false;
    const double time = bench::time_of([&] { yes = get(); });
    if (!yes) fail("nothing to get");
    if (i >= 0) times.push_back(time);
  }
  return times;
}

/// A port that takes no further connection and refuses none: what a dead host looks like.
class DeadPort {
 public:
  DeadPort() : listener_(test::loopback_socket(0, true)) {
    ::listen(listener_, 0);
    for (int i = 0; i < 4; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<std::uint16_t>(port()));
      static_cast<void>(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address));
      waiting_.push_back(fd);
    }
  }
  ~DeadPort() {
    for (const int fd : waiting_) ::close(fd);
    ::close(listener_);
  }
  int port() const { return test::port_of(listener_); }

 private:
  int listener_;
  std::vector<int> waiting_;
};

void add_dead(bench::Report& report, const std::string& name, const RemoteOptions& remote) {
  std::vector<double> first, later;
  for (int i = 0; i < 5; ++i) {
    const test::TemporaryDirectory directory;
    Store store = open_store(directory, remote);
    const auto ask = [&](int key) {
      const std::string text = kKey + std::to_string(key);
      return bench::time_of([&] {
        if (store.fetch(digest_of(text), text).busy) fail("a dead server is waited for");
      });
    };
    first.push_back(ask(0));
    for (int key = 1; key <= 20; ++key) later.push_back(ask(key));
  }
  report.add("dead server (" + name + "), the first to ask", "us", first,
             {"limit", {kDeadGoalMicroseconds}});
  report.add("dead server (" + name + "), during the break", "us", later);
}

int run(int argc, char** argv) {
  bench::Report report("remote", argc, argv, 200);
  if (!test::RedisServer::is_installed() || !test::NginxServer::is_installed())
    fail("redis-server and nginx are needed: apt-get install redis-server nginx-light");
  const test::RedisServer redis;
  const test::NginxServer nginx;
  if (!redis.is_up() || !nginx.is_up()) fail("a server does not start");
  const RemoteOptions http{.objects = nginx.url()};
  const RemoteOptions small{.leases = redis.url()};

  const test::TemporaryDirectory theirs;
  for (const auto& remote : {http, small}) {
    Store maker = open_store(theirs, remote);
    const auto bytes = payload();
    must(maker.publish(kKey, "{}", std::as_bytes(std::span(bytes))));
    must(maker.flush(std::chrono::seconds(5)));
  }
  const auto name = must(sha256_of(std::as_bytes(std::span(kKey)))).hex();
  const auto client = must(HttpClient::open(must(parse_remote_url(nginx.url())), http));
  const auto redis_client = must(RedisClient::open(must(parse_remote_url(redis.url())), small));
  const auto over_http = times_of(report, [&] { return client->get(name).yes; });
  add_hits(report, "nginx", http, over_http);
  add_hits(report, "redis", small,
           times_of(report, [&] { return redis_client->look(name).object.yes; }));

  const DeadPort dead;
  const auto port = std::to_string(dead.port());
  add_dead(report, "http, no answer", {.objects = "http://127.0.0.1:" + port + "/kiln"});
  add_dead(report, "redis, no answer", {.leases = "redis://127.0.0.1:" + port});
  const auto closed = std::to_string(test::free_port());
  add_dead(report, "http, refused", {.objects = "http://127.0.0.1:" + closed + "/kiln"});
  return report.finish();
}

}  // namespace
}  // namespace kiln::cache

int main(int argc, char** argv) {
  return kiln::cache::run(argc, argv);
}
