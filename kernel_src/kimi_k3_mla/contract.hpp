// What a call's description must hold before anything is launched, and the numbers that it comes
// down to. Pure; reads no device memory.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "kernel_src/kimi_k3_mla/arguments.hpp"
#include "kernel_src/kimi_k3_mla/plan.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"

namespace kiln::kernels::kimi_k3_mla {

/// Arguments whose description is good, in numbers.
struct Call {
  const void* query = nullptr;  // [tokens, heads, 576]
  const void* cache = nullptr;
  const std::int32_t* block_tables = nullptr;
  const std::int32_t* lengths = nullptr;
  const std::int32_t* query_starts = nullptr;  // null: request r starts at r * max_query
  void* output = nullptr;                      // [tokens, heads, 512]
  void* workspace = nullptr;
  u64 workspace_bytes = 0;
  u32 heads = 0;
  u64 batch = 0;
  u64 tokens = 0;  // 0: nothing to do
  u64 max_query = 0;
  u64 max_keys = 0;
  u64 pages = 0;
  u64 page_stride_bytes = 0;
  u64 row_stride_bytes = 0;  // from key to key in a page
  u64 table_width = 0;
  u64 table_stride = 0;          // entries from request to request
  float softmax_scale_log2 = 0;  // softmax_scale * log2(e)
  float output_scale = 1;
  u32 split = 0;
  int device = -1;  // of the tensors; -1: none of them says

  Problem problem() const noexcept {
    return {.heads = heads,
            .batch = tokens == 0 ? 0 : batch,
            .query = max_query,
            .keys = max_keys,
            .split = split};
  }
};

/// Everything that can be told from the description: types, shapes, strides, devices, scales,
/// options, and that what is written lies apart from all else.
/// Errors  unsupported naming an option, or a cache's type, that no kernel takes;
///         invalid_argument naming the argument, its value and what is allowed
KILN_API Result<Call> check(const Arguments& arguments);

/// That the tensors are on `device`, as far as they say where they are.
/// Errors  invalid_argument naming both devices
KILN_API Status check_device(const Call& call, int device);

/// That the workspace is there, aligned to 16 and no byte too short for `plan`, and lies apart from
/// what the call reads and writes. `plan` is one of call.problem().
/// Errors  invalid_argument as check()
KILN_API Status check_workspace(const Call& call, const Plan& plan);

/// What the programs receive. Requires check_workspace() to have passed.
KILN_API Args args_of(const Call& call, const Plan& plan) noexcept;

/// What the tables hold, where it lies on the host as well. An empty span was not given.
struct HostTables {
  std::span<const std::int32_t> block_tables{};  // [batch, Call::table_stride]; the last row may
                                                 // end with its width
  std::span<const std::int32_t> lengths{};       // [batch]
  std::span<const std::int32_t> query_starts{};  // [batch + 1]
};

/// That lengths are within the table, that pages which they name are in the cache, and
/// that starts never fall, are at most max_query apart and end with the query at the latest. Block
/// tables are checked where lengths are given too. For tables that lie on the device alone there is
/// table_check.hpp.
/// Errors  invalid_argument naming the table, the place in it, the value and what is allowed
KILN_API Status check_tables(const Call& call, const HostTables& tables);

}  // namespace kiln::kernels::kimi_k3_mla
