#include "cache/system_calls.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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

}  // namespace

constinit const SystemCalls kRealCalls = {
    .openat2 = call_openat2,
    .openat = call_openat,
    .read = ::read,
    .writev = ::writev,
    .fchmod = ::fchmod,
    .fsync = ::fsync,
    .close = ::close,
    .mkdirat = ::mkdirat,
    .linkat = ::linkat,
    .renameat2 = call_renameat2,
    .unlinkat = ::unlinkat,
    .set_lock = call_set_lock,
};

}  // namespace kiln::cache
