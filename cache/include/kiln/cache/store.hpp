// A content-addressed store of small binary objects: one self-contained file an entry, verified on
// every read, published whole or not at all, and locked so that one process makes an entry while
// the others do something else. It knows nothing of CUDA. FORMAT.md gives the bytes on disk.
//
// Threads: every member of Store from any thread. Processes: any number share one directory.
// A store is an aid: each failure is an ordinary value, and nothing here throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/log.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

/// A verified entry. The views point into a private buffer that never changes; copies share it.
class KILN_API Entry {
 public:
  /// The canonical key text that the entry was published under.
  std::string_view key_text() const noexcept;
  /// The publisher's facts about the payload (JSON; opaque here).
  std::string_view facts() const noexcept;
  /// Starts at any address: copy out what needs alignment.
  std::span<const std::byte> payload() const noexcept;

 private:
  friend class EntryDecoder;
  std::shared_ptr<const std::byte[]> bytes_;
  std::size_t key_offset_ = 0, key_size_ = 0;
  std::size_t facts_offset_ = 0, facts_size_ = 0;
  std::size_t payload_offset_ = 0, payload_size_ = 0;
};

/// What a lookup found. `entry` and `damage` are both empty when there is no such entry.
struct Found {
  std::optional<Entry> entry;
  /// Why a file that is there was not used ("payload digest differs"); it counts as absent and is
  /// replaced by the next publish under its name.
  std::string damage;
};

/// A lock on one key, held until destruction. An empty lock holds nothing.
class KILN_API KeyLock {
 public:
  KeyLock() noexcept = default;
  KeyLock(KeyLock&& other) noexcept;
  KeyLock& operator=(KeyLock&& other) noexcept;
  ~KeyLock();
  void release() noexcept;

 private:
  friend class Store;
  struct KILN_HIDDEN Held;
  std::shared_ptr<Held> held_;
};

enum class LockOutcome : unsigned char {
  held,         ///< ours: nobody else makes this entry now
  busy,         ///< another thread or process makes it: do another key and come back
  unavailable,  ///< locks do not work in this directory: go on without (warned about once)
};

struct LockAttempt {
  LockOutcome outcome = LockOutcome::unavailable;
  KeyLock lock{};
};

/// One line of a listing.
struct EntryInfo {
  Digest name{};
  std::uint64_t file_bytes = 0;
  /// Why the entry is not usable; empty for a good one.
  std::string damage{};
  /// The kind of a record, by verify() alone; empty for an entry.
  std::string record_kind{};
};

struct StoreOptions {
  /// Root of the store. Made, with its parents, at the first publish; reading never creates it.
  std::filesystem::path directory{};
  /// fsync each entry and its directory before publish() returns: for image builds. Without it a
  /// power cut can tear an entry, which then counts as damaged and is made again.
  bool durable = false;
  LogSink log{};
};

class KILN_API Store {
 public:
  /// Opens the store without touching the disk beyond looking at it.
  /// Errors  invalid_argument when the directory is empty or relative to nothing.
  static Result<Store> open(StoreOptions options);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  const std::filesystem::path& directory() const noexcept;

  /// Looks up the entry `name`, whose key text must equal `key_text`. A damaged entry is warned
  /// about once and counts as absent. Never blocks on another process, a pipe or a device.
  Found find(const Digest& name, std::string_view key_text) const;

  /// Reads the entry `name` whatever its key text is, as long as `name` is the digest of it.
  /// Errors  io_failed when it is absent or damaged; the message says which.
  Result<Entry> read(const Digest& name) const;

  /// What stands under `name`, whatever its key text is: an entry, damage, or nothing.
  /// Errors  as verify().
  Result<Found> look_at(const Digest& name) const;

  /// Publishes an entry under the digest of `key_text`: visible whole or not at all. A good entry
  /// of that name is kept and counts as success; a damaged one is replaced. Call it while holding
  /// the key's lock where there is one.
  /// Errors  io_failed with path, reason and cure; no partial file is left.
  Status publish(std::string_view key_text, std::string_view facts,
                 std::span<const std::byte> payload);

  /// Removes the entry `name`, which its reader found to be of no use, so that the next publish
  /// takes its place. Call it while holding the key's lock. Success when there is none.
  /// Errors  io_failed with path, reason and cure.
  Status discard(const Digest& name);

  /// Tries to lock `name`; never waits. The kernel frees the lock when its holder dies.
  LockAttempt try_lock(const Digest& name);

  /// All entries in order of name, then all records in order of kind and name, each read and
  /// checked. What is deleted meanwhile is left out; a store that is not there yet holds nothing.
  /// Errors  io_failed with path, reason and cure for a directory that cannot be read, and for an
  ///         entry that could not be for want of memory or descriptors: no damage of the entry.
  Result<std::vector<EntryInfo>> verify() const;
  /// All entries in order of name, by directory listing only (`damage` stays empty). Errors  as
  /// verify().
  Result<std::vector<EntryInfo>> list() const;

  /// Adds `text` to the small set of texts kept under `kind` (lower-case letters only); a text that
  /// is already there is left alone. Used for facts about whole stores, such as toolchains seen.
  Status add_record(std::string_view kind, std::string_view text);
  /// The undamaged texts under `kind`, in order of text.
  std::vector<std::string> records(std::string_view kind) const;

 private:
  struct KILN_HIDDEN State;
  friend class StoreWithCalls;  // private to cache/: opens a store over other system calls
  explicit Store(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::cache
