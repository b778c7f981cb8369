#include "kiln/cache/probe.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <string>
#include <system_error>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/system_calls.hpp"

namespace kiln::cache {
namespace {

namespace fs = std::filesystem;

struct FileSystem {
  unsigned long type;
  const char* name;
  bool network = false;
};
// Numbers of statfs(2); those that <linux/magic.h> lacks are from the file systems' own sources.
constexpr FileSystem kFileSystems[] = {
    {0xEF53, "ext4"},           {0x58465342, "xfs"},          {0x9123683E, "btrfs"},
    {0x01021994, "tmpfs"},      {0x794C7630, "overlay"},      {0x2FC12FC1, "zfs"},
    {0xF2F52010, "f2fs"},       {0x73717368, "squashfs"},     {0x65735546, "fuse"},
    {0x6969, "nfs", true},      {0xFF534D42, "cifs", true},   {0xFE534D42, "smb2", true},
    {0x00C36400, "ceph", true}, {0x0BD00BD0, "lustre", true}, {0x47504653, "gpfs", true},
    {0x01021997, "9p", true},   {0x5346414F, "afs", true},
};

std::string trouble_at(const fs::path& path, int error) {
  return path.string() + ": " + describe_error(error);
}

// Finds the nearest directory that is there; what stands in the way is trouble.
void find_nearest(const fs::path& directory, Probe& found) {
  for (fs::path path = directory;; path = path.parent_path()) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) {
      if (!S_ISDIR(status.st_mode)) {
        found.trouble = path.string() + " is not a directory";
        return;
      }
      found.nearest = path;
      found.exists = path == directory;
      return;
    }
    const int error = errno;
    if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
      found.trouble = path.string() + " is a link to a directory that does not exist";
    else if (error != ENOENT && error != ENOTDIR)
      found.trouble = trouble_at(path, error);
    if (!found.trouble.empty() || path == path.parent_path()) return;
  }
}

// A directory that a publish writes into: every one of the store that is there.
std::string unwritable(const fs::path& path) {
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
  return errno == ENOENT ? std::string() : trouble_at(path, errno);
}

std::string unwritable_part(const fs::path& root) {
  const auto entries = root / "v1/e";
  for (const auto& path : {root, root / "v1", entries, root / "v1/r"})
    if (auto why = unwritable(path); !why.empty()) return why;
  std::error_code error;
  for (fs::directory_iterator at(entries, error), end; !error && at != end; at.increment(error))
    if (auto why = unwritable(at->path()); !why.empty()) return why;
  return {};
}

// What can be done with a file that has no name and never gets one.
void try_a_file(Probe& found) {
  const Opened opened =
      open_at(kRealCalls, AT_FDCWD, found.nearest.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (!opened.fd) {
    constexpr std::array kNoSuchForm = {EOPNOTSUPP, EISDIR, EINVAL, ENOSYS};
    if (std::find(kNoSuchForm.begin(), kNoSuchForm.end(), opened.error) == kNoSuchForm.end())
      found.trouble = trouble_at(found.nearest, opened.error);
    return;
  }
  found.anonymous_files = true;
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_len = 1;
  found.locks = kRealCalls.set_lock(opened.fd.get(), &byte) == 0;
}

void describe_file_system(Probe& found) {
  struct statfs here {};
  if (::statfs(found.nearest.c_str(), &here) == 0) {
    const auto type = static_cast<unsigned long>(here.f_type) & 0xFFFFFFFFUL;
    const auto* known = std::find_if(std::begin(kFileSystems), std::end(kFileSystems),
                                     [&](const FileSystem& each) { return each.type == type; });
    if (known != std::end(kFileSystems)) {
      found.file_system = known->name;
      found.network = known->network;
    } else {
      std::array<char, 32> text{};
      ::snprintf(text.data(), text.size(), "type 0x%lx", type);
      found.file_system = text.data();
    }
  }
  Space space;
  const Opened opened = open_at(kRealCalls, AT_FDCWD, found.nearest.c_str(), O_PATH | O_DIRECTORY);
  if (opened.fd && kRealCalls.free_space(opened.fd.get(), &space) == 0)
    found.free_bytes = space.free_bytes;
}

}  // namespace

Probe probe(const fs::path& directory) {
  Probe found;
  std::error_code failure;
  auto path = fs::absolute(directory, failure).lexically_normal();
  if (failure || directory.empty()) {
    found.trouble = "the cache directory \"" + directory.string() + "\" leads nowhere";
    return found;
  }
  if (!path.has_filename()) path = path.parent_path();  // of a name that ends in a slash
  find_nearest(path, found);
  if (found.nearest.empty()) return found;
  describe_file_system(found);
  found.trouble = found.exists ? unwritable_part(found.nearest) : unwritable(found.nearest);
  if (found.trouble.empty()) try_a_file(found);
  return found;
}

}  // namespace kiln::cache
