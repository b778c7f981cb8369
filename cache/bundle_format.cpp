#include "cache/bundle_format.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/entry_format.hpp"
#include "cache/little_endian.hpp"

namespace kiln::cache {
namespace {

// Broken by every conversion of line ends and by 7-bit transfer, as that of an entry.
constexpr std::array<unsigned char, 8> kBundleMagic = {'K', 'I', 'L', 'B', 0x0D, 0x0A, 0x1A, 0x0A};
constexpr std::uint32_t kBundleSchema = 1;
constexpr std::uint32_t kUnsigned = 0;
constexpr std::uint32_t kEd25519 = 1;

constexpr std::size_t kBundleSchemaAt = 8;
constexpr std::size_t kSealKindAt = 12;
constexpr std::size_t kCountAt = 16;
constexpr std::size_t kIndexSizeAt = 24;
constexpr std::size_t kEntriesSizeAt = 32;
constexpr std::size_t kSignerAt = 40;
static_assert(kSignerAt + sizeof(PublicKey) == kBundleHeadBytes);

constexpr std::size_t kKeySha256At = 16;
constexpr std::size_t kEntrySha256At = 48;
constexpr std::size_t kEntrySizeAt = 80;
constexpr std::size_t kEntryPayloadSizeAt = 88;
constexpr std::size_t kArchitectureSizeAt = 96;
constexpr std::size_t kToolchainSizeAt = 100;
static_assert(kToolchainSizeAt + sizeof(std::uint32_t) == kRecordBytes);

std::string decimal(std::uint64_t value) {
  return std::to_string(value);
}

template <class Bytes>
Bytes get_bytes(const std::byte* from) noexcept {
  Bytes value;
  std::memcpy(value.bytes.data(), from, value.bytes.size());
  return value;
}

std::string text_at(const std::byte* from, std::size_t size) {
  return {reinterpret_cast<const char*>(from), size};
}

}  // namespace

std::string decode_head_alone(std::span<const std::byte> start, BundleHead& head) {
  if (start.size() < kBundleHeadBytes)
    return "it is cut short, or no Kiln bundle: " + decimal(start.size()) + " bytes, a head has " +
           decimal(kBundleHeadBytes);
  const std::byte* const at = start.data();
  if (std::memcmp(at, kBundleMagic.data(), kBundleMagic.size()) != 0) return "it is no Kiln bundle";
  if (const auto schema = get<std::uint32_t>(at + kBundleSchemaAt); schema != kBundleSchema)
    return "another Kiln made it (schema " + decimal(schema) + ", this one reads " +
           decimal(kBundleSchema) + ")";
  const auto seal = get<std::uint32_t>(at + kSealKindAt);
  if (seal != kUnsigned && seal != kEd25519)
    return "a newer Kiln made it (seal of kind " + decimal(seal) + ")";
  const auto signer = get_bytes<PublicKey>(at + kSignerAt);
  if (seal == kEd25519)
    head.signer = signer;
  else if (signer != PublicKey{})
    return "it is unsigned and names a signer";

  head.count = get<std::uint64_t>(at + kCountAt);
  head.index_bytes = get<std::uint64_t>(at + kIndexSizeAt);
  head.entries_bytes = get<std::uint64_t>(at + kEntriesSizeAt);
  if (head.index_bytes > kMaxIndexBytes)
    return "it declares an index of " + decimal(head.index_bytes) + " bytes, over the limit of " +
           decimal(kMaxIndexBytes);
  // Each record takes its part of the index, so that a count that fits sets aside what is there.
  if (head.count > head.index_bytes / kRecordBytes)
    return "it declares " + decimal(head.count) + " entries, and its index has room for " +
           decimal(head.index_bytes / kRecordBytes);
  return {};
}

std::string decode_head(std::span<const std::byte> start, std::uint64_t file_size,
                        BundleHead& head) {
  if (auto why = decode_head_alone(start, head); !why.empty()) return why;
  // Cannot wrap: the index is below its limit.
  const std::uint64_t before = kBundleHeadBytes + head.index_bytes + kBundleSealBytes;
  if (file_size < before || file_size - before < head.entries_bytes)
    return "it is cut short: " + decimal(file_size) + " bytes, of " + decimal(before) +
           " before its entries and " + decimal(head.entries_bytes) + " of them";
  if (file_size - before > head.entries_bytes)
    return "it has " + decimal(file_size - before - head.entries_bytes) +
           " bytes of junk at its end";
  return {};
}

std::string decode_index(const BundleHead& head, std::span<const std::byte> index,
                         std::vector<BundleEntry>& entries) {
  constexpr std::uint64_t kMostEntryBytes =
      kHeaderBytes + kMaxKeyBytes + kMaxFactsBytes + kMaxPayloadBytes;
  entries.clear();
  entries.reserve(static_cast<std::size_t>(head.count));
  std::uint64_t total = 0;
  while (!index.empty()) {
    const auto which = "record " + decimal(entries.size()) + " of its index ";
    if (entries.size() == head.count || index.size() < kRecordBytes)
      return which + "is beyond the " + decimal(head.count) + " that it declares, or cut short";
    const std::byte* const at = index.data();
    BundleEntry entry{.name = get_digest(at),
                      .key_sha256 = get_bytes<Sha256>(at + kKeySha256At),
                      .entry_sha256 = get_bytes<Sha256>(at + kEntrySha256At),
                      .entry_bytes = get<std::uint64_t>(at + kEntrySizeAt),
                      .payload_bytes = get<std::uint64_t>(at + kEntryPayloadSizeAt)};
    const std::uint64_t architecture = get<std::uint32_t>(at + kArchitectureSizeAt);
    const std::uint64_t toolchain = get<std::uint32_t>(at + kToolchainSizeAt);
    if (architecture > kMaxLabelBytes || toolchain > kMaxLabelBytes ||
        architecture + toolchain > index.size() - kRecordBytes)
      return which + "declares texts that are over the limit, or cut short";
    if (entry.entry_bytes < kHeaderBytes || entry.entry_bytes > kMostEntryBytes ||
        entry.payload_bytes > entry.entry_bytes - kHeaderBytes)
      return which + "declares an entry of " + decimal(entry.entry_bytes) + " bytes with " +
             decimal(entry.payload_bytes) + " of payload";
    if (!entries.empty() && !(entries.back().name < entry.name)) return which + "is out of order";
    const auto architecture_size = static_cast<std::size_t>(architecture);
    const auto toolchain_size = static_cast<std::size_t>(toolchain);
    entry.architecture = text_at(at + kRecordBytes, architecture_size);
    entry.toolchain = text_at(at + kRecordBytes + architecture_size, toolchain_size);
    // Cannot wrap: there are fewer records than bytes of the index, each below its limit.
    total += entry.entry_bytes;
    index = index.subspan(kRecordBytes + architecture_size + toolchain_size);
    entries.push_back(std::move(entry));
  }
  if (entries.size() != head.count)
    return "its index holds " + decimal(entries.size()) + " of the " + decimal(head.count) +
           " records that it declares";
  if (total != head.entries_bytes)
    return "its index speaks of " + decimal(total) + " bytes of entries, and there are " +
           decimal(head.entries_bytes);
  return {};
}

std::vector<std::byte> encode_index(const std::optional<PublicKey>& signer,
                                    std::span<const BundleEntry> entries) {
  std::vector<std::byte> bytes(kBundleHeadBytes);
  std::uint64_t total = 0;
  for (const auto& entry : entries) {
    total += entry.entry_bytes;
    const std::size_t start = bytes.size();
    bytes.resize(start + kRecordBytes + entry.architecture.size() + entry.toolchain.size());
    std::byte* const at = bytes.data() + start;
    put_digest(at, entry.name);
    std::copy(entry.key_sha256.bytes.begin(), entry.key_sha256.bytes.end(), at + kKeySha256At);
    std::copy(entry.entry_sha256.bytes.begin(), entry.entry_sha256.bytes.end(),
              at + kEntrySha256At);
    put(at + kEntrySizeAt, entry.entry_bytes);
    put(at + kEntryPayloadSizeAt, entry.payload_bytes);
    put(at + kArchitectureSizeAt, static_cast<std::uint32_t>(entry.architecture.size()));
    put(at + kToolchainSizeAt, static_cast<std::uint32_t>(entry.toolchain.size()));
    const auto texts = std::as_bytes(std::span(entry.architecture));
    const auto end = std::copy(texts.begin(), texts.end(), at + kRecordBytes);
    const auto more = std::as_bytes(std::span(entry.toolchain));
    std::copy(more.begin(), more.end(), end);
  }
  std::byte* const head = bytes.data();
  std::memcpy(head, kBundleMagic.data(), kBundleMagic.size());
  put(head + kBundleSchemaAt, kBundleSchema);
  put(head + kSealKindAt, signer ? kEd25519 : kUnsigned);
  put(head + kCountAt, std::uint64_t{entries.size()});
  put(head + kIndexSizeAt, std::uint64_t{bytes.size() - kBundleHeadBytes});
  put(head + kEntriesSizeAt, total);
  if (signer) std::copy(signer->bytes.begin(), signer->bytes.end(), head + kSignerAt);
  return bytes;
}

}  // namespace kiln::cache
