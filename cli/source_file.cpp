#include "cli/source_file.hpp"

#include <algorithm>
#include <cctype>
#include <system_error>

#include "cli/file_input.hpp"
#include "cli/output.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestSource = 64U << 20;

Failure unusable(const std::string& typed, const std::string& why) {
  return {.exit = ExitCode::failed, .code = "bad_source", .message = typed + " " + why};
}

std::string kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "is a directory; name a CUDA source in it";
    case fs::file_type::fifo:
      return "is a pipe, and its text is read more than once; write it to a file first";
    default:
      return "is no regular file; name a CUDA source";
  }
}

// The part of `path` below `directory`; empty when it does not lie in it.
std::string path_below(const fs::path& directory, const fs::path& path) {
  if (directory.empty()) return {};
  std::error_code failed;
  const auto real = fs::canonical(directory, failed);
  if (failed) return {};
  const auto below = path.lexically_relative(real);
  return below.empty() || *below.begin() == ".." ? std::string() : below.string();
}

}  // namespace

std::variant<SourceFile, Failure> read_source_file(const std::string& typed,
                                                   const fs::path& source_directory) {
  std::error_code failed;
  const auto status = fs::status(typed, failed);
  if (status.type() == fs::file_type::not_found) return unusable(typed, "does not exist");
  if (status.type() == fs::file_type::none)
    return unusable(shortened(typed), "cannot be looked at: " + failed.message());
  if (status.type() != fs::file_type::regular) return unusable(typed, kind_of(status.type()));
  const auto forbidden = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 ||
           std::string_view("\x7f\\\"<>").find(c) != std::string_view::npos;
  };
  const auto own_name = fs::path(typed).filename().string();
  if (std::any_of(own_name.begin(), own_name.end(), forbidden))
    return unusable(printable(typed),
                    "has a control character, backslash, quote or angle bracket in its name, which "
                    "no include can spell; rename it");
  if (const auto bytes = fs::file_size(typed, failed); !failed && bytes > kLargestSource)
    return unusable(typed, "is " + bytes_text(bytes) + " long, and a source is at most " +
                               bytes_text(kLargestSource));
  auto text = read_whole(typed);
  if (!text)
    return unusable(typed, "cannot be read: " + text.error().message() +
                               "; check its permissions and the disk, or name another");
  SourceFile file{.typed = typed, .text = *std::move(text)};
  if (file.text.find('\0') != std::string::npos)
    return unusable(typed,
                    "has a zero byte, where the compiler would stop reading; name a CUDA source, "
                    "or remove it");

  const auto directory = fs::canonical(fs::absolute(typed, failed).parent_path(), failed);
  if (failed) return unusable(typed, "cannot be found again: " + failed.message());
  file.name = path_below(source_directory, directory / own_name);
  if (!file.name.empty()) {
    file.source_directory = source_directory;
    file.shown_directory = (source_directory / "").string();
    return file;
  }
  file.name = own_name;
  if (source_directory.empty()) {
    file.source_directory = directory;
  } else {
    file.source_directory = source_directory;
    file.own_directory = directory;
  }
  file.shown_directory = typed.substr(0, typed.size() - file.name.size());
  return file;
}

std::string as_typed(const SourceFile& file, std::string_view log) {
  std::string text;
  // Names stand before "(LINE)" or ":LINE", or between quotes.
  const auto is_place = [&](std::size_t at) {
    std::size_t end = at + 1;
    while (end < log.size() && std::isdigit(static_cast<unsigned char>(log[end])) != 0) ++end;
    return end > at + 1 && (log[at] == ':' || (end < log.size() && log[end] == ')'));
  };
  for (std::size_t at = 0; at < log.size();) {
    const auto end = std::min(log.find_first_of(" \t\n\"", at), log.size());
    const auto word = log.substr(at, end - at);
    const auto paren = word.rfind('(');
    const auto open = paren != std::string_view::npos ? paren : word.rfind(':');
    const bool quoted = at > 0 && log[at - 1] == '"' && end < log.size() && log[end] == '"';
    auto name = quoted ? word : std::string_view();
    if (open != std::string_view::npos && open > 0 && is_place(at + open))
      name = word.substr(0, open);
    std::error_code ignored;
    if (name == file.name)
      text += file.typed;
    else if (!quoted && !name.empty() && name.front() != '/' &&
             fs::is_regular_file(file.source_directory / name, ignored))
      text.append(file.shown_directory).append(name);
    else
      name = {};
    text += word.substr(name.size());
    if (end < log.size()) text += log[end];
    at = end + 1;
  }
  return text;
}

}  // namespace kiln::cli
