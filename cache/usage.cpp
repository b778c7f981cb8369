#include "cache/usage.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/little_endian.hpp"
#include "kiln/cache/digest.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kSlotBytes = 16;
constexpr std::size_t kCountAt = 8;
constexpr std::size_t kCheckAt = 12;
constexpr mode_t kUsageMode = 0644;  // less the umask
constexpr mode_t kSharedUsageMode = 0664;
constexpr int kOpenAttempts = 4;
// A holder that is stopped in its few microseconds is no reason to wait for long.
constexpr int kAttempts = 2500;
constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000};

using Slot = std::array<std::byte, kSlotBytes>;

off_t slot_at(std::size_t shard) noexcept {
  return static_cast<off_t>(shard * kSlotBytes);
}

/// Of the slot's other bytes and its number; never zero, so that a hole in the file is no total.
std::uint32_t check_of(const std::byte* slot, std::size_t shard) noexcept {
  std::array<std::byte, kCheckAt + 1> checked;
  std::memcpy(checked.data(), slot, kCheckAt);
  checked[kCheckAt] = static_cast<std::byte>(shard);
  return static_cast<std::uint32_t>(digest_of(checked).low) | 1;
}

Slot encode(const Totals& totals, std::size_t shard) noexcept {
  Slot slot{};
  put(slot.data(), totals.bytes);
  put(slot.data() + kCountAt, static_cast<std::uint32_t>(totals.entries));
  put(slot.data() + kCheckAt, check_of(slot.data(), shard));
  return slot;
}

std::optional<Totals> decode(const std::byte* slot, std::size_t shard) noexcept {
  if (get<std::uint32_t>(slot + kCheckAt) != check_of(slot, shard)) return std::nullopt;
  return Totals{.bytes = get<std::uint64_t>(slot), .entries = get<std::uint32_t>(slot + kCountAt)};
}

UsagePage read_page(const SystemCalls& calls, int file) {
  std::array<std::byte, kShards * kSlotBytes> bytes{};
  ssize_t count = 0;
  do count = calls.pread(file, bytes.data(), bytes.size(), 0);
  while (count < 0 && errno == EINTR);
  UsagePage page;
  const auto whole = count < 0 ? 0 : static_cast<std::size_t>(count) / kSlotBytes;
  for (std::size_t shard = 0; shard < whole; ++shard)
    page.shards[shard] = decode(bytes.data() + shard * kSlotBytes, shard);
  return page;
}

bool is_regular(const SystemCalls& calls, int file) {
  struct stat status {};
  return calls.fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

/// The file of the totals to write into, from the descriptor of a shard, which is at hand.
Fd open_to_write(const SystemCalls& calls, int directory, std::optional<std::uint32_t> group) {
  constexpr const char* kPath = "../../usage";
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    Opened opened = open_at(calls, directory, kPath, kFlags);
    if (opened.fd) {
      struct stat status {};
      if (calls.fstat(opened.fd.get(), &status) != 0) return {};
      // Under another name it is somebody else's file: that stays as it is, and ours begins anew.
      if (S_ISREG(status.st_mode) && status.st_nlink <= 1) return std::move(opened.fd);
    } else if (opened.error != ENOENT && opened.error != ELOOP && opened.error != EISDIR) {
      return {};
    }
    const bool in_the_way = opened.error != ENOENT;
    const int kind = opened.error == EISDIR ? AT_REMOVEDIR : 0;
    if (in_the_way && calls.unlinkat(directory, kPath, kind) != 0 && errno != ENOENT) return {};
    opened = open_at(calls, directory, kPath, kFlags | O_CREAT | O_EXCL, kUsageMode);
    if (opened.fd && group) calls.fchmod(opened.fd.get(), kSharedUsageMode);
    if (opened.error != EEXIST) return std::move(opened.fd);
  }
  return {};
}

}  // namespace

Totals UsagePage::sum() const noexcept {
  Totals sum;
  for (const auto& totals : shards) {
    if (!totals) continue;
    sum.bytes += totals->bytes;
    sum.entries += totals->entries;
  }
  return sum;
}

UsagePage read_usage(const SystemCalls& calls, int base) {
  const Opened opened = open_beneath(calls, base, "v1/usage", O_RDONLY);
  if (!opened.fd || !is_regular(calls, opened.fd.get())) return {};
  return read_page(calls, opened.fd.get());
}

Totals count_shard(const SystemCalls& calls, int directory, std::size_t shard) {
  Totals totals;
  const std::string digits = shard_digits(shard);
  const Listing listing = names_in(calls, directory, ".");
  for (const auto& leaf : listing.names) {
    struct stat status {};
    if (!Digest::from_hex(digits + leaf) ||
        calls.fstatat(listing.directory.get(), leaf.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    totals.bytes += static_cast<std::uint64_t>(status.st_size);
    ++totals.entries;
  }
  return totals;
}

ShardTotals::ShardTotals(const SystemCalls& calls, int directory, std::size_t shard,
                         std::optional<std::uint32_t> group)
    : calls_(&calls), shard_(shard) {
  Fd opened = open_to_write(calls, directory, group);
  if (!opened) return;
  int error = EAGAIN;
  for (int attempt = 0; attempt < kAttempts && error == EAGAIN; ++attempt) {
    if (attempt > 0) ::nanosleep(&kPause, nullptr);
    error = LockedByte::try_lock_file(calls, opened, slot_at(shard), lock_);
  }
  if (error == EAGAIN) return;
  if (!lock_) unlocked_ = std::move(opened);
  page_ = read_page(calls, file());
}

void ShardTotals::set(Totals totals) {
  if (file() < 0) return;
  page_.shards[shard_] = totals;
  const Slot slot = encode(totals, shard_);
  const off_t at = slot_at(shard_);
  if (exceeds_file_size_limit(static_cast<std::size_t>(at) + slot.size())) return;
  // A total that cannot be kept is one that is counted again: nothing to say of it.
  while (calls_->pwrite(file(), slot.data(), slot.size(), at) < 0 && errno == EINTR) continue;
}

void ShardTotals::add(const Totals& more) {
  if (!are_known()) return;
  const Totals& now = *page_.shards[shard_];
  set({.bytes = now.bytes + more.bytes, .entries = now.entries + more.entries});
}

void ShardTotals::remove(const Totals& less) {
  if (!are_known() || less == Totals{}) return;
  const Totals& now = *page_.shards[shard_];
  set({.bytes = now.bytes - std::min(now.bytes, less.bytes),
       .entries = now.entries - std::min(now.entries, less.entries)});
}

}  // namespace kiln::cache
