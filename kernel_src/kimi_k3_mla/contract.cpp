#include "kernel_src/kimi_k3_mla/contract.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "kernel_src/argument_checks.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla"};
// What a tensor map can hold.
constexpr u64 kMostStrideBytes = (u64{1} << 40) - 16;
constexpr u64 kMostPages = u64{1} << 31;  // ids are int32
constexpr u64 kMostTokens = 0x7fffffff;

Error unsupported(std::string_view name, const std::string& value, const std::string& cure) {
  return {ErrorCode::unsupported,
          "kimi_k3_mla: " + std::string(name) + " is " + value + "; " + cure};
}

std::string list_of(const std::array<u64, Tensor::kMostRank>& values, u32 rank) {
  std::string text = "[";
  for (u32 i = 0; i < std::min(rank, Tensor::kMostRank); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + "]";
}

template <class Data>
Error wrong_shape(std::string_view name, const BasicTensor<Data>& tensor,
                  const std::string& allowed) {
  return kCheck.wrong(name, "of shape " + list_of(tensor.shape, tensor.rank),
                      "it must be " + allowed);
}

template <class Data>
Error wrong_strides(std::string_view name, const BasicTensor<Data>& tensor,
                    const std::string& allowed) {
  return kCheck.wrong(name,
                      "of shape " + list_of(tensor.shape, tensor.rank) + " with strides " +
                          list_of(tensor.strides, tensor.rank),
                      allowed);
}

template <class Data>
Status check_type(std::string_view name, const BasicTensor<Data>& tensor, DataType type) {
  if (tensor.type == type) return {};
  return kCheck.wrong(name, std::string(to_string(tensor.type)),
                      "it must be " + std::string(to_string(type)));
}

/// No gaps; a stride does not matter where there is one element or none.
template <class Data>
bool is_dense(const BasicTensor<Data>& tensor) {
  u64 stride = 1;
  for (u32 i = tensor.rank; i-- > 0; stride *= tensor.shape[i]) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
  }
  return true;
}

constexpr std::string_view kOneElement = "its last dimension must have stride 1; copy it";

// ---- options

Status check_options(const Unsupported& given) {
  if (given.sparse_top_k != 0)
    return unsupported("sparse_top_k", std::to_string(given.sparse_top_k),
                       "these kernels attend to every key; it must be 0");
  if (given.sinks != nullptr)
    return unsupported("sinks", "given", "these kernels have no sinks; it must be null");
  if (given.lse != nullptr)
    return unsupported("lse", "given",
                       "these kernels write no log-sum-exp of the rows; it must be null");
  if (given.dcp_ranks != 1)
    return unsupported("dcp_ranks", std::to_string(given.dcp_ranks),
                       "these kernels know no decode context parallelism (DCP); it must be 1");
  if (given.skip_softmax_threshold != 0)
    return unsupported("skip_softmax_threshold", text_of(given.skip_softmax_threshold),
                       "these kernels skip no key; it must be 0");
  if (given.fp16_softmax)
    return unsupported("fp16_softmax", "true",
                       "these kernels take the softmax in fp32; it must be false");
  if (given.enable_pdl)
    return unsupported("enable_pdl", "true",
                       "these kernels overlap by themselves; it must be false");
  if (given.multi_ctas_kv_counter_buffer != nullptr)
    return unsupported("multi_ctas_kv_counter_buffer", "given",
                       "these kernels need no counters; it must be null");
  return {};
}

// ---- tensors

Status check_query(const Tensor& query, const Tensor& starts, Call& call) {
  KILN_TRY(check_type("query", query, DataType::e4m3));
  const bool packed = query.rank == 3;
  if ((query.rank != 3 && query.rank != 4) || query.shape[query.rank - 1] != kKeyDim)
    return wrong_shape("query", query, "[batch, q, heads, 576], or packed [tokens, heads, 576]");
  const u64 heads = query.shape[query.rank - 2];
  if (heads == 0 || heads > kMostHeads)
    return wrong_shape("query", query,
                       "of 1 to " + std::to_string(kMostHeads) + " heads, its dimension " +
                           std::to_string(query.rank - 2));
  call.heads = static_cast<u32>(heads);
  constexpr auto too_many = [](u64 tokens) { return tokens > kMostTokens; };
  if (too_many(query.shape[0]) || (!packed && too_many(query.shape[1])) ||
      (!packed && too_many(query.shape[0] * query.shape[1])))
    return wrong_shape("query", query, "of at most " + std::to_string(kMostTokens) + " tokens");
  call.tokens = packed ? query.shape[0] : query.shape[0] * query.shape[1];
  if (packed && starts.data == nullptr && starts.rank == 0)
    return kCheck.wrong("query_starts", "null",
                        "a packed query needs it, int32 [batch + 1]; or give a query of shape "
                        "[batch, q, heads, 576]");
  if (!packed && (starts.data != nullptr || starts.rank != 0))
    return kCheck.wrong("query_starts", "given",
                        "it goes with a packed query, [tokens, heads, 576]; leave it out");
  if (!is_dense(query)) return wrong_strides("query", query, "it must have no gaps; copy it");
  return {};
}

Status check_vector(std::string_view name, const Tensor& tensor, u64 length,
                    const char* length_name) {
  KILN_TRY(check_type(name, tensor, DataType::int32));
  if (tensor.rank != 1 || tensor.shape[0] != length)
    return wrong_shape(name, tensor,
                       std::string(length_name) + ", here [" + std::to_string(length) + "]");
  if (!is_dense(tensor)) return wrong_strides(name, tensor, std::string(kOneElement));
  return {};
}

Status check_batch(const Arguments& given, Call& call) {
  const bool packed = given.query.rank == 3;
  KILN_TRY(check_type("block_tables", given.block_tables, DataType::int32));
  const auto& tables = given.block_tables;
  if (tables.rank != 2 || (!packed && tables.shape[0] != given.query.shape[0]))
    return wrong_shape("block_tables", tables,
                       packed ? "[batch, width]"
                              : "[batch, width] with the query's batch of " +
                                    std::to_string(given.query.shape[0]));
  call.batch = tables.shape[0];
  call.table_width = tables.shape[1];
  if (call.batch > kMostBatch)
    return wrong_shape("block_tables", tables,
                       "of at most " + std::to_string(kMostBatch) +
                           " requests; give the requests to several calls");
  if (call.table_width > kMostKeys / kPageKeys)
    return wrong_shape("block_tables", tables,
                       "of at most " + std::to_string(kMostKeys / kPageKeys) + " pages a request");
  if (tables.shape[1] > 1 && tables.strides[1] != 1)
    return wrong_strides("block_tables", tables, std::string(kOneElement));
  call.table_stride = call.batch > 1 ? tables.strides[0] : call.table_width;
  if (call.table_stride < call.table_width || call.table_stride > kMostStrideBytes / 4)
    return wrong_strides("block_tables", tables, "its rows must not overlap");
  KILN_TRY(check_vector("lengths", given.lengths, call.batch, "[batch]"));
  if (!packed) return {};
  return check_vector("query_starts", given.query_starts, call.batch + 1, "[batch + 1]");
}

Status check_limits(const Arguments& given, Call& call) {
  const bool packed = given.query.rank == 3;
  call.max_query = given.max_query != 0 || packed ? given.max_query : given.query.shape[1];
  if (!packed && call.max_query != given.query.shape[1])
    return kCheck.wrong(
        "max_query", std::to_string(call.max_query),
        "it must be the query's q, " + std::to_string(given.query.shape[1]) + ", or 0");
  // Rows that nobody owns are allowed, but not more tokens than there can be.
  if (packed && call.tokens != 0 && call.batch != 0 && call.max_query == 0)
    return kCheck.wrong("max_query", "0",
                        "a packed query needs it: the most new tokens of a request");
  if (call.max_query > kMostTokens)
    return kCheck.wrong("max_query", std::to_string(call.max_query),
                        "it must be at most " + std::to_string(kMostTokens));
  const u64 room = call.table_width * kPageKeys;
  call.max_keys = given.max_keys == 0 ? room : given.max_keys;
  if (call.max_keys > room)
    return kCheck.wrong("max_keys", std::to_string(given.max_keys),
                        "it must be at most " + std::to_string(room) +
                            ", what the block tables have room for, or 0 for all of it");
  call.split = given.split;
  if (given.split > kMostSplits)
    return kCheck.wrong("split", std::to_string(given.split),
                        "it must be from 1 to 256, which a reducer can join, or 0 for the "
                        "planner's choice");
  return {};
}

Status check_cache_type(const Tensor& cache) {
  switch (cache.type) {
    case DataType::e4m3:
      return {};
    case DataType::nvfp4:
    case DataType::uint8:
      return unsupported("cache", std::string(to_string(cache.type)),
                         "NVFP4 caches, which come as uint8 too, are not taken; it must be "
                         "float8_e4m3fn");
    default:
      return kCheck.wrong("cache", std::string(to_string(cache.type)), "it must be float8_e4m3fn");
  }
}

Status check_cache(const Tensor& cache, Call& call) {
  KILN_TRY(check_cache_type(cache));
  const bool has_one = cache.rank == 4;
  const u32 row = cache.rank - 2;
  if ((cache.rank != 3 && !has_one) || (has_one && cache.shape[1] != 1) ||
      cache.shape[row] != kPageKeys || cache.shape[row + 1] != kKeyDim)
    return wrong_shape("cache", cache, "[pages, 64, 576] or [pages, 1, 64, 576]");
  call.pages = cache.shape[0];
  call.row_stride_bytes = cache.strides[row];
  call.page_stride_bytes = cache.strides[0];
  if (cache.strides[row + 1] != 1) return wrong_strides("cache", cache, std::string(kOneElement));
  if (Status good = kCheck.stride("the cache's stride from key to key", call.row_stride_bytes,
                                  kKeyDim, kMostStrideBytes, 16);
      !good)
    return good;
  if (call.pages > kMostPages)
    return wrong_shape("cache", cache, "of at most 2^31 pages: their ids are 32-bit integers");
  if (call.pages <= 1) {
    // Then the stride may be anything; a tensor map wants one that it can hold.
    call.page_stride_bytes = kPageKeys * call.row_stride_bytes;
    return {};
  }
  // The last key of a page may end with its own bytes; what follows belongs to nobody here.
  return kCheck.stride("the cache's stride from page to page", call.page_stride_bytes,
                       (kPageKeys - 1) * call.row_stride_bytes + kKeyDim, kMostStrideBytes, 16);
}

Status check_output(const Arguments& given) {
  const OutputTensor& output = given.output;
  KILN_TRY(check_type("output", output, DataType::bfloat16));
  bool same = output.rank == given.query.rank && output.shape[output.rank - 1] == kLatentDim;
  for (u32 i = 0; same && i + 1 < output.rank; ++i) same = output.shape[i] == given.query.shape[i];
  if (!same) {
    auto wanted = given.query.shape;
    wanted[given.query.rank - 1] = kLatentDim;
    return wrong_shape(
        "output", output,
        "the query's shape with 512 for 576, here " + list_of(wanted, given.query.rank));
  }
  if (!is_dense(output)) return wrong_strides("output", output, "it must have no gaps");
  return {};
}

Status check_scales(const Arguments& given, Call& call) {
  if (!std::isfinite(given.softmax_scale) || given.softmax_scale <= 0)
    return kCheck.wrong("softmax_scale", text_of(given.softmax_scale),
                        "it must be finite and above 0");
  if (!std::isfinite(given.output_scale))
    return kCheck.wrong("output_scale", text_of(given.output_scale), "it must be finite");
  call.softmax_scale_log2 =
      static_cast<float>(static_cast<double>(given.softmax_scale) * 1.4426950408889634);
  if (!std::isfinite(call.softmax_scale_log2))
    return kCheck.wrong("softmax_scale", text_of(given.softmax_scale),
                        "times log2(e) it must fit fp32");
  call.output_scale = given.output_scale;
  return {};
}

// ---- memory

Status check_devices(const Arguments& given, Call& call) {
  const struct {
    std::string_view name;
    int device;
  } tensors[] = {{"query", given.query.device},
                 {"cache", given.cache.device},
                 {"block_tables", given.block_tables.device},
                 {"lengths", given.lengths.device},
                 {"query_starts", given.query_starts.device},
                 {"output", given.output.device}};
  const auto* first = &tensors[0];
  for (const auto& tensor : tensors) {
    if (tensor.device < 0) continue;
    if (first->device < 0) first = &tensor;
    if (tensor.device != first->device)
      return kCheck.wrong(tensor.name, "on device " + std::to_string(tensor.device),
                          "it must be on device " + std::to_string(first->device) + ", where " +
                              std::string(first->name) + " is");
  }
  call.device = first->device;
  return {};
}

std::array<Range, 6> ranges_of(const Call& call) {
  const u64 rows = call.tokens * call.heads;
  const u64 cache = call.pages == 0 ? 0
                                    : (call.pages - 1) * call.page_stride_bytes +
                                          (kPageKeys - 1) * call.row_stride_bytes + kKeyDim;
  const u64 tables = ((call.batch - 1) * call.table_stride + call.table_width) * 4;
  return {range_of("output", call.output, rows * kLatentDim * 2),
          range_of("query", call.query, rows * kKeyDim),
          range_of("cache", call.cache, cache),
          range_of("block_tables", call.block_tables, tables),
          range_of("lengths", call.lengths, call.batch * 4),
          range_of("query_starts", call.query_starts, (call.batch + 1) * 4)};
}

Status check_memory(const Arguments& given, const Call& call) {
  KILN_TRY(kCheck.pointer("query", given.query.data, 16));
  KILN_TRY(kCheck.pointer("output", given.output.data, 16));
  KILN_TRY(kCheck.pointer("lengths", given.lengths.data, 4));
  if (given.query.rank == 3) KILN_TRY(kCheck.pointer("query_starts", given.query_starts.data, 4));
  // Requests without any key have no page to look at.
  if (call.table_width != 0) KILN_TRY(kCheck.pointer("block_tables", given.block_tables.data, 4));
  if (call.pages != 0) KILN_TRY(kCheck.pointer("cache", given.cache.data, 16));
  constexpr auto most = static_cast<u64>(std::numeric_limits<std::int64_t>::max());
  if (call.pages != 0 && call.pages > most / call.page_stride_bytes)
    return wrong_shape(
        "cache", given.cache,
        "of at most " + std::to_string(most / call.page_stride_bytes) + " pages at this stride");
  const auto ranges = ranges_of(call);
  return kCheck.apart(ranges.front(), std::span(ranges).subspan(1));
}

}  // namespace

Result<Call> check(const Arguments& given) {
  Call call{.query = given.query.data,
            .cache = given.cache.data,
            .block_tables = static_cast<const std::int32_t*>(given.block_tables.data),
            .lengths = static_cast<const std::int32_t*>(given.lengths.data),
            .query_starts = static_cast<const std::int32_t*>(given.query_starts.data),
            .output = given.output.data,
            .workspace = given.workspace,
            .workspace_bytes = given.workspace_bytes};
  KILN_TRY(check_options(given.unsupported));
  KILN_TRY(check_query(given.query, given.query_starts, call));
  KILN_TRY(check_batch(given, call));
  KILN_TRY(check_cache(given.cache, call));
  KILN_TRY(check_limits(given, call));
  KILN_TRY(check_output(given));
  KILN_TRY(check_scales(given, call));
  KILN_TRY(check_devices(given, call));
  // An engine may have no memory behind what is empty.
  if (call.tokens == 0 || call.batch == 0) {
    call.tokens = 0;
    return call;
  }
  KILN_TRY(check_memory(given, call));
  return call;
}

Status check_workspace(const Call& call, const Plan& plan) {
  const u64 needed = workspace_bytes(plan);
  if (needed == 0) return {};
  KILN_TRY(kCheck.pointer("workspace", call.workspace, 16));
  if (call.workspace_bytes < needed)
    return kCheck.wrong("workspace_bytes", std::to_string(call.workspace_bytes),
                        "this plan of " + std::to_string(plan.num_split) + " splits needs " +
                            std::to_string(needed) + "; see workspace_bytes()");
  return kCheck.apart(range_of("workspace", call.workspace, needed), ranges_of(call));
}

}  // namespace kiln::kernels::kimi_k3_mla
