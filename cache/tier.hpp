// A place below the writable directory that entries are read from: another directory now, one file
// or another machine later. Nothing is ever written to it.
//
// Threads: any member from any thread. Lifetime: the Store owns its tiers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// What a tier says of one name. All members are empty where it has no such entry.
struct TierAnswer {
  std::optional<Entry> entry{};
  /// Why what is there under the name is of no use.
  std::string damage{};
  /// Why the tier could not be asked, with path and cure; the store warns of it once.
  std::string trouble{};
  /// The trouble is that the tier is not trusted.
  bool refused = false;
};

class Tier {
 public:
  virtual ~Tier() = default;

  /// Where it is, for messages and reports.
  virtual const std::string& where() const noexcept = 0;
  /// The entry `name`, verified, with the key text that is asked for; EntryDecoder does that with
  /// bytes in a private buffer.
  virtual TierAnswer find(const Digest& name, std::optional<std::string_view> key_text) const = 0;
  /// The names of its entries, in any order; none where they cannot be had.
  virtual std::vector<Digest> names() const = 0;
  /// The texts of the records of a kind, in any order. Records are an aid: ones that cannot be had
  /// are as good as none.
  virtual std::vector<std::string> records(std::string_view kind) const = 0;
};

/// The tier that `path`, absolute, names: a bundle where that is a file. What is not there is a
/// tier without entries.
std::unique_ptr<Tier> open_tier(const std::filesystem::path& path, const Trust& trust,
                                const SystemCalls& calls);

}  // namespace kiln::cache
