#include "cache/sha256_instructions.hpp"

#ifdef __x86_64__

#include <cpuid.h>
#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kiln::cache {
namespace {

constexpr std::size_t kBlock = 64;

// The constants of FIPS 180-4, sections 4.2.2 and 5.3.3.
alignas(16) constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr std::array<std::uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/// The eight words a to h in the order that the instructions work on.
struct State {
  __m128i abef;
  __m128i cdgh;
};

__m128i load(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

__m128i word4(std::uint32_t high, std::uint32_t second, std::uint32_t third, std::uint32_t low) {
  return _mm_set_epi32(static_cast<int>(high), static_cast<int>(second), static_cast<int>(third),
                       static_cast<int>(low));
}

__attribute__((target("sha,sse4.1"))) void add_blocks(State& state, const unsigned char* bytes,
                                                      std::size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  for (; count > 0; --count, bytes += kBlock) {
    const State before = state;
    __m128i words[4];  // the last sixteen of the message schedule
    for (std::size_t i = 0; i < 4; ++i)
      words[i] = _mm_shuffle_epi8(load(bytes + 16 * i), big_endian);
    for (std::size_t four = 0; four < 16; ++four) {  // rounds at a time
      __m128i& oldest = words[four % 4];
      const __m128i newest = words[(four + 3) % 4];
      __m128i sum = _mm_add_epi32(oldest, load(&kRound[4 * four]));
      state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, sum);
      sum = _mm_shuffle_epi32(sum, 0x0e);
      state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, sum);
      if (four >= 12) continue;
      const __m128i seven_back = _mm_alignr_epi8(newest, words[(four + 2) % 4], 4);
      oldest = _mm_sha256msg2_epu32(
          _mm_add_epi32(_mm_sha256msg1_epu32(oldest, words[(four + 1) % 4]), seven_back), newest);
    }
    state.abef = _mm_add_epi32(state.abef, before.abef);
    state.cdgh = _mm_add_epi32(state.cdgh, before.cdgh);
  }
}

int sha256(unsigned char* digest, const unsigned char* bytes, unsigned long long size) {
  const auto& s = kStart;
  State state = {.abef = word4(s[0], s[1], s[4], s[5]), .cdgh = word4(s[2], s[3], s[6], s[7])};
  const auto whole = static_cast<std::size_t>(size / kBlock);
  add_blocks(state, bytes, whole);

  // What is left, a one bit, zeros, and the length in bits, which ends a block.
  const auto left = static_cast<std::size_t>(size % kBlock);
  std::array<unsigned char, 2 * kBlock> end{};
  if (left != 0) std::memcpy(end.data(), bytes + whole * kBlock, left);
  end[left] = 0x80;
  const std::size_t blocks = left + 1 + 8 > kBlock ? 2 : 1;
  for (std::size_t i = 0; i < 8; ++i)
    end[blocks * kBlock - 1 - i] = static_cast<unsigned char>(size * 8 >> 8 * i);
  add_blocks(state, end.data(), blocks);

  std::array<std::uint32_t, 4> abef{}, cdgh{};  // the first letter in the last place
  std::memcpy(abef.data(), &state.abef, sizeof(abef));
  std::memcpy(cdgh.data(), &state.cdgh, sizeof(cdgh));
  const std::array words = {abef[3], abef[2], cdgh[3], cdgh[2], abef[1], abef[0], cdgh[1], cdgh[0]};
  for (std::size_t i = 0; i < 4 * words.size(); ++i)
    digest[i] = static_cast<unsigned char>(words[i / 4] >> (24 - 8 * (i % 4)));
  return 0;
}

}  // namespace

Sha256Function sha256_by_instructions() noexcept {
  constexpr unsigned kSse41 = 1U << 19, kSha = 1U << 29;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSse41) == 0) return nullptr;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & kSha) == 0) return nullptr;
  return sha256;
}

}  // namespace kiln::cache

#else

namespace kiln::cache {

Sha256Function sha256_by_instructions() noexcept {
  return nullptr;
}

}  // namespace kiln::cache

#endif
