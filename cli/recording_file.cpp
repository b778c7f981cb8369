#include "cli/recording_file.hpp"

#include <filesystem>
#include <optional>
#include <system_error>

#include "cli/file_input.hpp"

namespace kiln::cli {
namespace {

std::optional<std::string> text_of(const std::string& file) {
  std::error_code failed;
  // A pipe or a device could block.
  if (!std::filesystem::is_regular_file(file, failed)) return std::nullopt;
  auto text = read_whole(file);
  if (!text) return std::nullopt;
  return *std::move(text);
}

}  // namespace

bool holds_recording(const std::string& file) {
  const auto text = text_of(file);
  return text && is_recording(*text);
}

Result<Recording> read_recording_file(const std::string& file) {
  const auto text = text_of(file);
  if (!text)
    return Error(ErrorCode::invalid_argument, "the recording " + file +
                                                  " is no file that can be "
                                                  "read");
  return read_recording(*text, file);
}

}  // namespace kiln::cli
