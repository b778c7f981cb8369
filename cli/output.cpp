#include "cli/output.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "kiln/spdlog.hpp"

namespace kiln::cli {
namespace {

// 0, or the errno of the write that failed.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      // Somebody else has made the stream non-blocking: wait until it takes more.
      pollfd ready{.fd = file, .events = POLLOUT, .revents = 0};
      static_cast<void>(::poll(&ready, 1, -1));
      continue;
    }
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

bool is_control(char c) {
  const auto code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7f;
}

std::string with_line_end(std::string_view text) {
  std::string line(text);
  if (line.empty() || line.back() != '\n') line += '\n';
  return line;
}

}  // namespace

std::string counted(std::uint64_t count, std::string_view one) {
  return counted(count, one, std::string(one) + "s");
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count).append(" ").append(count == 1 ? one : many);
}

std::string entries_text(std::uint64_t count) {
  return counted(count, "entry", "entries");
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (const auto& part : parts) text.append(text.empty() ? "" : between).append(part);
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", amount, kUnits[unit]);
  return text.data();
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) shown += is_control(c) ? '?' : c;
  return shown;
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  for (const char c : text) shown += is_control(c) && c != '\n' && c != '\t' ? '?' : c;
  return shown;
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  if (text.size() <= kLongest) return std::string(text);
  return std::string(text.substr(0, kLongest - 3)) + "...";
}

double milliseconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string milliseconds_text(std::chrono::nanoseconds time) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f ms", milliseconds_of(time));
  return text.data();
}

void Output::line(std::string_view text) {
  if (form_ == OutputForm::text) write_result(with_line_end(printable_lines(text)));
}

void Output::bytes(std::string_view text) {
  write_result(text);
}

void Output::object(const Json& result) {
  // Paths and key texts may not be UTF-8: dump() would throw.
  if (form_ == OutputForm::json)
    write_result(with_line_end(result.dump(2, ' ', false, Json::error_handler_t::replace)));
}

void Output::message(std::string_view text) {
  write_message(text);
}

void Output::failure(const Failure& failure) {
  write_message("kiln: " + failure.message);
  if (!failure.detail.empty()) write_message(failure.detail);
  Json error = {{"code", failure.code}, {"message", failure.message}};
  if (!failure.detail.empty()) error["detail"] = failure.detail;
  object({{"error", std::move(error)}});
}

void Output::write_result(std::string_view text) {
  const std::lock_guard lock(mutex_);
  // Both streams may be the same terminal.
  erase_status();
  if (reader_left_ || write_error_ != 0) return;
  const int error = write_all(STDOUT_FILENO, text);
  if (error == EPIPE)
    reader_left_ = true;
  else
    write_error_ = error;
}

void Output::write_message(std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase_status();
  // There is nowhere left to report a failure to.
  static_cast<void>(write_all(STDERR_FILENO, with_line_end(printable_lines(text))));
}

void Output::show_status(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!live_ || text == status_) return;
  // One write, and the rest of the line erased after the text: nothing flickers.
  static_cast<void>(write_all(STDERR_FILENO, "\r" + std::string(text) + "\x1b[K"));
  status_ = text;
}

void Output::clear_status() {
  const std::lock_guard lock(mutex_);
  erase_status();
}

void Output::erase_status() {
  if (status_.empty()) return;
  static_cast<void>(write_all(STDERR_FILENO, "\r\x1b[K"));
  status_.clear();
}

unsigned Output::columns() noexcept {
  constexpr unsigned kUsual = 80;
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

LogSink Output::log_sink(LogLevel least) {
  return [this, sink = spdlog_stderr_sink(least)](LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex_);
    erase_status();
    sink(level, printable_lines(text));
  };
}

Status Output::result_status() const {
  const std::lock_guard lock(mutex_);
  if (write_error_ == 0) return {};
  return Error(ErrorCode::io_failed, "the result cannot be written to standard output: " +
                                         std::generic_category().message(write_error_));
}

}  // namespace kiln::cli
