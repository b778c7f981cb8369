// Bytes of a result that go to a file, or to standard output where that is no terminal.
//
// Threads: used by the main thread alone.
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>

#include "cli/exit_code.hpp"

namespace kiln::cli {

/// A file that a command reads, after the option or the words that name it: "--secret-key".
struct InputFile {
  std::string what{};
  std::string path{};  ///< empty: there is none
};

/// The usage error where `output`, which `option` names, is one of `inputs` by whatever name: what
/// was read would be lost.
std::optional<Failure> output_is_input(const std::string& option, const std::string& output,
                                       std::span<const InputFile> inputs);

/// A file that gets its content later: opened ahead, so that a name that cannot be written is told
/// of before the work, and what the file holds is kept until there is something to put in its
/// place.
class OutputFile {
 public:
  /// Makes the file where there is none. `option` is what named it, for the error. Never waits: a
  /// pipe must have its reader already.
  static std::variant<OutputFile, Failure> open(std::string path, std::string option);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Takes a file away that it has made and that got nothing.
  ~OutputFile();

  const std::string& path() const noexcept { return path_; }

  /// Replaces the content. Empty: it is written. Waits for a slow reader, but no longer than a
  /// moment once `stop` is requested.
  std::optional<Failure> write(std::string_view bytes, const std::stop_token& stop = {});

 private:
  OutputFile(std::string path, std::string option, int file, bool made)
      : path_(std::move(path)), option_(std::move(option)), file_(file), made_(made) {}

  std::string path_;
  std::string option_;
  int file_;
  bool made_;
};

/// The same at once, for a file that -o names.
std::optional<Failure> write_output(const std::string& path, std::string_view bytes);

}  // namespace kiln::cli
