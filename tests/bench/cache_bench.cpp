// What the store costs: a verified hit beside its floor (the same file opened, read and not looked
// at), a publish beside the three calls that it cannot do without, a miss, a lock; and how that
// depends on what is in the store.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/bare_directory.hpp"
#include "bench/growth_rows.hpp"
#include "bench/rounds.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using bench::fail;
using bench::must;

constexpr std::size_t kEntries = 64;  // visited in turn, so that not one file alone is hot
constexpr int kPublishes = 20;        // of each kind a round

std::string key_of(std::size_t number) {
  // About as long as the canonical text of a kernel without toolkit headers.
  return "key " + std::to_string(number) + std::string(3000, 'k');
}

std::string payload_of(std::size_t size) {
  std::string payload(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : payload) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return payload;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

struct Filled {
  test::TemporaryDirectory directory;
  Store store = must(Store::open({.directory = directory / "cache"}));
  std::string payload;
  std::string keys[kEntries];
  Digest names[kEntries];
  std::string paths[kEntries];
  std::size_t turn = 0;

  explicit Filled(std::size_t size) : payload(payload_of(size)) {
    for (std::size_t i = 0; i < kEntries; ++i) {
      keys[i] = key_of(i);
      names[i] = digest_of(keys[i]);
      const std::string hex = names[i].hex();
      paths[i] = (directory / "cache/v1/e" / hex.substr(0, 2) / hex.substr(2)).string();
      must(store.publish(keys[i], "{}", bytes_of(payload)));
    }
  }

  std::size_t next() { return turn = (turn + 1) % kEntries; }
};

void read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  ::fstat(fd, &status);
  const auto size = static_cast<std::size_t>(status.st_size);
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  if (::read(fd, bytes.get(), size) != status.st_size) fail("short read of " + path);
  ::close(fd);
}

void hit_rows(bench::Report& report, std::size_t kilobytes) {
  Filled filled(kilobytes << 10);
  std::vector<bench::Arm> arms = {
      {"open, fstat, read, close", [&] { read_file(filled.paths[filled.next()]); }},
      {"verified", [&] {
         const auto i = filled.next();
         if (!filled.store.find(filled.names[i], filled.keys[i]).entry) fail("not found");
       }}};
  bench::run_rounds(arms, report.rounds(), kEntries);
  report.add("hit, payload of " + std::to_string(kilobytes) + " KB", "us", arms[1].microseconds,
             {arms[0].name, arms[0].microseconds});
}

void publish_rows(bench::Report& report, std::size_t kilobytes) {
  const test::TemporaryDirectory directory;
  Store store = must(Store::open({.directory = directory / "cache"}));
  bench::BareDirectory bare(1000);
  const std::string payload = payload_of(kilobytes << 10);
  // All shards are made, swept and used first: that happens once, not each time.
  for (int i = 0; i < 1000; ++i) must(store.publish("fill " + std::to_string(i), {}, {}));
  std::size_t number = 0;
  std::vector<bench::Arm> arms = {
      {"O_TMPFILE, write, linkat", [&] { bare.publish(payload); }},
      {"publish", [&] { must(store.publish(key_of(number++), "{}", bytes_of(payload))); }}};
  bench::run_rounds(arms, report.rounds(), kPublishes);
  report.add("publish, payload of " + std::to_string(kilobytes) + " KB", "us", arms[1].microseconds,
             {arms[0].name, arms[0].microseconds});
}

void other_rows(bench::Report& report) {
  Filled filled(40 << 10);
  const Digest busy = digest_of("busy");
  const LockAttempt holder = filled.store.try_lock(busy);
  if (holder.outcome != LockOutcome::held) fail("not locked");
  std::vector<bench::Arm> arms = {
      {"miss",
       [&] {
         if (filled.store.find({.high = 0x0100000000000000, .low = 1}, "absent").entry)
           fail("found what is not there");
       }},
      {"publish of an entry that is there, 40 KB",
       [&] { must(filled.store.publish(filled.keys[0], "{}", bytes_of(filled.payload))); }},
      {"lock and unlock",
       [&] {
         if (filled.store.try_lock(filled.names[0]).outcome != LockOutcome::held)
           fail("not locked");
       }},
      {"lock that another holds", [&] {
         if (filled.store.try_lock(busy).outcome != LockOutcome::busy) fail("not busy");
       }}};
  bench::run_rounds(arms, report.rounds(), 100);
  for (const auto& arm : arms) report.add(arm.name, "us", arm.microseconds);
}

int run(int argc, char** argv) {
  bench::Report report("cache", argc, argv, 41);
  for (const std::size_t kilobytes : {5u, 40u, 200u, 1024u}) hit_rows(report, kilobytes);
  for (const std::size_t kilobytes : {5u, 40u, 200u, 1024u}) publish_rows(report, kilobytes);
  other_rows(report);
  tier_rows(report);
  growth_rows(report);
  return report.finish();
}

}  // namespace
}  // namespace kiln::cache

int main(int argc, char** argv) {
  return kiln::cache::run(argc, argv);
}
