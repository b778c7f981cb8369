// The system calls that the store makes and that can fail in interesting ways, as a table, so that
// a test can make any of them fail at any time. Each behaves as the call it is named after.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace kiln::cache {

struct SystemCalls {
  /// openat2 with `resolve`.
  int (*openat2)(int directory, const char* path, int flags, unsigned long long resolve);
  int (*openat)(int directory, const char* path, int flags, mode_t mode);
  ssize_t (*read)(int fd, void* to, size_t size);
  ssize_t (*writev)(int fd, const iovec* parts, int count);
  int (*fchmod)(int fd, mode_t mode);
  int (*fsync)(int fd);
  int (*close)(int fd);
  int (*mkdirat)(int directory, const char* path, mode_t mode);
  int (*linkat)(int from_directory, const char* from, int directory, const char* to, int flags);
  int (*renameat2)(int from_directory, const char* from, int directory, const char* to,
                   unsigned flags);
  int (*unlinkat)(int directory, const char* path, int flags);
  /// fcntl F_OFD_SETLK.
  int (*set_lock)(int fd, const struct flock* lock);
};

/// A test copies this and replaces members by its own.
extern const SystemCalls kRealCalls;

}  // namespace kiln::cache
