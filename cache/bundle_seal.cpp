#include "cache/bundle_seal.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/bundle_format.hpp"
#include "cache/sodium.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/signing.hpp"

namespace kiln::cache {
namespace {

std::string demand_of(const std::vector<PublicKey>& keys) {
  if (keys.empty()) return "no signer is accepted";
  std::string names;
  for (const auto& key : keys) names += (names.empty() ? "" : " or ") + key.text();
  return "must be signed by " + names;
}

}  // namespace

std::string refusal_of(const std::optional<PublicKey>& signer, const Signers& accepted) {
  if (accepted.anyone) return {};
  if (!signer)
    return "it is unsigned, and " + demand_of(accepted.keys) +
           "; get a signed one, or accept unsigned ones";
  if (std::find(accepted.keys.begin(), accepted.keys.end(), *signer) == accepted.keys.end())
    return "it names " + signer->text() + " as its signer, and " + demand_of(accepted.keys) +
           "; accept that key if you trust its owner, or get another bundle";
  return {};
}

std::string seal_damage(const Sodium& library, const std::optional<PublicKey>& signer,
                        std::span<const std::byte> message, std::span<const std::byte> seal) {
  const auto raw = [](std::span<const std::byte> bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  };
  if (signer) {
    if (library.verify(raw(seal), raw(message), message.size(), raw(signer->bytes)) == 0) return {};
    return "its signature is not one of " + signer->text() +
           " over this index: it was changed after it was signed; get it anew";
  }
  std::array<std::byte, kBundleSealBytes> expected{};
  library.sha256(reinterpret_cast<unsigned char*>(expected.data()), raw(message), message.size());
  if (std::equal(seal.begin(), seal.end(), expected.begin(), expected.end())) return {};
  return "the digest of its index differs: it is damaged; get it anew";
}

Result<std::array<std::byte, kBundleSealBytes>> seal_of(std::span<const std::byte> message,
                                                        const SecretKey* signer) {
  if (signer != nullptr) return signer->sign(message);
  KILN_TRY(const Sha256 digest, sha256_of(message));
  std::array<std::byte, kBundleSealBytes> seal{};
  std::copy(digest.bytes.begin(), digest.bytes.end(), seal.begin());
  return seal;
}

}  // namespace kiln::cache
