// The bytes of a bundle before its entries: encoding, and decoding with every check of sizes and
// order. Pure: no file, no signature. BUNDLE.md explains the format; this is the grammar, all
// integers little-endian:
//
//   bundle    = head index seal entries
//   head      = magic:8            "KILB" 0D 0A 1A 0A
//               schema:u32         1
//               seal_kind:u32      0: accidents only, 1: ed25519
//               count:u64          of records
//               index_size:u64     at most 64 MiB
//               entries_size:u64   the four parts fill the file exactly
//               signer:32          ed25519 public key; zeros with seal kind 0
//   index     = record*            by ascending name
//   record    = name:u128          XXH3-128 of the key text
//               key_sha256:32      of the key text
//               entry_sha256:32    of the entry's bytes
//               entry_size:u64
//               payload_size:u64
//               architecture_size:u32  at most 4 KiB
//               toolchain_size:u32     at most 4 KiB
//               architecture toolchain
//   seal      = 64 bytes           1: signature of head and index; 0: their SHA-256, then zeros
//   entries   = entry*             as FORMAT.md has them, one for each record and in its order
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kiln/cache/bundle.hpp"
#include "kiln/cache/signing.hpp"

namespace kiln::cache {

inline constexpr std::size_t kBundleHeadBytes = 72;
inline constexpr std::size_t kBundleSealBytes = 64;
inline constexpr std::size_t kRecordBytes = 104;
inline constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMaxLabelBytes = 4096;

struct BundleHead {
  std::optional<PublicKey> signer{};
  std::uint64_t count = 0;
  std::uint64_t index_bytes = 0;
  std::uint64_t entries_bytes = 0;
};

/// Fills `head` from the first kBundleHeadBytes bytes, whatever follows them. Returns what is
/// wrong; empty when its sizes are below their limits.
std::string decode_head_alone(std::span<const std::byte> start, BundleHead& head);

/// Fills `head` from the first kBundleHeadBytes bytes (all of it if it is shorter) of a file of
/// `file_size` bytes. Returns what is wrong; empty when its sizes are those of the file.
std::string decode_head(std::span<const std::byte> start, std::uint64_t file_size,
                        BundleHead& head);

/// Fills `entries` from the `index` that belongs to `head`. Returns what is wrong, or nothing.
std::string decode_index(const BundleHead& head, std::span<const std::byte> index,
                         std::vector<BundleEntry>& entries);

/// Head and index of a bundle of `entries`, which are in order of name.
std::vector<std::byte> encode_index(const std::optional<PublicKey>& signer,
                                    std::span<const BundleEntry> entries);

}  // namespace kiln::cache
