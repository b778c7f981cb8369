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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/file.hpp"
#include "kiln/cache/digest.hpp"

namespace kiln::cache {
namespace {

constexpr mode_t kDirectoryMode = 0777;  // less the umask
constexpr time_t kTemporaryAgeSeconds = 3600;

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};
using DirectoryStream = std::unique_ptr<DIR, CloseDirectory>;

struct OpenedStream {
  DirectoryStream stream{};
  int error = 0;
};

OpenedStream open_stream(const SystemCalls& calls, int base, const std::string& relative) {
  Opened opened = open_beneath(calls, base, relative.c_str(), O_RDONLY | O_DIRECTORY);
  if (!opened.fd) return {.error = opened.error};
  DirectoryStream stream(::fdopendir(opened.fd.get()));
  if (!stream) return {.error = errno};
  opened.fd.release();
  return {.stream = std::move(stream)};
}

/// Up to the last slash that separates two components; empty when there is none.
std::string parent_of(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string{} : path.substr(0, slash);
}

int make_one(const SystemCalls& calls, int base, const std::string& path, Durability durability) {
  if (calls.mkdirat(base, path.c_str(), kDirectoryMode) != 0) return errno == EEXIST ? 0 : errno;
  if (durability == Durability::relaxed) return 0;
  const std::string parent = parent_of(path);
  const char* const above = !parent.empty() ? parent.c_str() : path.front() == '/' ? "/" : ".";
  const Opened opened = open_at(calls, base, above, O_RDONLY | O_DIRECTORY);
  return opened.fd ? sync_directory(calls, opened.fd.get(), durability) : opened.error;
}

int make_with_parents(const SystemCalls& calls, int base, const std::string& path,
                      Durability durability) {
  const int error = make_one(calls, base, path, durability);
  if (error != ENOENT) return error;
  const std::string parent = parent_of(path);
  if (parent.empty()) return error;
  if (const int above = make_with_parents(calls, base, parent, durability); above != 0)
    return above;
  return make_one(calls, base, path, durability);
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

Opened open_root(const SystemCalls& calls, const std::string& root) {
  return open_at(calls, AT_FDCWD, root.c_str(), O_PATH | O_DIRECTORY);
}

Opened open_for_writing(const SystemCalls& calls, const std::string& root,
                        const std::string& relative, Durability durability) {
  Opened base = open_at(calls, AT_FDCWD, root.c_str(), O_RDONLY | O_DIRECTORY);
  if (base.error == ENOENT) {
    const int error = make_with_parents(calls, AT_FDCWD, root, durability);
    if (error != 0) return {.error = error};
    base = open_at(calls, AT_FDCWD, root.c_str(), O_RDONLY | O_DIRECTORY);
  }
  if (!base.fd || relative.empty()) return base;

  Opened opened = open_beneath(calls, base.fd.get(), relative.c_str(), O_RDONLY | O_DIRECTORY);
  if (opened.error != ENOENT) return opened;
  const int error = make_with_parents(calls, base.fd.get(), relative, durability);
  if (error != 0) return {.error = error};
  return open_beneath(calls, base.fd.get(), relative.c_str(), O_RDONLY | O_DIRECTORY);
}

int sync_directory(const SystemCalls& calls, int directory, Durability durability) {
  if (durability == Durability::relaxed || calls.fsync(directory) == 0) return 0;
  // Some network and FUSE file systems cannot sync a directory and order it themselves.
  return errno == EINVAL || errno == EOPNOTSUPP ? 0 : errno;
}

Listing names_in(const SystemCalls& calls, int base, const std::string& relative) {
  const OpenedStream opened = open_stream(calls, base, relative);
  if (!opened.stream) return {.error = has_vanished(opened.error) ? 0 : opened.error};
  Listing listing;
  for (;;) {
    errno = 0;  // readdir() tells the end from a failure by it alone
    const dirent* const found = ::readdir(opened.stream.get());
    if (found == nullptr) break;
    if (found->d_name[0] != '.') listing.names.emplace_back(found->d_name);
  }
  if (errno != 0 && !has_vanished(errno)) return {.error = errno};
  std::sort(listing.names.begin(), listing.names.end());
  return listing;
}

int remove_if_unchanged(const SystemCalls& calls, int directory, const std::string& leaf,
                        const FileIdentity& examined) {
  struct stat now {};
  if (::fstatat(directory, leaf.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? 0 : errno;
  if (identity_of(now) != examined) return 0;

  const bool is_directory = S_ISDIR(now.st_mode);
  if (calls.unlinkat(directory, leaf.c_str(), is_directory ? AT_REMOVEDIR : 0) == 0) return 0;
  const int error = errno;
  if (error == ENOENT) return 0;
  if (!is_directory || (error != ENOTEMPTY && error != EEXIST)) return error;
  if (::renameat(directory, leaf.c_str(), directory, dot_name("aside").c_str()) == 0) return 0;
  return errno == ENOENT ? 0 : errno;
}

void sweep_temporaries(const SystemCalls& calls, int directory) {
  const DirectoryStream stream = open_stream(calls, directory, ".").stream;
  timespec now{};
  if (!stream || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return;
  while (const dirent* const found = ::readdir(stream.get())) {
    if (!std::string_view(found->d_name).starts_with(".tmp-")) continue;
    struct stat status {};
    if (::fstatat(directory, found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (now.tv_sec - status.st_mtim.tv_sec > kTemporaryAgeSeconds)
      calls.unlinkat(directory, found->d_name, 0);
  }
}

}  // namespace kiln::cache
