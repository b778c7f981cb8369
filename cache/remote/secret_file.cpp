#include "cache/remote/secret_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/file.hpp"
#include "cache/system_calls.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

Error failed(const std::filesystem::path& file, std::string_view what, const std::string& why) {
  return Error(ErrorCode::io_failed,
               "cannot read the " + std::string(what) + " in " + file.string() + ": " + why);
}

Error wrong(const std::filesystem::path& file, std::string_view what, std::string_view why) {
  // What it holds is not shown.
  return Error(ErrorCode::invalid_argument,
               "the " + std::string(what) + " in " + file.string() + ' ' + std::string(why));
}

bool has_controls(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; });
}

Result<Fd> open_secret(const std::filesystem::path& file, std::string_view what) {
  // Without O_NONBLOCK a pipe in its place would keep us waiting.
  Opened opened = open_at(kRealCalls, AT_FDCWD, file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!opened.fd) return failed(file, what, describe_error(opened.error));
  struct stat status {};
  if (::fstat(opened.fd.get(), &status) != 0) return failed(file, what, describe_error(errno));
  if (!S_ISREG(status.st_mode)) return failed(file, what, "it is no regular file");
  if ((status.st_mode & (S_IRWXO | S_IWGRP)) != 0)
    return failed(file, what,
                  "others than its owner and group have access to it; run chmod o=,g-w on it, or "
                  "mount it with defaultMode 0400 where it is a secret of Kubernetes");
  return std::move(opened.fd);
}

}  // namespace

Status check_readable(const std::filesystem::path& file, std::string_view what) {
  const Opened opened =
      open_at(kRealCalls, AT_FDCWD, file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!opened.fd) return failed(file, what, describe_error(opened.error));
  return {};
}

Status check_secret_file(const std::filesystem::path& file, std::string_view what) {
  return open_secret(file, what).status();
}

Result<std::string> read_secret_file(const std::filesystem::path& file, std::string_view what) {
  KILN_TRY(const Fd fd, open_secret(file, what));
  std::string text(kMostBytes, '\0');
  std::size_t got = 0;
  const int error = read_whole(kRealCalls, fd.get(), std::as_writable_bytes(std::span(text)), got);
  if (error != 0) return failed(file, what, describe_error(error));
  if (got == kMostBytes)
    return failed(
        file, what,
        "it has " + std::to_string(kMostBytes) + " bytes or more; it is to hold nothing else");
  text.resize(got);
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

Result<std::string> read_secret_line(const std::filesystem::path& file, std::string_view what) {
  KILN_TRY(auto text, read_secret_file(file, what));
  if (text.empty() || has_controls(text))
    return wrong(file, what, "is not one line of text; it is to hold that line alone");
  return text;
}

Result<std::vector<std::string>> read_header_file(const std::filesystem::path& file) {
  constexpr std::string_view kWhat = "headers";
  KILN_TRY(const auto text, read_secret_file(file, kWhat));
  std::vector<std::string> headers;
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    auto line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const auto colon = line.find(": ");
    if (colon == 0 || colon == std::string_view::npos || has_controls(line) ||
        line.substr(0, colon).find(' ') != std::string_view::npos)
      return wrong(file, kWhat, "have a line that is no header; write such as X-Api-Key: abc");
    headers.emplace_back(line);
  }
  return headers;
}

}  // namespace kiln::cache
