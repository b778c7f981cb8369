// A content-addressed store of small binary objects: one self-contained file an entry, verified on
// every read, published whole or not at all, and locked so that one process makes an entry while
// the others do something else. One writable directory, and any number of read-only ones below it.
// It knows nothing of CUDA. FORMAT.md gives the bytes on disk.
//
// Threads: every member of Store from any thread. Processes: any number share one directory.
// A store is an aid: each failure is an ordinary value, and nothing here throws.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/log.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"

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
  /// The entry is of a lower tier: one of the read-only caches.
  bool in_lower_tier = false;
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

/// What the remote tier says of an entry.
struct Fetched {
  /// Verified, and by now in the writable directory, if that can be written.
  std::optional<Entry> entry{};
  /// Another host makes it, or a server is worth waiting for: do another key and come back.
  bool busy = false;
  /// Of who has the turn to make it; give it to publish(). May be empty then as well.
  FleetLease lease{};
};

/// What a host asks the remote tier for.
enum class Wish : unsigned char {
  make,  ///< what is not there will be made here, and the others of the fleet may wait for that
  look,  ///< only what is there: nothing will be made here
};

/// One line of a listing.
struct EntryInfo {
  Digest name{};
  std::uint64_t file_bytes = 0;
  /// When it was published or last noted as used, at most an hour late; seconds since 1970.
  std::int64_t used_seconds = 0;
  /// Why the entry is not usable; empty for a good one.
  std::string damage{};
  /// The kind of a record, by verify() and repair() alone; empty for an entry.
  std::string record_kind{};
};

/// Whose directories and files are believed, besides one's own (by the effective user) and root's.
/// What others own, or may write, is not used: it would be code of theirs that runs.
struct Trust {
  /// Users by number.
  std::vector<std::uint32_t> users{};
  /// A group by number, whose members share the store: they may write the directories, and what
  /// belongs to the group is believed whichever member owns it.
  std::optional<std::uint32_t> group{};
  /// Of bundles among the read-only caches: one of these must have signed. Who owns the file does
  /// not matter then.
  std::vector<PublicKey> signers{};
};

/// How large the writable directory may grow.
struct Limits {
  /// Of all entries. A publish that goes beyond removes a tenth of the entries that it can look at
  /// in a millisecond, those whose use is longest ago; as names are evenly spread, these stand for
  /// all. 0: no limit.
  std::uint64_t max_bytes = std::uint64_t{8} << 30;
  /// What stays free on the file system: a publish that would take of it is refused. Without a
  /// value 64 MiB, or a hundredth of the file system where that is less. Before one is refused,
  /// or fails since the disk or a quota takes no more, what is old here makes room.
  std::optional<std::uint64_t> min_free_bytes{};
  /// What was published or used so recently is not removed, even if that breaks the limit; nor is
  /// an entry whose lock is held.
  std::chrono::seconds grace{std::chrono::minutes(10)};
};

struct StoreOptions {
  /// Root of the store. Made, with its parents, at the first publish; reading never creates it.
  /// Empty: nothing can be published.
  std::filesystem::path directory{};
  /// fsync each entry and its directory before publish() returns: for image builds. Without it a
  /// power cut can tear an entry, which then counts as damaged and is made again.
  bool durable = false;
  LogSink log{};
  /// Roots of other stores, or bundles, asked in this order after `directory`. Nothing is ever
  /// written to them.
  std::vector<std::filesystem::path> read_only{};
  Trust trust{};
  Limits limits{};
  /// Whom fetch() asks. Objects must be signed by one of `trust.signers`.
  RemoteOptions remote{};
};

struct Totals {
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
  bool operator==(const Totals&) const = default;
};

/// What one Store has done so far.
struct TierCounters {
  std::string path{};
  bool read_only = false;
  std::uint64_t hits = 0;
  std::uint64_t damaged = 0;      ///< look-ups that found damage
  std::uint64_t refused = 0;      ///< look-ups and publishes that its owner or mode turned away
  std::uint64_t unavailable = 0;  ///< look-ups that failed for another reason
};
struct StoreCounters {
  std::vector<TierCounters> tiers{};  ///< in the order of look-ups
  std::uint64_t misses = 0;           ///< look-ups that no tier answered
  std::uint64_t published = 0;        ///< files that publish() made
  /// Publishes that failed, by what is in the way.
  std::uint64_t no_space = 0;        ///< ENOSPC, EDQUOT, and the floor of free space
  std::uint64_t not_writable = 0;    ///< EROFS, EACCES, EPERM, and directories not trusted
  std::uint64_t no_descriptors = 0;  ///< EMFILE, ENFILE
  std::uint64_t io_errors = 0;       ///< EIO and all others
  Totals trimmed{};                  ///< removed to keep to the limit
  std::optional<RemoteCounters> remote{};
};

/// What is in the writable directory, counted by listing it.
struct StoreSize {
  Totals entries{};
  /// The kept totals, which publishing goes by; empty where some shard was never counted.
  std::optional<Totals> kept{};
  Totals records{};
  Totals temporaries{};  ///< files that are being written, or whose writer was killed
  Totals quarantined{};
  std::optional<std::int64_t> oldest_use{};  ///< seconds since 1970
  std::optional<std::int64_t> newest_use{};
  std::optional<std::uint64_t> free_bytes{};  ///< on its file system, where that tells
};

struct TrimRequest {
  /// Removes entries until no more than this is left.
  std::optional<std::uint64_t> max_bytes{};
  /// Removes entries whose last use is longer ago. Of one that is yet to come nothing is known.
  std::optional<std::chrono::seconds> older_than{};
  /// What was used so recently stays.
  std::chrono::seconds grace{0};
  /// Removes and writes nothing, and says what would be removed.
  bool dry_run = false;
};
struct TrimReport {
  std::vector<EntryInfo> removed{};  ///< oldest use first
  Totals left{};
  std::size_t in_use = 0;  ///< entries that stay since their lock is held
};

/// What becomes of a damaged file.
enum class Repair : unsigned char {
  remove,
  quarantine,  ///< moved to v1/q of the root, for whoever wants to look at it
};

class KILN_API Store {
 public:
  /// Opens the store without touching the disk beyond looking at it.
  /// Errors  invalid_argument when no directory is named, or one is relative to nothing; for a
  ///         remote tier as check_remote().
  static Result<Store> open(StoreOptions options);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  /// The writable directory; empty when there is none.
  const std::filesystem::path& directory() const noexcept;

  StoreCounters counters() const;

  /// Looks up the entry `name`, whose key text must equal `key_text`, in the writable directory and
  /// then in the read-only ones. A damaged entry is warned about once and counts as absent; a tier
  /// that is not trusted, or cannot be read, is warned about once and passed over. Never blocks on
  /// another process, a pipe or a device.
  Found find(const Digest& name, std::string_view key_text) const;

  /// Reads the entry `name` of any tier whatever its key text is, as long as `name` is the digest
  /// of it.
  /// Errors  io_failed when it is absent or damaged; the message says which.
  Result<Entry> read(const Digest& name) const;

  /// What stands under `name` in the writable directory, whatever its key text is: an entry,
  /// damage, or nothing.
  /// Errors  as verify().
  Result<Found> look_at(const Digest& name) const;

  /// Asks the remote tier for the entry `name`, and stores what it gives. Call it while holding the
  /// key's lock, so that a host asks once, and after find() found nothing. It may take as long as
  /// the deadlines of RemoteOptions allow, and waits for no other host: while `busy`, let the lock
  /// go, do another key and come back. Neither an entry nor busy: make it. Always so without a
  /// remote tier, or in a forked child.
  Fetched fetch(const Digest& name, std::string_view key_text, Wish wish = Wish::make);

  /// Publishes an entry under the digest of `key_text`: visible whole or not at all. A good entry
  /// of that name is kept and counts as success; a damaged one is replaced. Call it while holding
  /// the key's lock where there is one. Beyond the limit it also removes a little of what is old:
  /// no publish looks through more than a small part of the store. Where there is a remote tier
  /// that takes it, the entry is sent there later on, and `lease` given up when it has arrived.
  /// Errors  io_failed with path, reason and cure, warned of once for each reason; no partial file
  ///         is left.
  Status publish(std::string_view key_text, std::string_view facts,
                 std::span<const std::byte> payload, FleetLease lease = {});

  /// Sends the entry `name` to the remote tier later on, as publish() does. Waits while there is no
  /// room for it among those that are to be sent.
  /// Errors  as read(); invalid_argument without a remote tier that takes it, and in a forked
  ///         child; io_failed when no room comes while one upload may be tried.
  Status send(const Digest& name);

  /// Whether there is a remote tier.
  bool has_remote() const noexcept;

  /// Waits until all that was to be sent has arrived.
  /// Errors  io_failed when some has not, when it takes longer than `longest`, or when `stop` asks
  ///         for an end.
  Status flush(std::chrono::milliseconds longest, const std::stop_token& stop = {});

  /// Removes the entry `name`, which its reader found to be of no use, so that the next publish
  /// takes its place. Call it while holding the key's lock. Success when there is none.
  /// Errors  io_failed with path, reason and cure.
  Status discard(const Digest& name);

  /// Tries to lock `name`; never waits. The kernel frees the lock when its holder dies.
  LockAttempt try_lock(const Digest& name);

  /// How many names are locked now, by whomever, counted up to `most`; 0 where nothing tells.
  std::size_t locked(std::size_t most) const;

  /// All entries of the writable directory in order of name, then all records in order of kind and
  /// name, each read and checked. What is deleted meanwhile is left out; a store that is not there
  /// yet holds nothing.
  /// Errors  io_failed with path, reason and cure for a directory that cannot be read, and for an
  ///         entry that could not be for want of memory or descriptors: no damage of the entry.
  Result<std::vector<EntryInfo>> verify() const;
  /// All entries in order of name, by directory listing only (`damage` stays empty).
  /// Errors  as verify().
  Result<std::vector<EntryInfo>> list() const;
  /// The names of the entries of all tiers but the remote one, in order; read() has the entries.
  /// Errors  as verify(); a tier that cannot be listed is passed over.
  Result<std::vector<Digest>> names() const;

  /// As verify(); what is damaged is removed or put aside, and reported with its damage. What
  /// somebody makes anew at this moment is left alone.
  Result<std::vector<EntryInfo>> repair(Repair how);

  /// Removes entries, those first whose use is longest ago, and puts the totals right.
  /// Errors  io_failed as verify(); or when another process trims at this moment.
  Result<TrimReport> trim(const TrimRequest& request);

  /// Removes all entries and records and whatever is in quarantine; what was removed. Entries in
  /// use stay.
  /// Errors  as trim().
  Result<Totals> clear();

  /// Removes temporary files whose writers were killed more than an hour ago; how many.
  /// Errors  as verify(), and when some cannot be removed.
  Result<std::size_t> collect_garbage();

  /// Errors  as verify().
  Result<StoreSize> measure() const;

  /// Adds `text` to the small set of texts kept under `kind` (lower-case letters only); a text that
  /// is already there is left alone. Used for facts about whole stores, such as toolchains seen.
  Status add_record(std::string_view kind, std::string_view text);
  /// The undamaged texts under `kind` in all tiers, in order of text. Damaged ones of the writable
  /// directory are removed.
  std::vector<std::string> records(std::string_view kind) const;

 private:
  struct KILN_HIDDEN State;
  friend class StoreWithCalls;  // private to cache/: opens a store over other system calls
  explicit Store(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::cache
