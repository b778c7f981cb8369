// One entry on disk: opened, read and checked. Reading never creates, locks or waits, and writes
// nothing but the time of a use where it is asked to.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// What stands under a name. Nothing does when all members are empty.
struct Examined {
  std::optional<Entry> entry{};
  /// Why what is there is of no use; `identity` then says what was looked at.
  std::string damage{};
  FileIdentity identity{};
  /// The errno value that kept us from looking; it says nothing about the entry.
  int error = 0;
};

/// How entries are looked at.
struct Examination {
  const SystemCalls& calls;
  const Trust& trust;
  /// With Durability::durable a good entry is on the disk itself afterwards.
  Durability durability = Durability::relaxed;
  /// Note the use of a good entry by the time of its file, at most once an hour. Cleared where that
  /// is not allowed.
  std::atomic<bool>* stamps = nullptr;
};

/// Examines `path` below `directory`; see EntryDecoder for `name` and `key_text`.
Examined examine(const Examination& how, int directory, const std::string& path, const Digest& name,
                 std::optional<std::string_view> key_text);

}  // namespace kiln::cache
