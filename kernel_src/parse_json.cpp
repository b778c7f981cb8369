// Compiles with exceptions: nlohmann-json reports faults of the text by them, caught here.
#include "kernel_src/parse_json.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kiln::kernels {
namespace {

using nlohmann::json;

// Far beyond what a manifest needs. Messages show values by recursion, which a deep one would
// crash.
constexpr int kMostNested = 64;

// "line 3, column 7" of the byte at `offset`, both counted from 1.
std::string position_of(std::string_view text, std::size_t offset) {
  const auto before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto line_start = before.rfind('\n');
  const auto column =
      line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// The reason in nlohmann's text, which leads with its own error number and, for syntax, position.
std::string reason_of(std::string_view what) {
  for (const std::string_view lead : {"] ", "column "})
    if (const auto at = what.find(lead); at != std::string_view::npos) what.remove_prefix(at);
  const auto start = what.find(what.starts_with("] ") ? "] " : ": ");
  return std::string(start == std::string_view::npos ? what : what.substr(start + 2));
}

// Reads text and tells how far: the parser's callback is given no position.
class TracedByte {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TracedByte(const char* at, const char*& reached) : at_(at), reached_(&reached) {}
  reference operator*() const { return *at_; }
  TracedByte& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const TracedByte& other) const { return at_ == other.at_; }
  bool operator!=(const TracedByte& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

}  // namespace

Result<json> parse_json(std::string_view text, std::string_view file) {
  const auto fault = [&](std::size_t offset, const std::string& what) {
    return Error(ErrorCode::invalid_argument,
                 std::string(file) + ": " + position_of(text, offset) + ": " + what);
  };
  const char* reached = text.data();
  // The last byte that was read.
  const auto offset = [&] {
    return reached == text.data() ? 0 : static_cast<std::size_t>(reached - text.data()) - 1;
  };

  // The first fault that the parser itself does not mind: too many brackets, and members with the
  // same name, of which it keeps the last.
  std::optional<Error> first;
  std::vector<std::set<std::string>> open;
  const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (first) return true;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMostNested)
      first = fault(offset(), "is nested deeper than " + std::to_string(kMostNested) + " levels");
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
      first = fault(offset(),
                    "the member \"" + parsed.get<std::string>() + "\" appears twice in one object");
    return true;
  };
  try {
    auto document = json::parse(TracedByte(text.data(), reached),
                                TracedByte(text.data() + text.size(), reached), look);
    if (first) return *first;
    return document;
  } catch (const json::parse_error& error) {
    if (first) return *first;
    // `byte` counts from 1 and is the last byte that was read.
    return fault(error.byte == 0 ? 0 : error.byte - 1, reason_of(error.what()));
  } catch (const json::exception& error) {
    // Such as a number that no double holds.
    if (first) return *first;
    return fault(offset(), reason_of(error.what()));
  }
}

}  // namespace kiln::kernels
