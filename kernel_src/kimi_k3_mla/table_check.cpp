#include "kernel_src/kimi_k3_mla/table_check.hpp"

#include <string>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/kimi_k3_mla/contract.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla"};
constexpr u32 kThreads = 1024;

Result<TableCheckArgs> args_for(const Arguments& arguments, TableReport* report, int device,
                                u64& tokens) {
  KILN_TRY(kCheck.pointer("report", report, alignof(TableReport)));
  KILN_TRY(const Call call, check(arguments));
  KILN_TRY(check_device(call, device));
  tokens = call.tokens;
  return TableCheckArgs{.block_tables = call.block_tables,
                        .seq_lens = call.lengths,
                        .query_starts = call.query_starts,
                        .report = report,
                        .table_stride = call.table_stride,
                        .batch = static_cast<u32>(call.batch),
                        .table_width = static_cast<u32>(call.table_width),
                        .pages = static_cast<u32>(call.pages),
                        .query_len = static_cast<u32>(call.max_query),
                        .tokens = static_cast<u32>(call.tokens)};
}

std::string in_brackets(u32 number) {
  return "[" + std::to_string(number) + "]";
}

}  // namespace

Result<TableCheck> TableCheck::create(Runtime& runtime) {
  KILN_TRY(const KernelId kernel, runtime.add({.name = "kimi_k3_mla_check_tables",
                                               .source = "kernel_src/kimi_k3_mla/check_tables.cu",
                                               .builtins = Builtins::minimal,
                                               .oldest_sm = 90}));
  return TableCheck(runtime, kernel);
}

Result<LaunchDescriptor> TableCheck::prepare(const Arguments& arguments,
                                             TableReport* report) const {
  KILN_TRY(const Kernel kernel, runtime_->get(kernel_));
  KILN_TRY(LaunchDescriptor launch,
           runtime_->launches().prepare(kernel, {.block_threads = {kThreads}}, TableCheckArgs{}));
  KILN_TRY(update(launch, arguments, report));
  return launch;
}

Status TableCheck::update(LaunchDescriptor& launch, const Arguments& arguments,
                          TableReport* report) const {
  KILN_TRY(launch.set_grid({0, 1, 1}));
  u64 tokens = 0;
  const auto args = args_for(arguments, report, launch.device(), tokens);
  if (!args) return args.status();
  if (tokens == 0) return {};
  KILN_TRY(launch.set_argument(0, *args));
  return launch.set_grid({1, 1, 1});
}

Status status_of(const TableReport& report) {
  const auto wrong = [&](const std::string& place, const std::string& allowed) {
    return kCheck.wrong(place, std::to_string(report.value),
                        allowed + " (found by check " + std::to_string(report.check) + " of " +
                            std::to_string(report.checks) + ")");
  };
  const std::string range =
      "it must be from " + std::to_string(report.least) + " to " + std::to_string(report.most);
  switch (report.fault) {
    case TableFault::none:
      return {};
    case TableFault::start:
      return wrong("query_starts" + in_brackets(report.request),
                   report.request == 0 ? "it must be 0"
                                       : range +
                                             ": from the start before it on, at most max_query "
                                             "more, and no more than the query's tokens");
    case TableFault::length:
      return wrong("lengths" + in_brackets(report.request),
                   range + ", what a row of the block tables has room for");
    case TableFault::page:
      return wrong("block_tables" + in_brackets(report.request) + in_brackets(report.position),
                   "the request's length needs a page of the cache there, which has " +
                       std::to_string(static_cast<i64>(report.most) + 1) + ", from 0 on");
  }
  return kCheck.wrong("the report's fault", std::to_string(static_cast<u32>(report.fault)),
                      "no check writes that; clear the report's memory before the first check");
}

}  // namespace kiln::kernels::kimi_k3_mla
