#include "cache/entry_format.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/little_endian.hpp"

namespace kiln::cache {
namespace {

// Broken by every conversion of line ends and by 7-bit transfer, as in PNG.
constexpr std::array<unsigned char, 8> kMagic = {'K', 'I', 'L', 'N', 0x0D, 0x0A, 0x1A, 0x0A};
constexpr std::uint32_t kCodecRaw = 0;

constexpr std::size_t kSchemaAt = 8;
constexpr std::size_t kHeaderSizeAt = 12;
constexpr std::size_t kCodecAt = 16;
constexpr std::size_t kSignatureSizeAt = 20;
constexpr std::size_t kKeySizeAt = 24;
constexpr std::size_t kFactsSizeAt = 32;
constexpr std::size_t kPayloadSizeAt = 40;
constexpr std::size_t kPayloadDigestAt = 48;
constexpr std::size_t kHeaderDigestAt = 64;
constexpr std::size_t kDigestBytes = 16;
static_assert(kHeaderDigestAt + kDigestBytes == kHeaderBytes);

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

std::string over(std::string_view part, std::uint64_t size, std::uint64_t limit) {
  if (size <= limit) return {};
  return std::string(part) + " of " + number(size) + " bytes, over the limit of " + number(limit);
}

std::string other_maker(std::uint32_t schema) {
  const std::string_view age = schema < kSchema ? "an older" : "a newer";
  return "made by " + std::string(age) + " Kiln (schema " + number(schema) + ", this one reads " +
         number(kSchema) + ")";
}

std::string_view text_at(const std::byte* bytes, std::size_t offset, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(bytes) + offset, size};
}

/// Digest of `head`, which starts with a header, as if the header's own digest were zero.
Digest head_digest(std::span<std::byte> head) noexcept {
  // In place, since hashing in pieces is slower than this for a few kilobytes.
  std::array<std::byte, kDigestBytes> kept;
  std::byte* const field = head.data() + kHeaderDigestAt;
  std::memcpy(kept.data(), field, kDigestBytes);
  std::memset(field, 0, kDigestBytes);
  const Digest digest = digest_of(head);
  std::memcpy(field, kept.data(), kDigestBytes);
  return digest;
}

Found damaged(std::string why) {
  return {.entry = std::nullopt, .damage = std::move(why)};
}

}  // namespace

std::string limit_exceeded(std::uint64_t key_size, std::uint64_t facts_size,
                           std::uint64_t payload_size) {
  if (auto why = over("key text", key_size, kMaxKeyBytes); !why.empty()) return why;
  if (auto why = over("facts", facts_size, kMaxFactsBytes); !why.empty()) return why;
  return over("payload", payload_size, kMaxPayloadBytes);
}

std::vector<std::byte> encode_head(std::string_view key_text, std::string_view facts,
                                   std::span<const std::byte> payload) {
  std::vector<std::byte> head(kHeaderBytes + key_text.size() + facts.size());
  std::byte* const at = head.data();
  std::memcpy(at, kMagic.data(), kMagic.size());
  put(at + kSchemaAt, kSchema);
  put(at + kHeaderSizeAt, static_cast<std::uint32_t>(kHeaderBytes));
  put(at + kCodecAt, kCodecRaw);
  put(at + kSignatureSizeAt, std::uint32_t{0});
  put(at + kKeySizeAt, std::uint64_t{key_text.size()});
  put(at + kFactsSizeAt, std::uint64_t{facts.size()});
  put(at + kPayloadSizeAt, std::uint64_t{payload.size()});
  put_digest(at + kPayloadDigestAt, digest_of(payload));
  std::copy_n(reinterpret_cast<const std::byte*>(key_text.data()), key_text.size(),
              at + kHeaderBytes);
  std::copy_n(reinterpret_cast<const std::byte*>(facts.data()), facts.size(),
              at + kHeaderBytes + key_text.size());
  put_digest(at + kHeaderDigestAt, head_digest(head));
  return head;
}

std::string header_damage(std::span<const std::byte> start, std::uint64_t file_size) {
  if (file_size == 0) return "empty file";
  if (file_size < kHeaderBytes || start.size() < kHeaderBytes)
    return "cut short: " + number(file_size) + " bytes, a header has " + number(kHeaderBytes);
  const std::byte* const at = start.data();
  if (std::memcmp(at, kMagic.data(), kMagic.size()) != 0) return "not a Kiln entry";
  if (const auto schema = get<std::uint32_t>(at + kSchemaAt); schema != kSchema)
    return other_maker(schema);
  if (const auto size = get<std::uint32_t>(at + kHeaderSizeAt); size != kHeaderBytes)
    return "declares a header of " + number(size) + " bytes, not " + number(kHeaderBytes);
  if (const auto codec = get<std::uint32_t>(at + kCodecAt); codec != kCodecRaw)
    return "made by a newer Kiln (codec " + number(codec) + ")";
  if (const auto size = get<std::uint32_t>(at + kSignatureSizeAt); size != 0)
    return "made by a newer Kiln (a signature of " + number(size) + " bytes)";

  const auto key_size = get<std::uint64_t>(at + kKeySizeAt);
  const auto facts_size = get<std::uint64_t>(at + kFactsSizeAt);
  const auto payload_size = get<std::uint64_t>(at + kPayloadSizeAt);
  if (auto why = limit_exceeded(key_size, facts_size, payload_size); !why.empty())
    return "declares a " + why;
  // Cannot wrap: each part is below its limit.
  const std::uint64_t declared = kHeaderBytes + key_size + facts_size + payload_size;
  if (file_size < declared)
    return "cut short: " + number(file_size) + " of " + number(declared) + " bytes";
  if (file_size > declared) return number(file_size - declared) + " bytes of junk at its end";
  return {};
}

Found EntryDecoder::decode(std::shared_ptr<std::byte[]> bytes, std::size_t size, const Digest& name,
                           std::optional<std::string_view> key_text) {
  std::byte* const at = bytes.get();
  if (auto why = header_damage({at, std::min(size, kHeaderBytes)}, size); !why.empty())
    return damaged(std::move(why));

  Entry entry;
  entry.key_offset_ = kHeaderBytes;
  entry.key_size_ = static_cast<std::size_t>(get<std::uint64_t>(at + kKeySizeAt));
  entry.facts_offset_ = entry.key_offset_ + entry.key_size_;
  entry.facts_size_ = static_cast<std::size_t>(get<std::uint64_t>(at + kFactsSizeAt));
  entry.payload_offset_ = entry.facts_offset_ + entry.facts_size_;
  entry.payload_size_ = static_cast<std::size_t>(get<std::uint64_t>(at + kPayloadSizeAt));

  if (head_digest({at, entry.payload_offset_}) != get_digest(at + kHeaderDigestAt))
    return damaged("header digest differs");
  const std::string_view key_inside = text_at(at, entry.key_offset_, entry.key_size_);
  if (digest_of(key_inside) != name) return damaged("holds the entry of another key");
  if (key_text && *key_text != key_inside) return damaged("key text differs");
  if (digest_of(std::span<const std::byte>(at + entry.payload_offset_, entry.payload_size_)) !=
      get_digest(at + kPayloadDigestAt))
    return damaged("payload digest differs");

  entry.bytes_ = std::move(bytes);
  return {.entry = std::move(entry), .damage = {}};
}

std::string_view Entry::key_text() const noexcept {
  return text_at(bytes_.get(), key_offset_, key_size_);
}

std::string_view Entry::facts() const noexcept {
  return text_at(bytes_.get(), facts_offset_, facts_size_);
}

std::span<const std::byte> Entry::payload() const noexcept {
  return {bytes_.get() + payload_offset_, payload_size_};
}

}  // namespace kiln::cache
