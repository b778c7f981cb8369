// Descriptors and whole files: open without following links, tell files apart, read, write.
// Failures are errno values; 0 is success.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "cache/system_calls.hpp"

namespace kiln::cache {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int raw) noexcept : raw_(raw) {}
  Fd(Fd&& other) noexcept : raw_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    Fd(std::move(other)).swap(*this);
    return *this;
  }
  ~Fd();

  int get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ >= 0; }
  int release() noexcept { return std::exchange(raw_, -1); }
  void swap(Fd& other) noexcept { std::swap(raw_, other.raw_); }

 private:
  int raw_ = -1;
};

/// An open file, or why not.
struct Opened {
  Fd fd{};
  int error = 0;
};

/// openat, retried when a signal interrupts it. Close-on-exec.
Opened open_at(const SystemCalls& calls, int directory, const char* path, int flags,
               mode_t mode = 0);

/// Opens `path` below `directory` for `flags`, following no link on the way and never waiting for
/// a pipe or a device. `path` is relative, without "..".
Opened open_beneath(const SystemCalls& calls, int directory, const char* path, int flags);

/// Enough to tell whether a name still stands for the file that was examined.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  mode_t mode = 0;
  time_t modified_seconds = 0;
  long modified_nanoseconds = 0;
  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(const struct stat& status) noexcept;

/// Fills `to` from the current position. `got` falls short of its size when the file ends first.
int read_whole(const SystemCalls& calls, int fd, std::span<std::byte> to, std::size_t& got);

/// Whether the process may not write up to `size`. Past that limit the kernel sends SIGXFSZ, which
/// ends a process that does not expect it.
bool exceeds_file_size_limit(std::size_t size) noexcept;

/// Writes `first`, then `second`. EFBIG, and no signal, where the process may not write as much.
int write_whole(const SystemCalls& calls, int fd, std::span<const std::byte> first,
                std::span<const std::byte> second);

/// What the system calls this errno value.
std::string describe_error(int error);

/// Whether a directory on the way was removed, which is a reason to try again.
inline bool has_vanished(int error) noexcept {
  return error == ENOENT || error == ESTALE;
}

}  // namespace kiln::cache
