// The names of the tree on disk; FORMAT.md explains them. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kiln/cache/digest.hpp"

namespace kiln::cache {

inline constexpr const char* kVersionDirectory = "v1";
inline constexpr const char* kEntries = "v1/e";
inline constexpr const char* kRecords = "v1/r";
inline constexpr const char* kQuarantine = "v1/q";
inline constexpr std::size_t kShards = 256;
inline constexpr std::size_t kShardDigits = 2;
inline constexpr std::size_t kMaxKindSize = 64;

/// Where an entry or a record stands, relative to the root.
struct Place {
  std::string directory;
  std::string leaf;
  std::string path() const { return directory + '/' + leaf; }
  /// Records are not counted against the limits: there are a few of them, and they are small.
  bool is_entry() const noexcept { return directory.starts_with(kEntries); }
};

inline Place entry_place(const Digest& name) {
  const std::string hex = name.hex();
  return {.directory = std::string(kEntries) + '/' + hex.substr(0, kShardDigits),
          .leaf = hex.substr(kShardDigits)};
}

inline Place record_place(std::string_view kind, const Digest& name) {
  return {.directory = std::string(kRecords) + '/' + std::string(kind), .leaf = name.hex()};
}

inline std::size_t shard_of(const Digest& name) noexcept {
  return static_cast<std::size_t>(name.high >> 56);
}

/// The two digits of a shard, which are the name of its directory.
inline std::string shard_digits(std::size_t shard) {
  return Digest{.high = std::uint64_t{shard} << 56, .low = 0}.hex().substr(0, kShardDigits);
}

inline bool is_shard(const std::string& name) {
  constexpr std::size_t kLeafDigits = 30;
  return name.size() == kShardDigits && Digest::from_hex(name + std::string(kLeafDigits, '0'));
}

inline bool is_kind(std::string_view kind) noexcept {
  return !kind.empty() && kind.size() <= kMaxKindSize &&
         std::all_of(kind.begin(), kind.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

}  // namespace kiln::cache
