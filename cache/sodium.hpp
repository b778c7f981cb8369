// libsodium, opened at its first use: the few functions of it that signing needs.
//
// Threads: any.
#pragma once

#include <sodium.h>

#include "kiln/cache/result.hpp"

namespace kiln::cache {

/// Each member is the function of libsodium that it is named after, or does what that does.
struct Sodium {
  decltype(&::sodium_init) init = nullptr;
  decltype(&::randombytes_buf) random_bytes = nullptr;
  decltype(&::crypto_hash_sha256) sha256 = nullptr;
  decltype(&::crypto_sign_ed25519_seed_keypair) key_pair = nullptr;
  decltype(&::crypto_sign_ed25519_detached) sign = nullptr;
  decltype(&::crypto_sign_ed25519_verify_detached) verify = nullptr;
};

/// Never null; stays for the life of the process.
/// Errors  unsupported, with what to install, where it cannot be loaded.
Result<const Sodium*> sodium();

}  // namespace kiln::cache
