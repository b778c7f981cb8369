#include "cli/recording_file.hpp"

#include <filesystem>
#include <system_error>

#include "cli/file_input.hpp"

namespace kiln::cli {
namespace {

Result<std::string> text_of(const std::string& file) {
  std::error_code failed;
  const auto status = std::filesystem::status(file, failed);
  // A pipe or a device could block.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return Error(ErrorCode::invalid_argument, "it is not a file");
  return read_whole(file);
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
                                                  " cannot be read: " + text.error().message() +
                                                  "; name one that KILN_RECORD wrote");
  return read_recording(*text, file);
}

}  // namespace kiln::cli
