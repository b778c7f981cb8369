#include "cache/file.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kiln::cache {
namespace {

constexpr unsigned long long kResolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
// The kernel asks for another try when a directory on the way was moved meanwhile.
constexpr int kOpenAttempts = 8;

iovec as_iovec(std::span<const std::byte> bytes) noexcept {
  return {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
}

/// One component after the other, none of which may be a link.
Opened open_stepwise(const SystemCalls& calls, int directory, std::string_view path, int flags) {
  Fd at;
  for (;;) {
    const auto slash = path.find('/');
    const std::string name(path.substr(0, slash));
    const int from = at ? at.get() : directory;
    if (slash == std::string_view::npos) return open_at(calls, from, name.c_str(), flags);
    Opened next = open_at(calls, from, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!next.fd) return next;
    at = std::move(next.fd);
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

Fd::~Fd() {
  // Linux frees the number even when a signal interrupts: a second close could hit another file.
  if (raw_ >= 0) ::close(raw_);
}

Opened open_at(const SystemCalls& calls, int directory, const char* path, int flags, mode_t mode) {
  for (;;) {
    const int fd = calls.openat(directory, path, flags | O_CLOEXEC, mode);
    if (fd >= 0) return {.fd = Fd(fd)};
    if (errno != EINTR) return {.error = errno};
  }
}

Opened open_beneath(const SystemCalls& calls, int directory, const char* path, int flags) {
  const int guarded = flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  for (int attempt = 0;;) {
    const int fd = calls.openat2(directory, path, guarded, kResolve);
    if (fd >= 0) return {.fd = Fd(fd)};
    // ENOSYS: kernels before 5.6. EPERM: sandboxes that know no openat2.
    if (errno == ENOSYS || errno == EPERM) return open_stepwise(calls, directory, path, guarded);
    if (errno == EINTR) continue;
    if (errno != EAGAIN || ++attempt == kOpenAttempts) return {.error = errno};
  }
}

FileIdentity identity_of(const struct stat& status) noexcept {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .mode = status.st_mode,
          .modified_seconds = status.st_mtim.tv_sec,
          .modified_nanoseconds = status.st_mtim.tv_nsec};
}

int read_whole(const SystemCalls& calls, int fd, std::span<std::byte> to, std::size_t& got) {
  got = 0;
  while (got < to.size()) {
    const ssize_t count = calls.read(fd, to.data() + got, to.size() - got);
    if (count == 0) return 0;
    if (count > 0) {
      got += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

bool exceeds_file_size_limit(std::size_t size) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return size > limit.rlim_cur;
}

int write_whole(const SystemCalls& calls, int fd, std::span<const std::byte> first,
                std::span<const std::byte> second) {
  if (exceeds_file_size_limit(first.size() + second.size())) return EFBIG;
  while (!first.empty() || !second.empty()) {
    const std::array parts = {as_iovec(first), as_iovec(second)};
    const ssize_t count = calls.writev(fd, parts.data(), static_cast<int>(parts.size()));
    if (count < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (count == 0) return EIO;  // never said of a regular file; it must not loop for ever
    const auto written = static_cast<std::size_t>(count);
    const std::size_t of_first = written < first.size() ? written : first.size();
    first = first.subspan(of_first);
    second = second.subspan(written - of_first);
  }
  return 0;
}

std::string describe_error(int error) {
  std::array<char, 128> buffer{};
  return ::strerror_r(error, buffer.data(), buffer.size());
}

}  // namespace kiln::cache
