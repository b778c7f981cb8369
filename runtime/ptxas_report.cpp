#include "runtime/ptxas_report.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "runtime/trimmed.hpp"

namespace kiln {
namespace {

constexpr std::size_t kLongestHead = 400;

// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) noexcept {
  const auto end = text.find('\n');
  const auto line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// The number before `unit`, as in "16 bytes smem".
std::optional<unsigned> number_before(std::string_view line, std::string_view unit) noexcept {
  const auto at = line.find(unit);
  if (at == std::string_view::npos) return std::nullopt;
  auto begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(line.data() + begin, line.data() + at, value);
  if (error != std::errc{} || end != line.data() + at) return std::nullopt;
  return value;
}

// The text of an assembler's line behind "ptxas info    : " or "ptxas         .     ".
std::optional<std::string_view> ptxas_text(std::string_view line) noexcept {
  line = trimmed(line);
  if (!line.starts_with("ptxas")) return std::nullopt;
  line = trimmed(line.substr(5));
  if (line.starts_with("info")) line = trimmed(line.substr(4));
  if (!line.starts_with(':') && !line.starts_with('.')) return std::nullopt;
  return trimmed(line.substr(1));
}

std::string_view quoted(std::string_view text) noexcept {
  const auto begin = text.find('\'');
  if (begin == std::string_view::npos) return {};
  const auto rest = text.substr(begin + 1);
  return rest.substr(0, rest.find('\''));
}

void read_usage(std::string_view text, ResourceUsage& usage) {
  const auto take = [&](std::string_view unit, unsigned& into) {
    into = std::max(into, number_before(text, unit).value_or(0));
  };
  take(" registers", usage.registers);
  take(" bytes smem", usage.static_shared_bytes);
  take(" bytes stack frame", usage.local_bytes);
  take(" bytes cumulative stack size", usage.local_bytes);
  take(" bytes lmem", usage.local_bytes);
  take(" bytes spill stores", usage.spill_store_bytes);
  take(" bytes spill loads", usage.spill_load_bytes);
}

// Where an error begins in a line, as each part of NVRTC writes it.
std::size_t error_at(std::string_view line) noexcept {
  constexpr std::string_view kMarks[] = {
      ": error",               // x.cu(3): error: ..., nvrtc: error: ...
      ": catastrophic error",  // a missing include
      ": internal error",
      "; error ",  // ptxas application ptx input, line 5; error   : ...
      "; fatal ",
      "Command-line error",
  };
  constexpr std::string_view kStarts[] = {"ptxas fatal", "ptxas error", "nvlink error",
                                          "error:",      "error ",      "fatal"};
  for (const auto start : kStarts)
    if (line.starts_with(start)) return 0;
  auto first = std::string_view::npos;
  for (const auto mark : kMarks) first = std::min(first, line.find(mark));
  return first;
}

bool is_error(std::string_view line) noexcept {
  // The assembler's own lines can come behind stray blanks; other indented lines quote the source,
  // which may say anything.
  if (const auto text = trimmed(line); text.starts_with("ptxas "))
    line = text;
  else if (line.empty() || line.front() == ' ' || line.front() == '\t')
    return false;
  const auto error = error_at(line);
  if (error == std::string_view::npos) return false;
  const auto warning = std::min(line.find(": warning"), line.find(": remark"));
  return error < warning;
}

std::string shortened(std::string_view line) {
  if (line.size() <= kLongestHead) return std::string(line);
  auto end = kLongestHead;
  // Not within a UTF-8 character.
  while (end > kLongestHead - 4 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return std::string(line.substr(0, end)) + "... (" + std::to_string(line.size()) +
         " bytes in all; the whole log is in the error's detail)";
}

}  // namespace

PtxasReport read_ptxas_report(std::string_view log, std::string_view symbol) {
  PtxasReport report;
  std::string_view entry;     // of the usage that follows
  std::string_view function;  // of the stack frame that follows
  while (!log.empty()) {
    const auto line = next_line(log);
    const auto text = ptxas_text(line);
    if (!text) {
      report.rest.append(line).append("\n");
    } else if (text->starts_with("Compiling entry function")) {
      entry = quoted(*text);
    } else if (text->starts_with("Function properties for ")) {
      function = trimmed(text->substr(24));
    } else if (text->find(" bytes stack frame") != std::string_view::npos) {
      if (function == symbol) read_usage(*text, report.usage);
    } else if (text->starts_with("Used ")) {
      if (entry == symbol) read_usage(*text, report.usage);
    } else if (!text->starts_with("Compile time") && !number_before(*text, " bytes gmem")) {
      report.rest.append(line).append("\n");
    }
  }
  // NVRTC ends a log with blanks and a zero.
  const auto end = report.rest.find_last_not_of(kBlank);
  report.rest.resize(end == std::string::npos ? 0 : end + 1);
  return report;
}

std::string first_fatal_line(std::string_view log) {
  std::string_view first;
  while (!log.empty()) {
    const auto line = next_line(log);
    if (is_error(line)) return shortened(trimmed(line));
    if (first.empty()) first = trimmed(line);
  }
  return shortened(first);
}

}  // namespace kiln
