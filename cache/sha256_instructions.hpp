// SHA-256 by the instructions that most x86-64 processors since 2019 have: libsodium's own is in
// portable C, which takes four times as long as reading the bytes does.
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
