#include "cache/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/file.hpp"
#include "kiln/cache/digest.hpp"

namespace kiln::cache {
namespace {

constexpr mode_t kDirectoryMode = 0755;         // less the umask: nobody else ever writes
constexpr mode_t kSharedDirectoryMode = 02775;  // what is made in it belongs to the group, too
constexpr time_t kTemporaryAgeSeconds = 3600;

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};
using DirectoryStream = std::unique_ptr<DIR, CloseDirectory>;

/// Up to the last slash that separates two components; empty when there is none.
std::string parent_of(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string{} : path.substr(0, slash);
}

int make_one(const SystemCalls& calls, int base, const std::string& path, Durability durability,
             std::optional<gid_t> group) {
  if (calls.mkdirat(base, path.c_str(), kDirectoryMode) != 0) return errno == EEXIST ? 0 : errno;
  // One that cannot be shared is still of use to its maker.
  if (group && (calls.fchownat(base, path.c_str(), static_cast<uid_t>(-1), *group,
                               AT_SYMLINK_NOFOLLOW) != 0 ||
                calls.fchmodat(base, path.c_str(), kSharedDirectoryMode, 0) != 0))
    errno = 0;
  if (durability == Durability::relaxed) return 0;
  const std::string parent = parent_of(path);
  const char* const above = !parent.empty() ? parent.c_str() : path.front() == '/' ? "/" : ".";
  const Opened opened = open_at(calls, base, above, O_RDONLY | O_DIRECTORY);
  return opened.fd ? sync_directory(calls, opened.fd.get(), durability) : opened.error;
}

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(bits)))
    return bits;
  // Early in boot: names made of this can meet, and O_EXCL tells.
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_nsec) << 32 ^ static_cast<std::uint64_t>(::getpid());
}

}  // namespace

std::string dot_name(std::string_view purpose) {
  std::string name = ".";
  name += purpose;
  name += '-';
  name += Digest{.high = random_bits(), .low = 0}.hex().substr(0, 16);
  return name;
}

int make_with_parents(const SystemCalls& calls, int base, const std::string& path,
                      Durability durability, std::optional<gid_t> group) {
  const int error = make_one(calls, base, path, durability, group);
  if (error != ENOENT) return error;
  const std::string parent = parent_of(path);
  if (parent.empty()) return error;
  // What lies above a root is not the store's, and not the group's.
  const auto above_group = base == AT_FDCWD ? std::nullopt : group;
  if (const int above = make_with_parents(calls, base, parent, durability, above_group); above != 0)
    return above;
  return make_one(calls, base, path, durability, group);
}

int sync_directory(const SystemCalls& calls, int directory, Durability durability) {
  if (durability == Durability::relaxed || calls.fsync(directory) == 0) return 0;
  // Some network and FUSE file systems cannot sync a directory and order it themselves.
  return errno == EINVAL || errno == EOPNOTSUPP ? 0 : errno;
}

Listing names_in(const SystemCalls& calls, int base, const std::string& relative, DotNames dots) {
  Opened opened = open_beneath(calls, base, relative.c_str(), O_RDONLY | O_DIRECTORY);
  if (!opened.fd) return {.error = has_vanished(opened.error) ? 0 : opened.error};
  Fd again(calls.duplicate(opened.fd.get()));
  const DirectoryStream stream(again ? calls.fdopendir(again.get()) : nullptr);
  if (!stream) return {.error = errno};
  again.release();
  Listing listing{.directory = std::move(opened.fd)};
  for (;;) {
    errno = 0;  // readdir() tells the end from a failure by it alone
    const dirent* const found = calls.readdir(stream.get());
    if (found == nullptr) break;
    const std::string_view name = found->d_name;
    const bool dotted = name.front() == '.';
    if (dotted == (dots == DotNames::only) && name != "." && name != "..")
      listing.names.emplace_back(name);
  }
  if (errno != 0 && !has_vanished(errno)) return {.error = errno};
  std::sort(listing.names.begin(), listing.names.end());
  return listing;
}

Removal remove_if_unchanged(const SystemCalls& calls, int directory, const std::string& leaf,
                            const FileIdentity& examined) {
  struct stat now {};
  if (calls.fstatat(directory, leaf.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0)
    return {.error = errno == ENOENT ? 0 : errno};
  if (identity_of(now) != examined) return {};

  const bool is_directory = S_ISDIR(now.st_mode);
  if (calls.unlinkat(directory, leaf.c_str(), is_directory ? AT_REMOVEDIR : 0) == 0)
    return {.removed = true};
  const int error = errno;
  if (error == ENOENT) return {};
  if (!is_directory || (error != ENOTEMPTY && error != EEXIST)) return {.error = error};
  if (calls.renameat2(directory, leaf.c_str(), directory, dot_name("aside").c_str(), 0) == 0)
    return {.removed = true};
  return {.error = errno == ENOENT ? 0 : errno};
}

Sweep sweep_temporaries(const SystemCalls& calls, int base, const std::string& relative) {
  const Listing listing = names_in(calls, base, relative, DotNames::only);
  Sweep sweep{.error = listing.error};
  if (!listing.directory) return sweep;
  const auto now = wall_seconds(calls);
  for (const auto& name : listing.names) {
    if (!name.starts_with(".tmp-")) continue;
    struct stat status {};
    if (calls.fstatat(listing.directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    // On either side of now: the writer's clock may have been wrong. One that still writes tries
    // again.
    const auto age = now - status.st_mtim.tv_sec;
    if (age <= kTemporaryAgeSeconds && age >= -kTemporaryAgeSeconds) continue;
    if (calls.unlinkat(listing.directory.get(), name.c_str(), 0) == 0)
      ++sweep.removed;
    else if (sweep.error == 0 && !has_vanished(errno))
      sweep.error = errno;
  }
  return sweep;
}

}  // namespace kiln::cache
