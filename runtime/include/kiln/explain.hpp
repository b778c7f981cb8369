// Why a request is not served from the cache: what Runtime::explain() tells.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/key_text.hpp"

namespace kiln {

/// The entry whose key differs least from the one that was asked for.
struct NearestEntry {
  cache::Digest key{};
  /// First: the request; second: the entry.
  std::vector<KeyDifference> differences{};
};

struct Explanation {
  cache::Digest key{};      ///< that the request has
  std::string key_text{};   ///< what it is made of
  std::string toolchain{};  ///< that the key was made with
  bool found = false;       ///< in the store, and it would be used
  /// Which check refused the entry that the store has under this key; empty when none did.
  std::string refusal{};
  /// Why no entry can ever serve this request; empty when one can.
  std::string never{};
  std::size_t entries = 0;  ///< in the store, good ones
  /// Where it was neither found nor refused, and the store holds an entry at all.
  std::optional<NearestEntry> nearest{};
};

}  // namespace kiln
