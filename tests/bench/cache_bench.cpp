// What the store costs: a verified hit beside its floor (the same file opened, read and not looked
// at), a miss, a publish, a lock.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

constexpr int kEntries = 64;  // visited in turn, so that not one file alone is hot

std::string key_of(int number) {
  // About as long as the canonical text of a kernel without toolkit headers.
  return "key " + std::to_string(number) + std::string(3000, 'k');
}

std::string payload_of(std::int64_t size) {
  std::string payload(static_cast<std::size_t>(size), '\0');
  std::uint32_t state = 1;
  for (char& byte : payload) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return payload;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

struct Filled {
  test::TemporaryDirectory directory;
  Store store = *Store::open({.directory = directory / "cache"});
  std::string keys[kEntries];
  Digest names[kEntries];
  std::string paths[kEntries];

  explicit Filled(std::int64_t size) {
    const std::string payload = payload_of(size);
    for (int i = 0; i < kEntries; ++i) {
      keys[i] = key_of(i);
      names[i] = digest_of(keys[i]);
      const std::string hex = names[i].hex();
      paths[i] = (directory / "cache/v1/e" / hex.substr(0, 2) / hex.substr(2)).string();
      if (!store.publish(keys[i], "{}", bytes_of(payload)).ok()) std::abort();
    }
  }
};

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t kilobytes : {5, 40, 200, 1024}) benchmark->Arg(kilobytes << 10);
  benchmark->Unit(benchmark::kMicrosecond);
}

void hit_floor(benchmark::State& state) {
  const Filled filled(state.range(0));
  int i = 0;
  for (auto _ : state) {
    const int fd = ::open(filled.paths[i].c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    ::fstat(fd, &status);
    const auto size = static_cast<std::size_t>(status.st_size);
    const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
    if (::read(fd, bytes.get(), size) != status.st_size) state.SkipWithError("short read");
    benchmark::DoNotOptimize(bytes.get());
    ::close(fd);
    i = (i + 1) % kEntries;
  }
}
BENCHMARK(hit_floor)->Apply(sizes);

void hit_verified(benchmark::State& state) {
  const Filled filled(state.range(0));
  int i = 0;
  for (auto _ : state) {
    const Found found = filled.store.find(filled.names[i], filled.keys[i]);
    if (!found.entry) state.SkipWithError("not found");
    i = (i + 1) % kEntries;
  }
}
BENCHMARK(hit_verified)->Apply(sizes);

void miss(benchmark::State& state) {
  const Filled filled(100);
  const Digest name{.high = 0x0100000000000000, .low = 1};
  for (auto _ : state) benchmark::DoNotOptimize(filled.store.find(name, "absent"));
}
BENCHMARK(miss)->Unit(benchmark::kMicrosecond);

/// The three calls that a publish cannot do without, in 256 directories that are kept open.
void publish_floor(benchmark::State& state) {
  test::TemporaryDirectory directory;
  int shards[256];
  for (int i = 0; i < 256; ++i) {
    const std::string path = (directory / std::to_string(i)).string();
    ::mkdir(path.c_str(), 0777);
    shards[i] = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  const std::string payload = payload_of(state.range(0));
  int number = 0;
  for (auto _ : state) {
    const int shard = shards[number % 256];
    const int fd = ::openat(shard, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0444);
    const ssize_t written = ::write(fd, payload.data(), payload.size());
    const std::string self = "/proc/self/fd/" + std::to_string(fd);
    const std::string name = "entry " + std::to_string(number++);
    if (written != state.range(0) ||
        ::linkat(AT_FDCWD, self.c_str(), shard, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
      state.SkipWithError("not published");
    ::close(fd);
  }
  for (const int shard : shards) ::close(shard);
}
BENCHMARK(publish_floor)->Apply([](auto* benchmark) {
  sizes(benchmark);
  benchmark->Iterations(400);
});

void publish(benchmark::State& state) {
  test::TemporaryDirectory directory;
  Store store = *Store::open({.directory = directory / "cache"});
  const std::string payload = payload_of(state.range(0));
  // All shards are made and swept first: that happens once, not each time.
  for (int i = 0; i < 1000; ++i)
    if (!store.publish("fill " + std::to_string(i), {}, {}).ok()) std::abort();
  int number = 0;
  for (auto _ : state)
    if (!store.publish(key_of(number++), "{}", bytes_of(payload)).ok())
      state.SkipWithError("not published");
}
BENCHMARK(publish)->Apply([](auto* benchmark) {
  sizes(benchmark);
  benchmark->Iterations(400);
});

void publish_again(benchmark::State& state) {
  Filled filled(state.range(0));
  const std::string payload = payload_of(state.range(0));
  for (auto _ : state)
    if (!filled.store.publish(filled.keys[0], "{}", bytes_of(payload)).ok())
      state.SkipWithError("not published");
}
BENCHMARK(publish_again)->Arg(40 << 10)->Unit(benchmark::kMicrosecond);

void lock_and_unlock(benchmark::State& state) {
  Filled filled(100);
  for (auto _ : state)
    if (filled.store.try_lock(filled.names[0]).outcome != LockOutcome::held)
      state.SkipWithError("not locked");
}
BENCHMARK(lock_and_unlock)->Unit(benchmark::kMicrosecond);

void lock_that_is_busy(benchmark::State& state) {
  Filled filled(100);
  const LockAttempt holder = filled.store.try_lock(filled.names[0]);
  for (auto _ : state)
    if (filled.store.try_lock(filled.names[0]).outcome != LockOutcome::busy)
      state.SkipWithError("not busy");
}
BENCHMARK(lock_that_is_busy)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kiln::cache

BENCHMARK_MAIN();
