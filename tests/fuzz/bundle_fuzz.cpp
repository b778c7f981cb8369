// Head and index of a bundle, as a reader has them once the signature is checked. An odd first byte
// says that the sizes of the index and of the file are put right first.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "cache/bundle_format.hpp"
#include "cache/little_endian.hpp"
#include "fuzz.hpp"

namespace {

using namespace kiln::cache;
using kiln::fuzz::must;

constexpr std::size_t kIndexSizeAt = 24;
constexpr std::size_t kEntriesSizeAt = 32;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool mended = (data[0] & 1) != 0;
  const std::size_t length = size - 1;
  // Exactly as long as the input, so that a read beyond its end is seen.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[length]);
  if (length != 0) std::memcpy(bytes.get(), data + 1, length);
  const std::span<const std::byte> all(bytes.get(), length);

  std::uint64_t file_size = length;
  if (mended && length >= kBundleHeadBytes) {
    put(bytes.get() + kIndexSizeAt, std::uint64_t{length - kBundleHeadBytes});
    file_size += kBundleSealBytes + get<std::uint64_t>(bytes.get() + kEntriesSizeAt);
  }
  BundleHead head;
  const auto start = all.first(std::min(length, kBundleHeadBytes));
  if (!decode_head(start, file_size, head).empty()) return 0;
  must(head.count * kRecordBytes <= head.index_bytes, "memory is set aside for what is there");
  if (head.index_bytes > length - kBundleHeadBytes) return 0;
  std::vector<BundleEntry> entries;
  const auto index = all.subspan(kBundleHeadBytes, static_cast<std::size_t>(head.index_bytes));
  if (!decode_index(head, index, entries).empty()) return 0;
  // There is one encoding of an index and no other.
  const auto again = encode_index(head.signer, entries);
  must(std::equal(again.begin(), again.end(), all.begin(),
                  all.begin() + static_cast<std::ptrdiff_t>(kBundleHeadBytes + index.size())),
       "what is taken is what would be written");
  return 0;
}
