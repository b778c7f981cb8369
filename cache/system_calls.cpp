#include "cache/system_calls.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace kiln::cache {
namespace {

int call_openat2(int directory, const char* path, int flags, unsigned long long resolve) {
  struct open_how how = {};
  how.flags = static_cast<unsigned>(flags);
  how.resolve = resolve;
  return static_cast<int>(::syscall(SYS_openat2, directory, path, &how, sizeof(how)));
}

int call_openat(int directory, const char* path, int flags, mode_t mode) {
  return ::openat(directory, path, flags, mode);
}

int call_renameat2(int from_directory, const char* from, int directory, const char* to,
                   unsigned flags) {
  return ::renameat2(from_directory, from, directory, to, flags);
}

int call_set_lock(int fd, const struct flock* lock) {
  return ::fcntl(fd, F_OFD_SETLK, lock);
}

int call_fstat(int fd, struct stat* to) {
  return ::fstat(fd, to);
}

int call_fstatat(int directory, const char* path, struct stat* to, int flags) {
  return ::fstatat(directory, path, to, flags);
}

int call_duplicate(int fd) {
  return ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int call_get_lock(int fd, struct flock* lock) {
  return ::fcntl(fd, F_OFD_GETLK, lock);
}

int call_free_space(int fd, Space* to) {
  struct statvfs space {};
  if (::fstatvfs(fd, &space) != 0) return -1;
  // Some tell no size: a tmpfs without a limit, file systems in user space.
  if (space.f_blocks == 0) return errno = EOPNOTSUPP, -1;
  to->free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  to->total_bytes = static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize;
  return 0;
}

}  // namespace

constinit const SystemCalls kRealCalls = {
    .openat2 = call_openat2,
    .openat = call_openat,
    .fstat = call_fstat,
    .fstatat = call_fstatat,
    .read = ::read,
    .pread = ::pread,
    .pwrite = ::pwrite,
    .writev = ::writev,
    .fchmod = ::fchmod,
    .fchmodat = ::fchmodat,
    .fchown = ::fchown,
    .fchownat = ::fchownat,
    .futimens = ::futimens,
    .fsync = ::fsync,
    .close = ::close,
    .duplicate = call_duplicate,
    .fdopendir = ::fdopendir,
    .readdir = ::readdir,
    .mkdirat = ::mkdirat,
    .linkat = ::linkat,
    .renameat2 = call_renameat2,
    .unlinkat = ::unlinkat,
    .set_lock = call_set_lock,
    .get_lock = call_get_lock,
    .free_space = call_free_space,
    .clock_gettime = ::clock_gettime,
};

std::int64_t wall_seconds(const SystemCalls& calls) noexcept {
  timespec now{};
  calls.clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

std::int64_t steady_nanoseconds(const SystemCalls& calls) noexcept {
  timespec now{};
  calls.clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace kiln::cache
