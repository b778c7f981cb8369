// What travels: an object, which is a bundle of one entry whose entry may be compressed. REMOTE.md
// explains it; BUNDLE.md gives head, index and seal. All that decides whether to believe it stands
// before the entry, so that nothing is waited for or decompressed that nobody vouches for, and
// never to more than the signed size.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/bundle.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// The object of an entry, whose bytes on disk are `head` (header, key text, facts) and `payload`.
/// `signer` may be null: then it is unsigned.
/// Errors  invalid_argument for labels that are too long; unsupported without libsodium.
Result<std::vector<std::byte>> encode_object(std::string_view key_text, std::string_view facts,
                                             std::span<const std::byte> payload,
                                             const EntryLabels& labels, const SecretKey* signer);

/// An entry, or why there is none.
struct DecodedObject {
  std::optional<Entry> entry{};
  RemoteFailure failure = RemoteFailure::none;
  std::string why{};
};

/// Who asks, and for what.
struct WantedObject {
  Digest name{};
  Sha256 key_sha256{};
  std::string_view key_text{};
  const Signers& accepted;
  std::uint64_t most_bytes = 0;  ///< of the entry
};

/// What stands before the entry, once it is believed.
struct ObjectFront {
  BundleEntry record{};
  std::size_t bytes = 0;  ///< where the entry begins
  /// No object of this front is longer: an entry is not compressed where that does not shorten it.
  std::uint64_t most_bytes() const noexcept { return bytes + record.entry_bytes; }
};

/// A front, or why it is refused; neither while more of it has to come.
struct CheckedFront {
  std::optional<ObjectFront> front{};
  RemoteFailure failure = RemoteFailure::none;
  std::string why{};
};

/// Checks the beginning of an object, as far as it has come.
CheckedFront check_front(std::span<const std::byte> so_far, const WantedObject& wanted);

/// Makes an entry of a whole object, whose front has been checked.
DecodedObject decode_body(std::span<const std::byte> bytes, const ObjectFront& front,
                          const WantedObject& wanted);

/// Checks `bytes` from first to last, and makes an entry of them.
DecodedObject decode_object(std::span<const std::byte> bytes, const WantedObject& wanted);

}  // namespace kiln::cache
