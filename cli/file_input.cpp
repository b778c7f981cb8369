#include "cli/file_input.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace kiln::cli {

// Not by a stream, which says that it failed and not why.
Result<std::string> read_whole(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  std::string text;
  int error = file < 0 ? errno : 0;
  for (std::array<char, 65536> bytes{}; error == 0;) {
    const auto count = ::read(file, bytes.data(), bytes.size());
    if (count == 0) break;
    if (count > 0)
      text.append(bytes.data(), static_cast<std::size_t>(count));
    else if (errno != EINTR)
      error = errno;
  }
  if (file >= 0) ::close(file);
  if (error != 0) return Error(ErrorCode::io_failed, std::generic_category().message(error));
  return text;
}

}  // namespace kiln::cli
