// The bytes of an entry. The first byte of an input says whether its digests are put right first:
// without that no input would come past them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/entry_format.hpp"
#include "cache/little_endian.hpp"
#include "fuzz.hpp"
#include "kiln/cache/digest.hpp"

namespace {

using namespace kiln::cache;
using kiln::fuzz::must;

constexpr std::size_t kKeySizeAt = 24;
constexpr std::size_t kFactsSizeAt = 32;
constexpr std::size_t kPayloadDigestAt = 48;
constexpr std::size_t kHeaderDigestAt = 64;

struct Parts {
  std::size_t head = 0;
  std::string_view key{};
};

// Where the parts of the entry end, if its sizes are right.
std::optional<Parts> parts_of(std::span<const std::byte> bytes) {
  if (!header_damage(bytes.first(std::min(bytes.size(), kHeaderBytes)), bytes.size()).empty())
    return std::nullopt;
  const auto key = get<std::uint64_t>(bytes.data() + kKeySizeAt);
  const auto facts = get<std::uint64_t>(bytes.data() + kFactsSizeAt);
  return Parts{.head = kHeaderBytes + static_cast<std::size_t>(key + facts),
               .key = {reinterpret_cast<const char*>(bytes.data()) + kHeaderBytes,
                       static_cast<std::size_t>(key)}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool mended = (data[0] & 1) != 0;
  const std::size_t length = size - 1;
  // Exactly as long as the entry, so that a read beyond its end is seen.
  std::shared_ptr<std::byte[]> bytes(new std::byte[length]);
  if (length != 0) std::memcpy(bytes.get(), data + 1, length);
  const std::span<std::byte> all(bytes.get(), length);

  const auto parts = parts_of(all);
  Digest name{};
  if (parts) {
    name = digest_of(parts->key);
    if (mended) {
      put_digest(bytes.get() + kPayloadDigestAt, digest_of(all.subspan(parts->head)));
      put_digest(bytes.get() + kHeaderDigestAt, Digest{});
      put_digest(bytes.get() + kHeaderDigestAt, digest_of(all.first(parts->head)));
    }
  }
  const std::vector<std::byte> before(all.begin(), all.end());
  const Found found = EntryDecoder::decode(std::move(bytes), length, name, std::nullopt);
  must(found.entry.has_value() != !found.damage.empty(), "an entry or a damage, never both");
  must(!mended || found.entry.has_value() == parts.has_value(), "right digests are taken");
  if (!found.entry) return 0;
  // There is one encoding of an entry and no other.
  auto again = encode_head(found.entry->key_text(), found.entry->facts(), found.entry->payload());
  again.insert(again.end(), found.entry->payload().begin(), found.entry->payload().end());
  must(again == before, "what is taken is what would be written");
  return 0;
}
