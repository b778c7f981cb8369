#include "kernel_src/dsv41_kv_insert/launch.hpp"

#include <array>
#include <limits>
#include <span>
#include <string>

#include "kernel_src/argument_checks.hpp"

namespace kiln::kernels::dsv41_kv_insert {
namespace {

constexpr std::uint64_t kRowBytes = dsv41::kHeadDim * sizeof(u16);

// Together with kMostTokens and kMostPageSlots these keep the kernel's address arithmetic inside 63
// bits; the whole cache is checked with its number of pages.
constexpr std::uint64_t kMostTokenStrideBytes = std::uint64_t{1} << 36;
constexpr std::uint64_t kMostCacheStrideBytes = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostSlotStrideBytes = std::uint64_t{1} << 46;

constexpr ArgumentChecks kCheck{"dsv41_kv_insert"};

/// The arguments with every "without a gap" filled in.
Arguments with_strides(const Key& key, Arguments arguments) noexcept {
  if (arguments.query_stride_bytes == 0) arguments.query_stride_bytes = key.heads * kRowBytes;
  if (arguments.input_stride_bytes == 0) arguments.input_stride_bytes = kRowBytes;
  if (arguments.row_stride_bytes == 0) arguments.row_stride_bytes = dsv41::record_bytes(key.record);
  return arguments;
}

Status check_query(const Key& key, const Arguments& arguments) {
  if (key.heads == 0) {
    for (const void* pointer : {arguments.query, static_cast<const void*>(arguments.padded_query)})
      if (pointer != nullptr)
        return kCheck.wrong("query or padded_query", "given",
                            "a kernel of 0 heads has no query part: both must be null");
    return {};
  }
  KILN_TRY(kCheck.pointer("query", arguments.query, 16));
  KILN_TRY(kCheck.pointer("padded_query", arguments.padded_query, 16));
  return kCheck.stride("query_stride_bytes", arguments.query_stride_bytes, key.heads * kRowBytes,
                       kMostTokenStrideBytes, 16);
}

Status check_cache(const Key& key, const Arguments& arguments) {
  KILN_TRY(kCheck.pointer("cache", arguments.cache, 16));
  const std::uint64_t record = dsv41::record_bytes(key.record);
  if (Status good = kCheck.stride("row_stride_bytes", arguments.row_stride_bytes, record,
                                  kMostSlotStrideBytes, 16);
      !good)
    return good;
  // The last slot of a page may end with its record; what follows belongs to nobody here.
  const std::uint64_t page = (key.page_slots - 1) * arguments.row_stride_bytes + record;
  if (Status good = kCheck.stride("page_stride_bytes", arguments.page_stride_bytes, page,
                                  kMostCacheStrideBytes, 16);
      !good)
    return good;
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::uint64_t most_pages = most / arguments.page_stride_bytes;
  if (arguments.pages == 0 || arguments.pages > most_pages)
    return kCheck.wrong(
        "pages", std::to_string(arguments.pages),
        "it must be from 1 to " + std::to_string(most_pages) + " at this page stride");
  return {};
}

// Of what has strides only the beginning counts: other things may lie in its gaps.
Status check_apart(const Key& key, const Arguments& a) {
  const Range cache = range_of("cache", a.cache, dsv41::record_bytes(key.record));
  const std::array read = {
      cache,
      range_of("query", a.query, key.heads * kRowBytes),
      range_of("rows", a.rows, kRowBytes),
      range_of("positions", a.positions, a.tokens * sizeof(i64)),
      range_of("slots", a.slots, a.tokens * sizeof(i64)),
      range_of("cos_sin", a.cos_sin, a.rope_positions * dsv41::kRopeDim * sizeof(float))};
  KILN_TRY(kCheck.apart(cache, std::span(read).subspan(1)));
  return kCheck.apart(
      range_of("padded_query", a.padded_query, a.tokens * dsv41::kPaddedHeads * kRowBytes), read);
}

}  // namespace

Status check(const Key& key, const Arguments& given) {
  KILN_TRY(check(key));
  if (given.tokens > kMostTokens)
    return kCheck.wrong(
        "tokens", std::to_string(given.tokens),
        "it must be at most " + std::to_string(kMostTokens) + ", which the grid can hold");
  if (given.tokens == 0) return {};
  const Arguments arguments = with_strides(key, given);
  KILN_TRY(check_query(key, arguments));
  KILN_TRY(kCheck.pointer("rows", arguments.rows, 16));
  KILN_TRY(kCheck.pointer("positions", arguments.positions, 8));
  KILN_TRY(kCheck.pointer("slots", arguments.slots, 8));
  KILN_TRY(kCheck.pointer("cos_sin", arguments.cos_sin, 16));
  if (Status good = kCheck.stride("input_stride_bytes", arguments.input_stride_bytes, kRowBytes,
                                  kMostTokenStrideBytes, 16);
      !good)
    return good;
  constexpr std::uint64_t most_positions = std::uint64_t{1} << 48;
  if (arguments.rope_positions == 0 || arguments.rope_positions > most_positions)
    return kCheck.wrong("rope_positions", std::to_string(arguments.rope_positions),
                        "it must be from 1 to " + std::to_string(most_positions));
  KILN_TRY(check_cache(key, arguments));
  return check_apart(key, arguments);
}

Args args_of(const Key& key, const Arguments& given, const Plan& plan) noexcept {
  const Arguments arguments = with_strides(key, given);
  return {.query = static_cast<const u16*>(arguments.query),
          .padded_query = static_cast<u16*>(arguments.padded_query),
          .rows = static_cast<const u16*>(arguments.rows),
          .positions = arguments.positions,
          .slots = arguments.slots,
          .cos_sin = arguments.cos_sin,
          .cache = static_cast<u8*>(arguments.cache),
          .query_stride_bytes = arguments.query_stride_bytes,
          .input_stride_bytes = arguments.input_stride_bytes,
          .page_stride_bytes = arguments.page_stride_bytes,
          .row_stride_bytes = arguments.row_stride_bytes,
          .cache_slots = arguments.pages * key.page_slots,
          .rope_positions = arguments.rope_positions,
          .tokens = static_cast<u32>(arguments.tokens),
          .row_blocks = plan.row_blocks,
          .thread_pieces_log2 = plan.thread_pieces_log2};
}

Result<KvInsert> KvInsert::create(Runtime& runtime, const Problem& problem) {
  const Key key = key_of(problem);
  KILN_TRY(check(key));
  KILN_TRY(const KernelId id, runtime.add(spec_of(key)));
  return KvInsert(runtime, id, key);
}

namespace {

Status check_launch(const Key& key, const Arguments& arguments) {
  if (arguments.tokens == 0)
    return kCheck.wrong("tokens", "0",
                        "there is nothing to prepare; launch() takes it and does nothing");
  return check(key, arguments);
}

}  // namespace

Result<LaunchDescriptor> KvInsert::prepare(const Arguments& arguments, Overlap overlap) const {
  KILN_TRY(check_launch(key_, arguments));
  KILN_TRY(const Kernel kernel, runtime_->get(id_));
  Plan plan = plan_of(key_, arguments.tokens);
  plan.shape.overlap_previous = overlap;
  return runtime_->launches().prepare(kernel, plan.shape, args_of(key_, arguments, plan));
}

Status KvInsert::update(LaunchDescriptor& launch, const Arguments& arguments) const {
  KILN_TRY(check_launch(key_, arguments));
  const Plan plan = plan_of(key_, arguments.tokens);
  KILN_TRY(launch.set_argument(0, args_of(key_, arguments, plan)));
  return launch.set_grid(plan.shape.grid_blocks);
}

Status KvInsert::launch(const Arguments& arguments, CUstream stream, Overlap overlap) const {
  if (arguments.tokens == 0) return check(key_, arguments);
  Result<LaunchDescriptor> prepared = prepare(arguments, overlap);
  if (!prepared) return prepared.status();
  return prepared->launch(stream);
}

}  // namespace kiln::kernels::dsv41_kv_insert
