// A table of system calls that counts the calls of a store or a bundle, and fails some of them; and
// the loop that fails each of them in turn with each error.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "cache/system_calls.hpp"

namespace kiln::cache {

struct Faults {
  int first = -1;  // number of the first call that fails
  bool all_from_there = false;
  int error = 0;
  bool no_anonymous_files = false;
  bool no_openat2 = false;
  bool short_transfers = false;
  bool late_names = false;  // what others named does not show
  int calls = 0;
  int syncs = 0;
};
inline Faults faults;

inline bool fails() {
  const int number = faults.calls++;
  if (faults.first < 0 || number < faults.first) return false;
  if (number > faults.first && !faults.all_from_there) return false;
  errno = faults.error;
  return true;
}

inline SystemCalls faulty_calls() {
  SystemCalls calls = kRealCalls;
  calls.openat2 = [](int directory, const char* path, int flags, unsigned long long resolve) {
    if (faults.late_names && (flags & O_DIRECTORY) == 0) return errno = ENOENT, -1;
    if (faults.no_openat2) return errno = ENOSYS, -1;
    return fails() ? -1 : kRealCalls.openat2(directory, path, flags, resolve);
  };
  calls.openat = [](int directory, const char* path, int flags, mode_t mode) {
    if (faults.no_anonymous_files && (flags & O_TMPFILE) == O_TMPFILE)
      return errno = EOPNOTSUPP, -1;
    return fails() ? -1 : kRealCalls.openat(directory, path, flags, mode);
  };
  calls.fstat = [](int fd, struct stat* to) { return fails() ? -1 : kRealCalls.fstat(fd, to); };
  calls.fstatat = [](int directory, const char* path, struct stat* to, int flags) {
    return fails() ? -1 : kRealCalls.fstatat(directory, path, to, flags);
  };
  calls.pread = [](int fd, void* to, size_t size, off_t at) {
    if (faults.short_transfers) size = std::min<size_t>(size, 100);
    return fails() ? -1 : kRealCalls.pread(fd, to, size, at);
  };
  calls.pwrite = [](int fd, const void* from, size_t size, off_t at) {
    if (faults.short_transfers) size = std::min<size_t>(size, 7);
    return fails() ? -1 : kRealCalls.pwrite(fd, from, size, at);
  };
  calls.futimens = [](int fd, const timespec* to) {
    return fails() ? -1 : kRealCalls.futimens(fd, to);
  };
  calls.get_lock = [](int fd, struct flock* lock) {
    return fails() ? -1 : kRealCalls.get_lock(fd, lock);
  };
  calls.free_space = [](int fd, Space* to) { return fails() ? -1 : kRealCalls.free_space(fd, to); };
  calls.read = [](int fd, void* to, size_t size) {
    if (faults.short_transfers) size = std::min<size_t>(size, 7);
    return fails() ? -1 : kRealCalls.read(fd, to, size);
  };
  calls.writev = [](int fd, const iovec* parts, int count) {
    if (fails()) return ssize_t{-1};
    if (!faults.short_transfers) return kRealCalls.writev(fd, parts, count);
    const iovec& part = parts[0].iov_len > 0 ? parts[0] : parts[1];
    return ::write(fd, part.iov_base, std::min<size_t>(part.iov_len, 7));
  };
  calls.fchmod = [](int fd, mode_t mode) { return fails() ? -1 : kRealCalls.fchmod(fd, mode); };
  calls.fchmodat = [](int directory, const char* path, mode_t mode, int flags) {
    return fails() ? -1 : kRealCalls.fchmodat(directory, path, mode, flags);
  };
  calls.fchown = [](int fd, uid_t user, gid_t group) {
    return fails() ? -1 : kRealCalls.fchown(fd, user, group);
  };
  calls.fchownat = [](int directory, const char* path, uid_t user, gid_t group, int flags) {
    return fails() ? -1 : kRealCalls.fchownat(directory, path, user, group, flags);
  };
  calls.duplicate = [](int fd) { return fails() ? -1 : kRealCalls.duplicate(fd); };
  calls.fdopendir = [](int fd) { return fails() ? nullptr : kRealCalls.fdopendir(fd); };
  calls.readdir = [](DIR* stream) { return fails() ? nullptr : kRealCalls.readdir(stream); };
  calls.fsync = [](int) {
    ++faults.syncs;
    return fails() ? -1 : 0;
  };
  calls.close = [](int fd) {
    kRealCalls.close(fd);
    return fails() ? -1 : 0;
  };
  calls.mkdirat = [](int directory, const char* path, mode_t mode) {
    return fails() ? -1 : kRealCalls.mkdirat(directory, path, mode);
  };
  calls.linkat = [](int from, const char* path, int directory, const char* to, int flags) {
    return fails() ? -1 : kRealCalls.linkat(from, path, directory, to, flags);
  };
  calls.renameat2 = [](int from, const char* path, int directory, const char* to, unsigned flags) {
    return fails() ? -1 : kRealCalls.renameat2(from, path, directory, to, flags);
  };
  calls.unlinkat = [](int directory, const char* path, int flags) {
    return fails() ? -1 : kRealCalls.unlinkat(directory, path, flags);
  };
  calls.set_lock = [](int fd, const struct flock* lock) {
    return fails() ? -1 : kRealCalls.set_lock(fd, lock);
  };
  return calls;
}

inline constexpr int kErrors[] = {EINTR,  EIO,    ENOSPC, EDQUOT, EROFS,  EMFILE,
                                  ENFILE, ESTALE, ENOENT, ENOLCK, EACCES, EOPNOTSUPP,
                                  EPERM,  EINVAL, ENOSYS, EEXIST};

/// Whether the error also stands for a state that goes on and on; a few of each sort will do.
inline bool lasts(int error) {
  return error == EIO || error == ENOSPC || error == EROFS || error == ENOENT ||
         error == EOPNOTSUPP;
}

/// Fails call 0, 1, 2 ... of `work` in turn, once or from there on, until it makes fewer calls.
template <class Work>
void for_every_fault(const Faults& kind, Work&& work, int step = 1) {
  for (const int error : kErrors) {
    for (const bool all : {false, true}) {
      if (all && !lasts(error)) continue;
      for (int first = 0;; first += step) {
        SCOPED_TRACE(std::string(::strerrordesc_np(error)) + " at call " + std::to_string(first) +
                     (all ? " and on" : ""));
        faults = kind;
        faults.first = first;
        faults.all_from_there = all;
        faults.error = error;
        if (!work()) break;
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace kiln::cache
