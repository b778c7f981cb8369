#include "bench/growth_rows.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/bare_directory.hpp"
#include "bench/rounds.hpp"
#include "bench/step_count.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using bench::fail;
using bench::must;

constexpr std::size_t kSmall = 1000;
constexpr std::size_t kLarge = 50'000;
constexpr int kCounted = 9;
constexpr int kPublishes = 20;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string key_of(std::size_t number) {
  return "key " + std::to_string(number) + std::string(3000, 'k');
}

/// A store of small entries, published in one process, which has thus swept all shards.
struct Grown {
  test::TemporaryDirectory directory;
  Store store;
  std::string payload = std::string(40 << 10, 'p');
  std::size_t number = 0;

  explicit Grown(std::size_t entries)
      : store(must(Store::open({.directory = directory / "cache", .limits = {.max_bytes = 0}}))) {
    for (std::size_t i = 0; i < entries; ++i)
      must(store.publish("fill " + std::to_string(i), {}, {}));
  }
  void publish() { must(store.publish(key_of(number++), "{}", bytes_of(payload))); }

  std::vector<double> counts(bench::Step step) {
    std::vector<double> counts;
    for (int i = 0; i < kCounted; ++i) {
      const auto count = bench::count_steps(step, [&] { publish(); });
      if (!count) return {};
      counts.push_back(*count);
      ++number;  // the child's publish is on the disk; its count is not here
    }
    return counts;
  }
};

/// Of this thread: what others do on the machine is not in it.
double processor_milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

struct Longest {
  std::vector<double> wall, processor;  // milliseconds
  double wall_most() const { return *std::max_element(wall.begin(), wall.end()); }
  double processor_most() const { return *std::max_element(processor.begin(), processor.end()); }
};

Longest publishes_of(Store& store, Grown& large) {
  Longest times;
  for (int i = 0; i < 400; ++i) {
    const std::string key = key_of(large.number++);
    const double before = processor_milliseconds();
    times.wall.push_back(
        bench::time_of([&] { must(store.publish(key, "{}", bytes_of(large.payload))); }) / 1000);
    times.processor.push_back(processor_milliseconds() - before);
  }
  return times;
}

void trim_rows(bench::Report& report, Grown& large) {
  const auto free =
      publishes_of(large.store, large);  // what the disk and the machine do by themselves
  const auto bytes = must(large.store.measure()).entries.bytes;
  Store limited = must(Store::open(
      {.directory = large.directory / "cache",
       .limits = {.max_bytes = bytes, .min_free_bytes = 0, .grace = std::chrono::seconds(0)}}));
  const auto trimming = publishes_of(limited, large);
  if (limited.counters().trimmed.entries == 0) fail("nothing was trimmed");
  const std::string title = "publish at the limit, " + std::to_string(kLarge) + " entries";
  report.add(title, "ms", trimming.wall, {"without a limit", free.wall});
  report.add("the longest of those 400", "ms", {trimming.wall_most()},
             {"without a limit", {free.wall_most()}});
  report.add("the longest in processor time", "ms", {trimming.processor_most()},
             {"without a limit", {free.processor_most()}});
}

}  // namespace

void growth_rows(bench::Report& report) {
  Grown small(kSmall);
  Grown large(kLarge);
  const std::string title = "publish of 40 KB at " + std::to_string(kLarge) + " entries";
  const std::string beside = "at " + std::to_string(kSmall);
  const struct {
    bench::Step step;
    const char* unit;
  } counted[] = {{bench::Step::system_call, "system calls"},
                 {bench::Step::instruction, "instructions"}};
  for (const auto& [step, unit] : counted) {
    const auto ours = large.counts(step);
    if (!ours.empty()) report.add(title, unit, ours, {beside, small.counts(step)});
  }
  bench::BareDirectory few(kSmall);
  bench::BareDirectory many(kLarge);
  std::vector<bench::Arm> arms = {{beside, [&] { small.publish(); }},
                                  {title, [&] { large.publish(); }},
                                  {"", [&] { few.publish(small.payload); }},
                                  {"", [&] { many.publish(large.payload); }}};
  bench::run_rounds(arms, report.rounds(), kPublishes);
  report.add(title, "us", arms[1].microseconds, {arms[0].name, arms[0].microseconds});
  report.add("three calls on plain files among as many", "us", arms[3].microseconds,
             {arms[0].name, arms[2].microseconds});
  report.add("what a publish takes longer there, round by round", "us",
             bench::differences(arms[1], arms[0]),
             {"the three calls", bench::differences(arms[3], arms[2])});
  trim_rows(report, large);
}

void tier_rows(bench::Report& report) {
  constexpr std::size_t kEntries = 500;
  const test::TemporaryDirectory directory;
  std::vector<std::filesystem::path> read_only = {directory / "upper", directory / "lowest"};
  const std::string payload(40 << 10, 'p');
  std::vector<std::string> keys;
  std::vector<Digest> names;
  for (std::size_t i = 0; i < kEntries; ++i) {
    keys.push_back(key_of(i));
    names.push_back(digest_of(keys.back()));
  }
  for (const auto& path : {directory / "own", read_only[0], read_only[1]}) {
    Store store = must(Store::open({.directory = path}));
    // All shards are there, so that a miss gets as far as it can.
    for (std::size_t i = 0; i < 2000; ++i) must(store.publish("fill " + std::to_string(i), {}, {}));
    if (path == read_only[1])
      for (const auto& key : keys) must(store.publish(key, "{}", bytes_of(payload)));
  }
  Store tiered = must(Store::open({.directory = directory / "own", .read_only = read_only}));
  Store lowest = must(Store::open({.read_only = {read_only[1]}}));
  const Digest absent = digest_of("absent");
  std::size_t turn = 0;
  std::vector<bench::Arm> arms = {{"miss through three tiers",
                                   [&] {
                                     if (tiered.find(absent, "absent").entry)
                                       fail("found what is not there");
                                   }},
                                  {"hit of 40 KB in the third tier", [&] {
                                     turn = (turn + 1) % kEntries;
                                     if (!tiered.find(names[turn], keys[turn]).entry)
                                       fail("not found");
                                   }}};
  // Without libsodium there are no bundles.
  std::optional<Store> mounted;
  if (auto signer = SecretKey::generate()) {
    std::vector<BundleSource> sources;
    for (const auto& name : names) sources.push_back({.name = name});
    must(write_bundle(lowest, std::move(sources), &*signer, directory / "bundle"));
    mounted = must(Store::open({.read_only = {directory / "bundle"},
                                .trust = {.users = {}, .signers = {signer->public_key()}}}));
    arms.push_back({"hit of 40 KB in a mounted bundle", [&] {
                      turn = (turn + 1) % kEntries;
                      if (!mounted->find(names[turn], keys[turn]).entry) fail("not found");
                    }});
  }
  bench::run_rounds(arms, report.rounds(), 100);
  for (const auto& arm : arms) report.add(arm.name, "us", arm.microseconds);

  std::vector<double> milliseconds, singles;
  for (int round = 0; round < report.rounds(); ++round) {
    milliseconds.push_back(bench::time_of([&] {
                             for (std::size_t i = 0; i < kEntries; ++i)
                               if (!lowest.find(names[i], keys[i]).entry) fail("not found");
                           }) /
                           1000);
    for (std::size_t i = 0; i < kEntries; ++i)
      singles.push_back(bench::time_of([&] { static_cast<void>(lowest.find(names[i], keys[i])); }));
  }
  report.add("500 hits of 40 KB in a read-only tier", "ms", milliseconds);
  report.add("hit of 40 KB, one by one, the 99 % quantile", "us", {bench::quantile(singles, 0.99)},
             {"the median", {bench::quantile(singles, 0.5)}});
}

}  // namespace kiln::cache
