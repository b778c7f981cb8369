// What a Store is made of. Private to the files that hold its members.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layout.hpp"
#include "cache/once_set.hpp"
#include "cache/remote/remote_tier.hpp"
#include "cache/root.hpp"
#include "cache/tier.hpp"
#include "cache/tree.hpp"
#include "cache/usage.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// A publish that would take of the space that stays free; beside kRefused.
inline constexpr int kBelowFloor = -2;

struct Store::State {
  struct Count {
    std::atomic<std::uint64_t> hits{0}, damaged{0}, refused{0}, unavailable{0};
  };
  struct Below {
    std::unique_ptr<Tier> tier;
    Count count;
  };

  State(StoreOptions given, const SystemCalls& calls);

  const std::filesystem::path directory;  // empty: nothing can be published
  const Durability durability;
  const Limits limits;
  const LogSink log;
  const Tree tree;  // of `directory`
  std::vector<std::unique_ptr<Below>> below;
  std::unique_ptr<RemoteTier> remote;  // null: none is named

  Count count;
  std::atomic<std::uint64_t> misses{0}, published{0};
  std::atomic<std::uint64_t> no_space{0}, not_writable{0}, no_descriptors{0}, io_errors{0};
  std::atomic<std::uint64_t> trimmed_bytes{0}, trimmed_entries{0};

  std::atomic<bool> anonymous_refused{false};  // no O_TMPFILE here
  /// For each shard, until when trimming it would come to nothing: all in it is young or in use.
  std::array<std::atomic<std::int64_t>, kShards> barren_until{};
  mutable OnceSet<1024> damage_reported;  // by name
  mutable OnceSet<64> trouble_reported;   // by errno value, or by tier
  OnceSet<512> swept;                     // by digest of the directory's relative path

  const Root& root() const noexcept { return tree.root(); }
  const SystemCalls& calls() const noexcept { return root().calls(); }
  bool has_directory() const noexcept { return !directory.empty(); }

  void warn(const std::string& message) const {
    if (log) log(LogLevel::warning, message);
  }
  void warn_of_damage(const std::string& path, const Digest& name, const std::string& damage,
                      std::string_view cure) const;
  /// Once for each reason, whatever shows it first.
  void warn_of_trouble(int error, const std::string& what) const;

  Error failed_to_store(const Place& place, int error);

  Found find(const Digest& name, std::string_view key_text);
  Status publish(const Place& place, const Digest& name, std::string_view key_text,
                 std::string_view facts, std::span<const std::byte> payload);
  Status discard(const Place& place, const Digest& name);

  /// Removes a little of what is old, on behalf of a publish under `name`, where more than `limit`
  /// bytes are held: of the entries that it has the time to look at, the oldest, so that of them no
  /// larger part is left than may be left of all.
  void trim_a_little(const Digest& name, const UsagePage& page, std::uint64_t limit);

 private:
  struct Attempt {
    int error = 0;
    bool again = false;  // the directory or the name changed under us
    bool made = false;
    UsagePage page{};  // after it
  };
  Attempt publish_once(const Place& place, const Digest& name, std::string_view key_text,
                       std::span<const std::byte> head, std::span<const std::byte> payload);
  /// Lets go of about `bytes` of what is old here, and of one entry where there is any. Errno.
  int make_room(const Digest& name, std::uint64_t bytes);
  int check_space(int folder, const Digest& name, std::uint64_t bytes);
  void count_failure(int error);
};

/// The cure where the writable directory is the trouble.
inline constexpr std::string_view kCure =
    "set the cache directory (option cache directory, or KILN_CACHE_DIR) to a writable place";

}  // namespace kiln::cache
