// What is signed of a bundle, and of an object on the wire, which is a bundle of one entry: its
// head and its index as they stand.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "cache/bundle_format.hpp"
#include "cache/sodium.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"

namespace kiln::cache {

/// Why `signer` will not do; empty when it does.
std::string refusal_of(const std::optional<PublicKey>& signer, const Signers& accepted);

/// Whether `seal` belongs to `message`, which is head and index. Empty when it does.
std::string seal_damage(const Sodium& library, const std::optional<PublicKey>& signer,
                        std::span<const std::byte> message, std::span<const std::byte> seal);

/// The seal of `message`; `signer` may be null. Errors  unsupported without libsodium.
Result<std::array<std::byte, kBundleSealBytes>> seal_of(std::span<const std::byte> message,
                                                        const SecretKey* signer);

}  // namespace kiln::cache
