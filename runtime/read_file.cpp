#include "runtime/read_file.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace kiln {
namespace {

Error io_error(int number) {
  std::array<char, 128> buffer{};
  return Error(ErrorCode::io_failed, ::strerror_r(number, buffer.data(), buffer.size()));
}

}  // namespace

int open_to_read(const char* path) noexcept {
  int file = -1;
  do file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (file < 0 && errno == EINTR);
  return file;
}

Result<OpenFile> OpenFile::open(const std::filesystem::path& path) {
  OpenFile file(open_to_read(path.c_str()));
  if (file.descriptor_ < 0) return io_error(errno);
  struct ::stat facts {};
  if (::fstat(file.descriptor_, &facts) != 0) return io_error(errno);
  if (!S_ISREG(facts.st_mode)) return Error(ErrorCode::io_failed, "not a regular file");
  file.size_ = static_cast<std::uint64_t>(facts.st_size);
  return file;
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool OpenFile::read_at(std::uint64_t offset, std::span<std::byte> into) const noexcept {
  if (offset > size_ || into.size() > size_ - offset) return false;
  while (!into.empty()) {
    const ::ssize_t got =
        ::pread(descriptor_, into.data(), into.size(), static_cast<::off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

Result<std::string> read_head(const std::filesystem::path& path, std::uint64_t limit) {
  KILN_TRY(const OpenFile file, OpenFile::open(path));
  std::string text(static_cast<std::size_t>(std::min(limit, file.size())), '\0');
  if (!file.read_at(0, std::as_writable_bytes(std::span(text))))
    return Error(ErrorCode::io_failed, "it changed while it was read");
  return text;
}

}  // namespace kiln
