// What the tests of the remote tier share: keys to sign with, entries whose right content is known,
// and stores as hosts have them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cache/remote/object.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/remote_servers.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {

using namespace std::chrono_literals;

inline std::shared_ptr<const SecretKey> key_of_builder(unsigned char number) {
  std::array<std::byte, 32> seed{};
  seed[0] = static_cast<std::byte>(number);
  return std::make_shared<const SecretKey>(*SecretKey::from_seed(seed));
}

inline std::string key_text_of(int number) {
  return "key " + std::to_string(number) + std::string(500, 'k');
}

/// Half of it compresses.
inline std::string payload_of_key(int number, std::size_t size = 6'000) {
  std::string payload(size, 'p');
  std::uint32_t state = static_cast<std::uint32_t>(number) + 1;
  for (std::size_t i = 0; i < size; i += 2)
    payload[i] = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return payload;
}

inline std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline bool is_right(const Entry& entry, int number, std::size_t size = 6'000) {
  const auto payload = entry.payload();
  const std::string wanted = payload_of_key(number, size);
  return entry.key_text() == key_text_of(number) && entry.facts() == "{}" &&
         std::equal(payload.begin(), payload.end(), as_bytes_of(wanted).begin(),
                    as_bytes_of(wanted).end());
}

inline std::string wire_name_of(std::string_view key_text) {
  return sha256_of(as_bytes_of(key_text))->hex();
}

/// Deadlines of a server that is to keep them, however slow the machine.
inline RemoteTimes calm_times() {
  return {.connect = 30s, .first_byte = 30s, .patience = 0ms, .lease = 60s};
}

/// What ends the head of a request or of an answer.
inline constexpr std::string_view kEnd = "\r\n\r\n";

/// The object of the key `number`, as a server keeps it.
inline std::string object_text(int number, const SecretKey* signer) {
  const auto object =
      *encode_object(key_text_of(number), "{}", as_bytes_of(payload_of_key(number)), {}, signer);
  return {reinterpret_cast<const char*>(object.data()), object.size()};
}

inline RemoteOptions options_for(std::string url, RemoteTimes times = calm_times()) {
  return {.objects = std::move(url), .times = times};
}

/// Those of a server that is to miss one: only that one is short, so that a test can wait for it. A
/// client of HTTP has the time to connect for its first byte as well; one of Redis has not, and its
/// first byte is to be in time where the rest is too slow.
inline RemoteTimes times_for(RemoteFailure failure, bool is_http = true) {
  auto times = calm_times();
  if (failure == RemoteFailure::stalled && is_http) times.connect = 1s;
  if (failure == RemoteFailure::stalled || failure == RemoteFailure::too_slow)
    times.first_byte = 100ms;
  if (failure == RemoteFailure::too_slow && !is_http) times.first_byte = 1s;
  return times;
}

/// Tries all at once, each on a thread of its own, since they do little but wait.
template <class Cases, class Try>
void try_all(const Cases& cases, const Try& try_one) {
  std::vector<std::thread> threads;
  for (const auto& one : cases) threads.emplace_back([&] { try_one(one); });
  for (auto& thread : threads) thread.join();
}

/// More than any of these tests takes on a slow machine, and less than for ever.
constexpr std::chrono::seconds kLong{60};

/// Waits for what another thread or process does.
template <class Condition>
bool soon(Condition&& condition) {
  for (const auto end = std::chrono::steady_clock::now() + kLong;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(5ms))
    if (condition()) return true;
  return false;
}

/// One host: a local cache of its own and a remote tier, and what it warned of.
struct Host {
  explicit Host(RemoteOptions remote,
                std::vector<PublicKey> signers = {key_of_builder(1)->public_key()})
      : store(*Store::open({.directory = directory / "cache",
                            .log =
                                [this](LogLevel, std::string_view text) {
                                  const std::lock_guard lock(mutex);
                                  warnings.emplace_back(text);
                                },
                            .trust = {.signers = std::move(signers)},
                            .remote = std::move(remote)})) {}

  Fetched fetch(int number) {
    const auto text = key_text_of(number);
    return store.fetch(digest_of(text), text);
  }
  bool finds(int number) const {
    const auto text = key_text_of(number);
    const Found found = store.find(digest_of(text), text);
    return found.entry && is_right(*found.entry, number);
  }
  Status publish(int number, FleetLease lease = {}, std::size_t size = 6'000) {
    return store.publish(key_text_of(number), "{}", as_bytes_of(payload_of_key(number, size)),
                         std::move(lease));
  }
  RemoteCounters counters() const { return *store.counters().remote; }
  std::string all_warnings() {
    const std::lock_guard lock(mutex);
    std::string all;
    for (const auto& warning : warnings) all += warning + '\n';
    return all;
  }

  test::TemporaryDirectory directory;
  std::mutex mutex;
  std::vector<std::string> warnings;
  Store store;
};

}  // namespace kiln::cache

/// Leaves the test where the servers are not installed: aloud, and never where CI runs it.
#define KILN_REQUIRES_SERVERS()                                                                \
  if (!kiln::test::RedisServer::is_installed() || !kiln::test::NginxServer::is_installed()) {  \
    if (std::getenv("KILN_REQUIRE_SERVERS") != nullptr)                                        \
      FAIL() << "redis-server and nginx are needed: apt-get install redis-server nginx-light"; \
    GTEST_SKIP() << "NOT TESTED: no redis-server or nginx (apt-get install redis-server "      \
                    "nginx-light)";                                                            \
  }                                                                                            \
  static_assert(true)
