#include <string>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/kimi_k3_mla/contract.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla"};

std::string place(std::string_view table, u64 row) {
  return std::string(table) + "[" + std::to_string(row) + "]";
}

Status check_starts(const Call& call, std::span<const std::int32_t> starts) {
  if (starts.size() != call.batch + 1)
    return kCheck.wrong("the host copy of query_starts",
                        "of " + std::to_string(starts.size()) + " entries",
                        "it must have batch + 1, here " + std::to_string(call.batch + 1));
  if (starts[0] != 0)
    return kCheck.wrong("query_starts[0]", std::to_string(starts[0]), "it must be 0");
  for (u64 i = 1; i <= call.batch; ++i) {
    const std::int64_t before = starts[i - 1], here = starts[i];
    if (here < before || here - before > static_cast<std::int64_t>(call.max_query) ||
        here > static_cast<std::int64_t>(call.tokens))
      return kCheck.wrong(place("query_starts", i), std::to_string(here),
                          "it must be from " + std::to_string(before) +
                              ", the start before it, to " +
                              std::to_string(before + static_cast<std::int64_t>(call.max_query)) +
                              " (max_query more), and at most " + std::to_string(call.tokens) +
                              ", the query's tokens");
  }
  return {};
}

Status check_pages(const Call& call, std::span<const std::int32_t> tables, u64 request,
                   u64 length) {
  for (u64 i = 0; i * kPageKeys < length; ++i) {
    const std::int32_t page = tables[request * call.table_stride + i];
    if (page < 0 || static_cast<u64>(page) >= call.pages)
      return kCheck.wrong(
          place("block_tables", request) + "[" + std::to_string(i) + "]", std::to_string(page),
          "the request's " + std::to_string(length) + " keys need a page of the cache, which has " +
              std::to_string(call.pages) + ", from 0 on");
  }
  return {};
}

}  // namespace

Status check_tables(const Call& call, const HostTables& tables) {
  if (call.tokens == 0) return {};
  if (!tables.query_starts.empty() && call.query_starts != nullptr)
    KILN_TRY(check_starts(call, tables.query_starts));
  if (tables.lengths.empty()) return {};
  if (tables.lengths.size() != call.batch)
    return kCheck.wrong("the host copy of lengths",
                        "of " + std::to_string(tables.lengths.size()) + " entries",
                        "it must have one a request, here " + std::to_string(call.batch));
  const u64 entries = (call.batch - 1) * call.table_stride + call.table_width;
  if (!tables.block_tables.empty() && tables.block_tables.size() < entries)
    return kCheck.wrong("the host copy of block_tables",
                        "of " + std::to_string(tables.block_tables.size()) + " entries",
                        "it must have at least " + std::to_string(entries));
  for (u64 request = 0; request < call.batch; ++request) {
    const std::int32_t length = tables.lengths[request];
    const u64 room = call.table_width * kPageKeys;
    if (length < 0 || static_cast<u64>(length) > room)
      return kCheck.wrong(place("lengths", request), std::to_string(length),
                          "it must be from 0 to " + std::to_string(room) +
                              ", what a row of the block tables has room for");
    if (tables.block_tables.empty()) continue;
    if (Status good = check_pages(call, tables.block_tables, request, static_cast<u64>(length));
        !good)
      return good;
  }
  return {};
}

}  // namespace kiln::kernels::kimi_k3_mla
