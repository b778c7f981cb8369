// What the fault harnesses share: how long they run, and entries whose right content is known.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

namespace fs = std::filesystem;

/// As many as CI has time for, fewer where a sanitizer slows each down, or all of them:
/// tests/run.sh --full sets KILN_FULL.
inline int times(int in_ci, int in_full) {
#ifdef KILN_SANITIZE
  in_ci = in_ci / 3;
#endif
  return std::getenv("KILN_FULL") != nullptr ? in_full : in_ci;
}

inline std::string key_of(unsigned index) {
  return "key " + std::to_string(index);
}

/// The one payload that is right for a key; from a few hundred bytes to some kilobytes.
inline std::string payload_of(unsigned index) {
  std::string payload(200 + index * 7919 % 6000, static_cast<char>('a' + index % 26));
  return payload + key_of(index);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline Status publish(Store& store, unsigned index) {
  return store.publish(key_of(index), "{}", bytes_of(payload_of(index)));
}

enum class Seen : unsigned char { absent, right, wrong };

/// An entry that is whole and wrong, or a file that is neither whole nor absent, is wrong.
inline Seen look(const Store& store, unsigned index) {
  const std::string key = key_of(index);
  const Found found = store.find(digest_of(key), key);
  if (!found.damage.empty()) return Seen::wrong;
  if (!found.entry) return Seen::absent;
  const auto payload = found.entry->payload();
  const std::string right = payload_of(index);
  return payload.size() == right.size() &&
                 std::memcmp(payload.data(), right.data(), right.size()) == 0
             ? Seen::right
             : Seen::wrong;
}

}  // namespace kiln::cache
