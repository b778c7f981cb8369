#include "cache/remote/object.hpp"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
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

#include "cache/bundle_format.hpp"
#include "cache/bundle_seal.hpp"
#include "cache/entry_format.hpp"
#include "cache/little_endian.hpp"
#include "cache/sodium.hpp"

namespace kiln::cache {
namespace {

// Cubins shrink to a third at this level, at some 300 MB/s; higher ones gain little.
constexpr int kLevel = 3;
constexpr std::uint64_t kMostIndexBytes = kRecordBytes + 2 * kMaxLabelBytes;

Sha256 sha256(const Sodium& library, std::span<const std::byte> bytes) {
  Sha256 digest;
  library.sha256(reinterpret_cast<unsigned char*>(digest.bytes.data()),
                 reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return digest;
}

/// Appends `entry` compressed, or as it is where that does not make it smaller.
void append_packed(std::vector<std::byte>& object, std::span<const std::byte> entry) {
  const std::size_t before = object.size();
  object.resize(before + ZSTD_compressBound(entry.size()));
  const std::size_t packed = ZSTD_compress(object.data() + before, object.size() - before,
                                           entry.data(), entry.size(), kLevel);
  if (ZSTD_isError(packed) != 0 || packed >= entry.size()) {
    object.resize(before);
    object.insert(object.end(), entry.begin(), entry.end());
  } else {
    object.resize(before + packed);
  }
}

DecodedObject refused(RemoteFailure failure, std::string why) {
  return {.failure = failure, .why = std::move(why)};
}

/// Fills `entry`, which has the signed size, from the end of an object.
DecodedObject unpack(std::span<const std::byte> packed, std::span<std::byte> entry) {
  const bool is_frame = packed.size() >= 4 && get<std::uint32_t>(packed.data()) == ZSTD_MAGICNUMBER;
  if (!is_frame) {
    if (packed.size() != entry.size())
      return refused(RemoteFailure::damaged_object,
                     "it holds an entry of " + std::to_string(packed.size()) + " bytes, and " +
                         std::to_string(entry.size()) + " were signed");
    std::copy(packed.begin(), packed.end(), entry.begin());
    return {};
  }
  const std::size_t got = ZSTD_decompress(entry.data(), entry.size(), packed.data(), packed.size());
  if (ZSTD_getErrorCode(got) == ZSTD_error_dstSize_tooSmall)
    return refused(RemoteFailure::expands_too_far, "it decompresses to more than the " +
                                                       std::to_string(entry.size()) +
                                                       " bytes that were signed");
  if (ZSTD_isError(got) != 0 || got != entry.size())
    return refused(RemoteFailure::damaged_object, "it cannot be decompressed");
  return {};
}

}  // namespace

Result<std::vector<std::byte>> encode_object(std::string_view key_text, std::string_view facts,
                                             std::span<const std::byte> payload,
                                             const EntryLabels& labels, const SecretKey* signer) {
  if (labels.architecture.size() > kMaxLabelBytes || labels.toolchain.size() > kMaxLabelBytes)
    return Error(ErrorCode::invalid_argument,
                 "the architecture or the toolchain of an object is over " +
                     std::to_string(kMaxLabelBytes) + " bytes; shorten it");
  auto entry = encode_head(key_text, facts, payload);
  entry.insert(entry.end(), payload.begin(), payload.end());
  KILN_TRY(const Sodium* const library, sodium());
  const BundleEntry record{.name = digest_of(key_text),
                           .key_sha256 = sha256(*library, std::as_bytes(std::span(key_text))),
                           .entry_sha256 = sha256(*library, entry),
                           .entry_bytes = entry.size(),
                           .payload_bytes = payload.size(),
                           .architecture = labels.architecture,
                           .toolchain = labels.toolchain};
  auto object = encode_index(signer != nullptr ? std::optional(signer->public_key()) : std::nullopt,
                             {&record, 1});
  KILN_TRY(const auto seal, seal_of(object, signer));
  object.insert(object.end(), seal.begin(), seal.end());
  append_packed(object, entry);
  return object;
}

CheckedFront check_front(std::span<const std::byte> so_far, const WantedObject& wanted) {
  const auto no = [](RemoteFailure failure, std::string why) {
    return CheckedFront{.failure = failure, .why = std::move(why)};
  };
  const auto library = sodium();
  if (!library) return no(RemoteFailure::bad_signature, library.error().message());
  if (so_far.size() < kBundleHeadBytes) return {};
  BundleHead head;
  if (auto why = decode_head_alone(so_far, head); !why.empty())
    return no(RemoteFailure::damaged_object, std::move(why));
  if (head.count != 1 || head.index_bytes > kMostIndexBytes)
    return no(RemoteFailure::damaged_object, "it is a bundle, and no object of one entry");
  // Before the rest has come: who signed it is no better then.
  if (auto why = refusal_of(head.signer, wanted.accepted); !why.empty())
    return no(head.signer ? RemoteFailure::untrusted_signer : RemoteFailure::unsigned_object,
              std::move(why));
  const std::size_t message_bytes = kBundleHeadBytes + static_cast<std::size_t>(head.index_bytes);
  if (so_far.size() < message_bytes + kBundleSealBytes) return {};
  const auto message = so_far.first(message_bytes);
  if (auto why = seal_damage(**library, head.signer, message,
                             so_far.subspan(message_bytes, kBundleSealBytes));
      !why.empty())
    return no(RemoteFailure::bad_signature, std::move(why));

  // What follows is as its signer wrote it.
  std::vector<BundleEntry> records;
  if (auto why = decode_index(head, message.subspan(kBundleHeadBytes), records); !why.empty())
    return no(RemoteFailure::damaged_object, std::move(why));
  BundleEntry& record = records.front();
  if (record.key_sha256 != wanted.key_sha256)
    return no(RemoteFailure::wrong_object,
              "it is the object of another key, " + record.key_sha256.hex());
  if (record.entry_bytes > wanted.most_bytes)
    return no(RemoteFailure::too_large, "its entry has " + std::to_string(record.entry_bytes) +
                                            " bytes, over the limit of " +
                                            std::to_string(wanted.most_bytes));
  return {.front =
              ObjectFront{.record = std::move(record), .bytes = message_bytes + kBundleSealBytes}};
}

DecodedObject decode_body(std::span<const std::byte> bytes, const ObjectFront& front,
                          const WantedObject& wanted) {
  const auto library = sodium();
  if (!library) return refused(RemoteFailure::bad_signature, library.error().message());
  if (bytes.size() > front.most_bytes())
    return refused(RemoteFailure::too_large, "it has " + std::to_string(bytes.size()) +
                                                 " bytes, and no object of its entry " +
                                                 "has more than " +
                                                 std::to_string(front.most_bytes()));
  if (bytes.size() < front.bytes) return refused(RemoteFailure::damaged_object, "it is cut short");
  const auto size = static_cast<std::size_t>(front.record.entry_bytes);
  std::shared_ptr<std::byte[]> entry(new std::byte[size]);
  if (auto unpacked = unpack(bytes.subspan(front.bytes), {entry.get(), size});
      unpacked.failure != RemoteFailure::none)
    return unpacked;
  if (sha256(**library, {entry.get(), size}) != front.record.entry_sha256)
    return refused(RemoteFailure::damaged_object, "SHA-256 of its entry differs");
  Found found = EntryDecoder::decode(std::move(entry), size, wanted.name, wanted.key_text);
  if (!found.entry) return refused(RemoteFailure::damaged_object, std::move(found.damage));
  return {.entry = std::move(found.entry)};
}

DecodedObject decode_object(std::span<const std::byte> bytes, const WantedObject& wanted) {
  auto checked = check_front(bytes, wanted);
  if (checked.failure != RemoteFailure::none)
    return refused(checked.failure, std::move(checked.why));
  if (!checked.front)
    return refused(RemoteFailure::damaged_object,
                   "it is cut short, or no object: " + std::to_string(bytes.size()) + " bytes");
  return decode_body(bytes, *checked.front, wanted);
}

}  // namespace kiln::cache
