// The system calls that the store makes and that can fail in interesting ways, and its clocks, as a
// table, so that a test can make any of them fail at any time. Each behaves as the call it is named
// after.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include <cstdint>

namespace kiln::cache {

struct Space {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

struct SystemCalls {
  /// openat2 with `resolve`.
  int (*openat2)(int directory, const char* path, int flags, unsigned long long resolve);
  int (*openat)(int directory, const char* path, int flags, mode_t mode);
  int (*fstat)(int fd, struct stat* to);
  int (*fstatat)(int directory, const char* path, struct stat* to, int flags);
  ssize_t (*read)(int fd, void* to, size_t size);
  ssize_t (*pread)(int fd, void* to, size_t size, off_t at);
  ssize_t (*pwrite)(int fd, const void* from, size_t size, off_t at);
  ssize_t (*writev)(int fd, const iovec* parts, int count);
  int (*fchmod)(int fd, mode_t mode);
  int (*fchmodat)(int directory, const char* path, mode_t mode, int flags);
  int (*fchown)(int fd, uid_t user, gid_t group);
  int (*fchownat)(int directory, const char* path, uid_t user, gid_t group, int flags);
  int (*futimens)(int fd, const struct timespec* times);
  int (*fsync)(int fd);
  int (*close)(int fd);
  /// fcntl F_DUPFD_CLOEXEC.
  int (*duplicate)(int fd);
  DIR* (*fdopendir)(int fd);
  struct dirent* (*readdir)(DIR* stream);
  int (*mkdirat)(int directory, const char* path, mode_t mode);
  int (*linkat)(int from_directory, const char* from, int directory, const char* to, int flags);
  int (*renameat2)(int from_directory, const char* from, int directory, const char* to,
                   unsigned flags);
  int (*unlinkat)(int directory, const char* path, int flags);
  /// fcntl F_OFD_SETLK.
  int (*set_lock)(int fd, const struct flock* lock);
  /// fcntl F_OFD_GETLK.
  int (*get_lock)(int fd, struct flock* lock);
  /// Of the file system that `fd` lies on, for users without privileges; of fstatvfs.
  int (*free_space)(int fd, Space* to);
  int (*clock_gettime)(clockid_t clock, struct timespec* to);
};

/// Seconds since 1970 by the wall clock, which may be wrong and may jump.
std::int64_t wall_seconds(const SystemCalls& calls) noexcept;
/// Nanoseconds of a clock that only goes forward.
std::int64_t steady_nanoseconds(const SystemCalls& calls) noexcept;

/// A test copies this and replaces members by its own.
extern const SystemCalls kRealCalls;

}  // namespace kiln::cache
