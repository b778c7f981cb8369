#include "runtime/compile_hints.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "kiln/cache/digest.hpp"

namespace kiln {
namespace {

constexpr std::string_view kRecords = "hint";
// Records are outside the limit of the cache, and each warmup that compiles reads them all: the
// hundred thousand kernels of a tuner must not fill the disk and slow every start.
constexpr std::size_t kMostKernels = 4096;

// Not the compile key: an edited source or another compiler takes about as long.
std::string subject_of(const KernelSpec& spec, std::string_view architecture) {
  std::string text = spec.name + '\n' + spec.source + '\n' + spec.entry + '\n' +
                     spec.name_expression + '\n' + std::string(architecture);
  for (const auto& field : spec.key) text += '\n' + field.name + '=' + field.value;
  for (const auto& option : spec.options) text += '\n' + option;
  return cache::digest_of(text).hex();
}

bool take_number(std::string_view& text, std::uint64_t& number) {
  if (text.empty() || text.front() != ' ') return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  // Beyond these it is nobody's measurement, and sums could overflow.
  return error == std::errc{} && number < std::uint64_t{1} << 50;
}

bool much_more(std::uint64_t now, std::uint64_t before) {
  return now > before + before / 2;
}

std::string text_of(const std::string& subject, std::chrono::milliseconds time,
                    std::uint64_t peak_bytes) {
  return subject + ' ' + std::to_string(time.count()) + ' ' + std::to_string(peak_bytes);
}

}  // namespace

// "<subject> <milliseconds> <bytes>".
std::optional<CompileHint> parse_hint(std::string_view record) {
  constexpr std::size_t kSubject = 32;
  if (record.size() <= kSubject) return std::nullopt;
  std::string_view rest = record.substr(kSubject);
  std::uint64_t milliseconds = 0, bytes = 0;
  if (!take_number(rest, milliseconds) || !take_number(rest, bytes) || !rest.empty())
    return std::nullopt;
  return CompileHint{
      .subject = record.substr(0, kSubject),
      .cost = {.time = std::chrono::milliseconds(milliseconds), .peak_bytes = bytes}};
}

void CompileHints::read_once() {
  if (std::exchange(read_, true) || store_ == nullptr) return;
  for (const auto& record : store_->records(kRecords)) {
    const auto hint = parse_hint(record);
    if (!hint) continue;
    auto& known = costs_[std::string(hint->subject)];
    known.time = std::max(known.time, hint->cost.time);
    known.peak_bytes = std::max(known.peak_bytes, hint->cost.peak_bytes);
  }
}

std::optional<CompileCost> CompileHints::find(const KernelSpec& spec,
                                              std::string_view architecture) {
  const std::lock_guard lock(mutex_);
  read_once();
  const auto known = costs_.find(subject_of(spec, architecture));
  if (known == costs_.end()) return std::nullopt;
  return known->second;
}

std::uint64_t CompileHints::largest_peak() {
  const std::lock_guard lock(mutex_);
  read_once();
  std::uint64_t largest = 0;
  for (const auto& [subject, cost] : costs_) largest = std::max(largest, cost.peak_bytes);
  return largest;
}

void CompileHints::note(const KernelSpec& spec, std::string_view architecture,
                        const CompileCost& cost) {
  const auto subject = subject_of(spec, architecture);
  const auto milliseconds =
      std::max(cost.time, std::chrono::milliseconds(1));  // 0 would look like nothing known
  {
    const std::lock_guard lock(mutex_);
    read_once();
    if (costs_.size() >= kMostKernels && !costs_.contains(subject)) return;
    auto& known = costs_[subject];
    if (!much_more(static_cast<std::uint64_t>(milliseconds.count()),
                   static_cast<std::uint64_t>(known.time.count())) &&
        !much_more(cost.peak_bytes, known.peak_bytes))
      return;
    known.time = std::max(known.time, milliseconds);
    known.peak_bytes = std::max(known.peak_bytes, cost.peak_bytes);
  }
  // The store warns by itself of a directory that takes nothing.
  if (store_ != nullptr)
    static_cast<void>(
        store_->add_record(kRecords, text_of(subject, milliseconds, cost.peak_bytes)).ok());
}

}  // namespace kiln
