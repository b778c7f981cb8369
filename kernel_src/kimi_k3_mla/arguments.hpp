// One call of Kimi-K3 MLA over an E4M3 paged latent cache, as its caller describes it, and what
// comes out of every input.
//
// Threads: values.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "kernel_src/shared/types.hpp"
#include "kiln/cache/api.hpp"

namespace kiln::kernels::kimi_k3_mla {

// A request has new tokens, the last ones of its sequence, and a sequence of keys in pages of 64.
// For token t of its q, and each head, over the keys k_i that the token sees, which are those with
// i < length - q + t + 1:
//
//   out = output_scale * sum_i p_i * v_i,  p = softmax over i of softmax_scale * (query . k_i)
//
// v_i is the first 512 elements of k_i. Query and keys are E4M3; descales are folded into the two
// scales. Out is rounded to bf16, ties to even. A kernel may round p to E4M3, relative to a
// reference of its own, and then divides by the sum of what it rounded; it sums in fp32, but for
// the products of a tile, which the matrix units sum in some 14 bits. reference.hpp's model()
// rounds as a kernel does, with the exact maximum for reference.
//
// How far out may be off, for keys and queries of unit variance: 0.01 + 2 % of it in plans of row
// tiles 16 and 32, which make p of two E4M3 terms; with one term, in the others, as much from some
// thousand keys on, and up to 0.03 for a few hundred. A key counts as nothing that lies 20 octaves
// (two terms) or 15 octaves (one) below the largest score of its row, however many there are.
//
// What the inputs may be:
//
//   length         of a request, its new tokens among them, up to its table's width * 64. 0: out is
//                  0 for all its tokens. Below q: the first tokens see no key, and their out is 0.
//                  Above max_keys: right too, since that is only what the plan was made for; so one
//                  graph serves all lengths
//   query_starts   from 0, never falling, up to tokens. A request may have no token: nothing is
//                  written for it. Rows from query_starts[batch] on are neither read nor written
//   block table    entry j names the page of the keys from 64 * j on: 0 to pages - 1 where the
//                  length has such keys. Others are never looked at. A page may be named often, by
//                  several requests too
//   wrong tables   are not refused where they lie on the device; see table_check.hpp. A page that
//                  is not of the cache is one of zeros; a length below 0, from -2^30 on, is 0, and
//                  one above its table's room is all of it. Nothing guards against wrong starts
//   unused memory  keys behind a length and pages that nobody names may hold anything, NaN too
//   E4M3 NaN       0x7f and 0xff. In a row of the query: its out is NaN in every dim, if it sees a
//                  key. In a key: so is that of every row that sees it, and may be that of other
//                  rows of the request
//   workspace      may hold anything before, and nothing of use after
//   nothing        without requests or tokens nothing is read, written or launched
//
// Scores must fit fp32. Written are the outputs of the rows below query_starts[batch], and the
// workspace. A row's output is the same to the bit whatever the other requests hold; a plan of
// another split, row tile or route may change its last bits.

/// Of a tensor's elements.
enum class DataType : unsigned char {
  e4m3,  ///< float8_e4m3fn
  e5m2,
  nvfp4,
  uint8,
  bfloat16,
  float16,
  float32,
  int32,
  int64,
};

/// As PyTorch names them: "float8_e4m3fn", "int32".
KILN_API std::string_view to_string(DataType type) noexcept;

/// Memory with a shape. `Data` is void, or const void where it is only read.
template <class Data>
struct BasicTensor {
  static constexpr u32 kMostRank = 4;

  Data* data = nullptr;  // on the device; null: there is no such tensor
  DataType type = DataType::uint8;
  u32 rank = 0;
  std::array<u64, kMostRank> shape{};
  std::array<u64, kMostRank> strides{};  // in elements
  int device = -1;                       // ordinal of the device that holds it; -1: not known

  /// Without gaps.
  static BasicTensor dense(Data* data, DataType type, std::initializer_list<u64> shape,
                           int device = -1) noexcept {
    BasicTensor made{.data = data, .type = type, .device = device};
    for (const u64 extent : shape)
      if (made.rank < kMostRank) made.shape[made.rank++] = extent;
    u64 stride = 1;
    for (u32 i = made.rank; i-- > 0; stride *= made.shape[i]) made.strides[i] = stride;
    return made;
  }
};
using Tensor = BasicTensor<const void>;
using OutputTensor = BasicTensor<void>;

/// What other MLA entry points take and no kernel here does: anything but the defaults is refused.
struct Unsupported {
  u64 sparse_top_k = 0;
  const void* sinks = nullptr;
  void* lse = nullptr;  // log-sum-exp of the rows
  u32 dcp_ranks = 1;    // decode context parallelism
  float skip_softmax_threshold = 0;
  bool fp16_softmax = false;
  bool enable_pdl = false;  // how the kernels overlap is their own affair
  const void* multi_ctas_kv_counter_buffer = nullptr;
};

/// One call. Pointers are multiples of 16 (tables, lengths and starts: of 4).
struct Arguments {
  Tensor query{};  // E4M3 [batch, q, heads, 576], or packed [tokens, heads, 576]; without gaps
  /// E4M3 [pages, 64, 576] or [pages, 1, 64, 576]; pages and rows lie multiples of 16 bytes apart.
  Tensor cache{};
  Tensor block_tables{};      // int32 [batch, width]; rows may lie further apart
  Tensor lengths{};           // int32 [batch]
  Tensor query_starts{};      // int32 [batch + 1], of a packed query; none of the other kind
  OutputTensor output{};      // bf16, the query's shape with 512 for 576; without gaps
  void* workspace = nullptr;  // of workspace_bytes(plan) or more; null where that is 0
  u64 workspace_bytes = 0;
  float softmax_scale = 0;
  float output_scale = 1;
  u64 max_query = 0;  // the most new tokens of a request; 0: q of a query that is not packed
  u64 max_keys = 0;   // the most keys of a request; 0: width * 64. What the call is planned for
  u32 split = 0;      // of the keys, 1 to 256; 0: the planner's choice
  Unsupported unsupported{};
};

}  // namespace kiln::kernels::kimi_k3_mla
