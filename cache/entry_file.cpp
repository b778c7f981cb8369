#include "cache/entry_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cache/entry_format.hpp"
#include "cache/trust.hpp"

namespace kiln::cache {
namespace {

// A file up to this size is read at once, on trust that it is an entry; a larger one has to show
// a sound header before memory is set aside for it.
constexpr std::uint64_t kReadAtOnceBytes = std::uint64_t{1} << 20;
constexpr time_t kStampSeconds = 3600;

std::string_view kind_of(mode_t mode) noexcept {
  if (S_ISDIR(mode)) return "is a directory";
  if (S_ISLNK(mode)) return "is a symbolic link";
  if (S_ISFIFO(mode)) return "is a pipe";
  if (S_ISSOCK(mode)) return "is a socket";
  return "is a device";
}

Examined damaged(const struct stat& status, std::string why) {
  return {.damage = std::move(why), .identity = identity_of(status)};
}

bool is_passing(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
}

Examined explain_failed_open(const SystemCalls& calls, int directory, const std::string& path,
                             int error) {
  if (has_vanished(error) || error == ENOTDIR) return {};
  if (is_passing(error)) return {.error = error};
  struct stat status {};
  if (calls.fstatat(directory, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return {.error = has_vanished(errno) || errno == ENOTDIR ? 0 : error};
  if (!S_ISREG(status.st_mode)) return damaged(status, std::string(kind_of(status.st_mode)));
  return damaged(status, "cannot be opened: " + describe_error(error));
}

/// Notes the use of an entry whose last noted one is more than an hour from now, on either side.
void refresh_stamp(const Examination& how, int fd, const struct stat& status) {
  if (how.stamps == nullptr || !how.stamps->load(std::memory_order_relaxed)) return;
  const auto age = wall_seconds(how.calls) - status.st_mtim.tv_sec;
  if (age > -kStampSeconds && age < kStampSeconds) return;
  // It is an aid and no more. Only its owner may set the time of an entry; where nothing can be
  // set, asking each time is of no use.
  if (how.calls.futimens(fd, nullptr) != 0 && errno == EROFS)
    how.stamps->store(false, std::memory_order_relaxed);
}

}  // namespace

Examined examine(const Examination& how, int directory, const std::string& path, const Digest& name,
                 std::optional<std::string_view> key_text) {
  const SystemCalls& calls = how.calls;
  const Opened opened = open_beneath(calls, directory, path.c_str(), O_RDONLY);
  if (!opened.fd) return explain_failed_open(calls, directory, path, opened.error);
  const int fd = opened.fd.get();
  struct stat status {};
  if (calls.fstat(fd, &status) != 0) return {.error = errno};
  if (!S_ISREG(status.st_mode)) return damaged(status, std::string(kind_of(status.st_mode)));
  if (auto why = distrust(status, how.trust); !why.empty()) return damaged(status, std::move(why));

  const auto file_size = static_cast<std::uint64_t>(status.st_size);
  std::array<std::byte, kHeaderBytes> start;
  std::size_t taken = 0;
  int error = 0;
  if (file_size < kHeaderBytes) return damaged(status, header_damage({}, file_size));
  if (file_size > kReadAtOnceBytes) {
    error = read_whole(calls, fd, start, taken);
    if (error == 0) {
      auto why = header_damage(std::span(start).first(taken), file_size);
      if (!why.empty()) return damaged(status, std::move(why));
    }
  }

  std::size_t got = 0;
  std::shared_ptr<std::byte[]> bytes;
  if (error == 0) {
    // new[] leaves the bytes as they are: zeroing them first would cost as much as hashing them.
    bytes.reset(new (std::nothrow) std::byte[file_size]);
    if (!bytes) return {.error = ENOMEM};
    std::copy_n(start.begin(), taken, bytes.get());
    error = read_whole(calls, fd, {bytes.get() + taken, file_size - taken}, got);
  }
  if (is_passing(error)) return {.error = error};
  if (error != 0) return damaged(status, "cannot be read: " + describe_error(error));
  if (taken + got != file_size) return damaged(status, "was cut short while it was read");

  Found found = EntryDecoder::decode(std::move(bytes), file_size, name, key_text);
  if (!found.entry) return damaged(status, std::move(found.damage));
  refresh_stamp(how, fd, status);
  if (how.durability == Durability::durable) {
    if (calls.fsync(fd) != 0) return {.error = errno};
    if (error = sync_directory(calls, directory, how.durability); error != 0)
      return {.error = error};
  }
  return {.entry = std::move(found.entry), .identity = identity_of(status)};
}

}  // namespace kiln::cache
