#include "kernel_src/dsv41_kv_insert/plan.hpp"

#include <charconv>
#include <string>

namespace kiln::kernels::dsv41_kv_insert {
namespace {

Error wrong(std::string_view name, std::uint64_t value, std::string_view allowed) {
  return {ErrorCode::invalid_argument, "dsv41_kv_insert: " + std::string(name) + " is " +
                                           std::to_string(value) + "; it must be " +
                                           std::string(allowed)};
}

/// The number in "sm_90a"; 0 for anything else.
unsigned architecture_number(std::string_view name) {
  unsigned number = 0;
  if (name.starts_with("sm_")) std::from_chars(name.data() + 3, name.data() + name.size(), number);
  return number;
}

}  // namespace

std::string_view to_string(Record record) noexcept {
  switch (record) {
    case Record::fp8:
      return "fp8";
    case Record::nvfp4:
      return "nvfp4";
  }
  return {};
}

std::optional<Record> record_from(std::string_view name) noexcept {
  for (const Record record : {Record::fp8, Record::nvfp4})
    if (name == to_string(record)) return record;
  return std::nullopt;
}

Status check(const Key& key) {
  if (key.heads != 0 && dsv41::kPaddedHeads % key.heads != 0)
    return wrong("heads", key.heads, "0 (no query part) or a divisor of 64");
  if (to_string(key.record).empty())
    return wrong("record", static_cast<u8>(key.record), "0 (fp8) or 1 (nvfp4)");
  const bool power = key.page_slots != 0 && (key.page_slots & (key.page_slots - 1)) == 0;
  if (!power || key.page_slots > kMostPageSlots)
    return wrong("page_slots", key.page_slots, "a power of two, at most 65536");
  if (key.ratio != 1 && key.ratio != 2) return wrong("ratio", key.ratio, "1 or 2");
  return {};
}

KernelSpec spec_of(const Key& key) {
  return {.name = "dsv41_kv_insert",
          .source = "kernel_src/dsv41_kv_insert/kernel.cu",
          .key = key_values(key),
          .builtins = Builtins::minimal,
          .oldest_sm = 90};
}

Plan plan_of(const Key& key, std::uint64_t tokens) noexcept {
  Plan plan{.key = key};
  plan.row_blocks = static_cast<u32>((tokens + kBlockRows - 1) / kBlockRows);
  // One piece for a thread as long as the blocks of all tokens still fit the device at once (16
  // resident blocks on 132 SMs hold 66 tokens), then as many as a thread can have in flight.
  plan.thread_pieces_log2 = tokens <= 64 ? 0 : tokens <= 128 ? 1 : kMostThreadPiecesLog2;
  const u32 token_blocks =
      key.heads == 0 ? 0 : (kQueryPieces / kBlockThreads) >> plan.thread_pieces_log2;
  plan.shape.grid_blocks.x = plan.row_blocks + static_cast<u32>(tokens) * token_blocks;
  plan.shape.block_threads.x = kBlockThreads;
  return plan;
}

Result<Plan> plan(const Problem& problem, const DeviceInfo& device) {
  const Key key = key_of(problem);
  KILN_TRY(check(key));
  if (problem.tokens > kMostTokens)
    return wrong("tokens", problem.tokens,
                 "at most " + std::to_string(kMostTokens) + ", which the grid can hold");
  if (architecture_number(device.architecture) < 90)
    return Error{ErrorCode::unsupported, "dsv41_kv_insert: no kernel for \"" + device.architecture +
                                             "\"; it needs sm_90a or later (grid dependencies)"};
  return plan_of(key, problem.tokens);
}

}  // namespace kiln::kernels::dsv41_kv_insert
