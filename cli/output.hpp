// All that the command writes: results on standard output, for people or as one JSON object;
// messages, logs and the progress line on standard error.
//
// Threads: any member from any thread. One Output a process: it owns the two streams.
#pragma once

#include <chrono>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/exit_code.hpp"
#include "kiln/log.hpp"

namespace kiln::cli {

enum class OutputForm : unsigned char {
  text,  ///< lines for people
  json,  ///< exactly one object on standard output
};

/// With members in the order that they are written in.
using Json = nlohmann::ordered_json;

/// "1 kernel", "2 kernels".
std::string counted(std::uint64_t count, std::string_view one);
/// "1 entry", "2 entries".
std::string counted(std::uint64_t count, std::string_view one, std::string_view many);
std::string entries_text(std::uint64_t count);
std::string joined(const std::vector<std::string>& parts, std::string_view between);
/// Bytes as a person reads them: "812 B", "40.2 KiB".
std::string bytes_text(std::uint64_t bytes);
/// `text` without control characters, which a terminal would act upon.
std::string printable(std::string_view text);
/// The same, but with its line ends and tabs.
std::string printable_lines(std::string_view text);
/// The start of a long `text`, for a message.
std::string shortened(std::string_view text);
/// A time in milliseconds: "31.2 ms".
double milliseconds_of(std::chrono::nanoseconds time);
std::string milliseconds_text(std::chrono::nanoseconds time);

class Output {
 public:
  /// `live`: standard error is a terminal that a line can be redrawn on.
  Output(OutputForm form, bool live) : form_(form), live_(live && form == OutputForm::text) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { clear_status(); }

  OutputForm form() const noexcept { return form_; }
  /// Whether show_status() shows anything.
  bool live() const noexcept { return live_; }

  /// One line of the result for people; nothing in JSON form.
  void line(std::string_view text);
  /// The result as JSON; nothing in text form. Call it once.
  void object(const Json& result);
  /// The result as it is, in either form: a file's bytes.
  void bytes(std::string_view text);
  /// A message on standard error, in either form.
  void message(std::string_view text);
  /// What went wrong: the message, then the long text whole; in JSON form the one object as well.
  void failure(const Failure& failure);

  /// Draws `text` in place of the status line before it. It must fit the terminal's width.
  void show_status(std::string_view text);
  void clear_status();
  /// Columns of the terminal now.
  static unsigned columns() noexcept;

  /// Passes on to the stderr log, out of the status line's way.
  LogSink log_sink(LogLevel least);

  /// Whether all results reached standard output. A reader that went away early counts as served.
  Status result_status() const;

 private:
  void write_result(std::string_view text);
  void write_message(std::string_view text);
  void erase_status();

  const OutputForm form_;
  const bool live_;
  mutable std::mutex mutex_;
  std::string status_;
  bool reader_left_ = false;
  int write_error_ = 0;
};

}  // namespace kiln::cli
