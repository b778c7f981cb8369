// One entry on disk: opened, read and checked. Reading never writes, creates, locks or waits.
#pragma once

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

/// Examines `path` below `directory`; see EntryDecoder for `name` and `key_text`. With
/// Durability::durable a good entry is on the disk itself when this returns.
Examined examine(const SystemCalls& calls, int directory, const std::string& path,
                 const Digest& name, std::optional<std::string_view> key_text,
                 Durability durability = Durability::relaxed);

}  // namespace kiln::cache
