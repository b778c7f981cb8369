// A record of what a compile took, which warming up reads from a cache.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "fuzz.hpp"
#include "runtime/compile_hints.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kiln::fuzz::must;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50;
  // Exactly as long as the record, so that a read beyond its end is seen.
  const std::unique_ptr<char[]> bytes(new char[size]);
  if (size != 0) std::memcpy(bytes.get(), data, size);
  const std::string_view record(bytes.get(), size);

  const auto hint = kiln::parse_hint(record);
  if (!hint) return 0;
  must(hint->subject.data() == record.data() && hint->subject.size() == 32,
       "a record begins with what it speaks of");
  must(hint->cost.time.count() >= 0 &&
           static_cast<std::uint64_t>(hint->cost.time.count()) < kMost &&
           hint->cost.peak_bytes < kMost,
       "sums of what is taken cannot overflow");
  const auto numbers = record.substr(32);
  must(std::count(numbers.begin(), numbers.end(), ' ') == 2 &&
           numbers.find_first_not_of(" 0123456789") == std::string_view::npos,
       "what is taken is two numbers and nothing else");
  return 0;
}
