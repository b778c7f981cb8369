// The bytes of an entry: encoding, and decoding with every check. Pure: no file, no clock.
// FORMAT.md explains the format with a worked example; this is the grammar, all integers
// little-endian:
//
//   entry   = header key facts payload
//   header  = magic:8                 "KILN" 0D 0A 1A 0A
//             schema:u32              1
//             header_size:u32         80
//             codec:u32               0: the payload is stored raw
//             signature_size:u32      0: a later schema may append a signature block
//             key_size:u64            at most 16 MiB
//             facts_size:u64          at most 16 MiB
//             payload_size:u64        at most 1 GiB; the four parts fill the file exactly
//             payload_digest:u128     XXH3-128 of the stored payload
//             header_digest:u128      XXH3-128 of header (this field zero), key and facts
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

inline constexpr std::uint32_t kSchema = 1;
inline constexpr std::size_t kHeaderBytes = 80;
inline constexpr std::uint64_t kMaxKeyBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxFactsBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 30;

/// Why these parts cannot be stored: the one that is too long; empty when they can.
std::string limit_exceeded(std::uint64_t key_size, std::uint64_t facts_size,
                           std::uint64_t payload_size);

/// Header, key text and facts; an entry is these bytes followed by `payload`.
std::vector<std::byte> encode_head(std::string_view key_text, std::string_view facts,
                                   std::span<const std::byte> payload);

/// What is wrong with the start of a file of `file_size` bytes, judged by its first kHeaderBytes
/// bytes (all of it if it is shorter) before anything is allocated for it. Empty when the sizes
/// are right; the digests are not looked at.
std::string header_damage(std::span<const std::byte> start, std::uint64_t file_size);

class EntryDecoder {
 public:
  /// Checks the `size` bytes at `bytes`, which nobody else may write, and makes an entry of them.
  /// The key text inside must have the digest `name`, and equal `key_text` where that is given.
  /// Returns an entry or a damage, never neither.
  static Found decode(std::shared_ptr<std::byte[]> bytes, std::size_t size, const Digest& name,
                      std::optional<std::string_view> key_text);
};

}  // namespace kiln::cache
