// Reading regular files that somebody else wrote, without following them into a pipe or a device.
//
// Threads: values; one file may be read from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "kiln/error.hpp"

namespace kiln {

/// A descriptor, or -1 with errno: without waiting for a pipe, and again when a signal interrupts,
/// as file systems in user space and on a network let it.
int open_to_read(const char* path) noexcept;

/// A regular file open for reading.
class OpenFile {
 public:
  OpenFile(OpenFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  ~OpenFile();

  /// Errors  io_failed, with the reason alone: the caller knows the path.
  static Result<OpenFile> open(const std::filesystem::path& path);
  std::uint64_t size() const noexcept { return size_; }
  /// Fills `into` from `offset`; false when that is not all there.
  bool read_at(std::uint64_t offset, std::span<std::byte> into) const noexcept;

 private:
  explicit OpenFile(int descriptor) noexcept : descriptor_(descriptor) {}
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// The first `limit` bytes of a file, or all of a shorter one.
/// Errors  io_failed, with the reason alone.
Result<std::string> read_head(const std::filesystem::path& path, std::uint64_t limit);

}  // namespace kiln
