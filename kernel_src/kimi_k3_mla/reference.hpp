// Kimi-K3 MLA on the host in double: what outputs ought to be before they are rounded to bf16, what
// the kernels' roundings make of them, and how far others are from it. All pointers of a Call are
// host pointers here.
//
// Threads: pure functions over the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "kernel_src/kimi_k3_mla/contract.hpp"
#include "kiln/cache/api.hpp"

namespace kiln::kernels::kimi_k3_mla {

/// What a call puts out, as numbers: of the rows that it writes.
struct Output {
  std::size_t heads = 0;
  std::vector<double> values{};  // [query_starts[batch], heads, 512]

  std::span<const double> of(std::size_t token, std::size_t head) const {
    return std::span(values).subspan((token * heads + head) * kLatentDim, kLatentDim);
  }
};

/// One query row, as the contract in arguments.hpp says. Its token is `token` of its request.
KILN_API std::array<double, kLatentDim> reference_row(const Call& call, u64 request, u64 token,
                                                      u64 head);

/// All of them.
KILN_API Output reference(const Call& call);

/// Where a kernel may round, each part alone, to see what it costs.
struct Numerics {
  /// E4M3 terms that make up p, relative to the running maximum of the 128-key tiles so far: one,
  /// or two, the second of what the first leaves; 0: p is not rounded.
  u32 e4m3_terms = 0;
  bool sum_of_rounded = false;  // of the rounded weights, not of those before
  float largest_weight = 448;   // what the running maximum's own weight is: 448 at most
  u32 split = 1;                // partial outputs are rounded to bf16 where it is above 1
};

/// As reference(), with the roundings of a kernel; sums stay double.
KILN_API Output model(const Call& call, const Numerics& numerics);

/// Token in its request's place, and the number of keys that it sees.
struct TokenPlace {
  u64 request = 0;
  u64 token = 0;  // of the request
  u64 keys = 0;   // that it sees
};
/// Of each token that the call writes, in order.
KILN_API std::vector<TokenPlace> token_places(const Call& call);

/// Rounded to bf16 by way of float, as the kernels store it.
KILN_API std::vector<u16> bf16_of(const Output& output);

/// How far `got` is from `want`.
struct Errors {
  u64 mismatches = 0;      // |got - want| > absolute + relative * |want|, or NaN on one side alone
  double largest = 0;      // |got - want|, where neither is NaN
  double relative_l2 = 0;  // |got - want| / |want| over those; 0 where both are 0
  bool finite = true;      // all of `got`
};
/// Requires `got` to have as many elements, of bf16.
KILN_API Errors errors_of(std::span<const u16> got, const Output& want, double absolute,
                          double relative);

}  // namespace kiln::kernels::kimi_k3_mla
