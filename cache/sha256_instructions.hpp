// SHA-256 by the instructions that most x86-64 processors since 2019 have: libsodium's own is in
// portable C, by which a hit of 40 KB in a mounted bundle took 169 us instead of 44.
//
// Threads: any.
#pragma once

namespace kiln::cache {

/// Of the type of crypto_hash_sha256.
using Sha256Function = int (*)(unsigned char* digest, const unsigned char* bytes,
                               unsigned long long size);

/// Null where the processor has no such instructions.
Sha256Function sha256_by_instructions() noexcept;

}  // namespace kiln::cache
