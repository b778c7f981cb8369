// Bundles: entries of a store in one file that can be given to others. Equal entries give equal
// bytes, and one ed25519 signature over the index vouches for each of them by its SHA-256, so that
// a bundle can be trusted wherever it comes from. BUNDLE.md gives the bytes.
//
// It knows nothing of CUDA: architectures and toolchains are texts of whoever writes the bundle.
// Threads: every member of Bundle from any thread. Nothing here writes to a bundle that it reads,
// and nothing locks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// One line of the index: what the signature says of an entry.
struct BundleEntry {
  Digest name{};
  Sha256 key_sha256{};    ///< of the key text
  Sha256 entry_sha256{};  ///< of the whole entry, which is what its file in a store holds
  std::uint64_t entry_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::string architecture{};
  std::string toolchain{};
};

/// Whose bundles are taken.
struct Signers {
  std::vector<PublicKey> keys{};  ///< one of these must have signed
  /// Takes a bundle whoever signed it, and one that nobody did: that guards against accidents and
  /// not against people.
  bool anyone = false;
};

class KILN_API Bundle {
 public:
  /// Reads the index and checks its signature; entries are read and checked one by one, by find().
  /// Errors  io_failed, with the path and the reason: the file cannot be read, is no whole bundle,
  ///         or nobody of `accepted` signed it (the message names the key that did);
  ///         unsupported without libsodium. `untrusted`, if not null, says whether it is the
  ///         signature that an error speaks of.
  static Result<Bundle> open(const std::filesystem::path& file, const Signers& accepted,
                             bool* untrusted = nullptr);
  Bundle(Bundle&&) noexcept;
  Bundle& operator=(Bundle&&) noexcept;
  ~Bundle();

  const std::filesystem::path& file() const noexcept;
  std::uint64_t file_bytes() const noexcept;
  /// Who signed it; empty for an unsigned one.
  const std::optional<PublicKey>& signer() const noexcept;
  /// In order of name.
  const std::vector<BundleEntry>& entries() const noexcept;

  /// The entry `name`, read and checked against the index, or what is wrong with it, or nothing.
  /// Where `key_text` is given, the entry's must equal it.
  /// Errors  io_failed when the file cannot be read now.
  Result<Found> find(const Digest& name,
                     std::optional<std::string_view> key_text = std::nullopt) const;

 private:
  friend class BundleWithCalls;
  struct KILN_HIDDEN State;
  explicit Bundle(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// An entry of a store that goes into a bundle, and what the index says of it.
struct BundleSource {
  Digest name{};
  std::string architecture{};  ///< at most 4 KiB, as is the toolchain
  std::string toolchain{};
};

/// Puts the entries `sources` of `store` into `file`, in place of a file that stands there: whole
/// or not at all. Their order does not matter, and one that is named twice counts once. `signer`
/// may be null: then the bundle is unsigned. One entry at a time is held in memory.
/// Errors  io_failed when an entry is absent or damaged, or the file cannot be written;
///         invalid_argument for too many entries or too long a text; unsupported without libsodium.
/// `went`, if not null, says whether an error speaks of an entry that is absent or was replaced
/// meanwhile, as one is that others trim: a new list of the store's may do.
KILN_API Status write_bundle(const Store& store, std::vector<BundleSource> sources,
                             const SecretKey* signer, const std::filesystem::path& file,
                             bool* went = nullptr);

}  // namespace kiln::cache
