// For debugging: what check_tables() finds in tables on the host, found in tables that lie on the
// device alone, by a launch of its own before attention. Opt-in: who makes no TableCheck compiles
// and launches nothing of it.
//
//   KILN_TRY(const auto check, TableCheck::create(runtime));   // then warm up
//   KILN_TRY(auto checked, check.prepare(arguments, report));  // device memory, cleared to zero
//   KILN_TRY(checked.launch(stream));                          // every step, before attention
//   KILN_TRY(launches.launch(stream));
//   ...                                                        // when the stream is done:
//   KILN_TRY(status_of(copy_of_report));
//
// One block reads the tables, and writes the report and nothing else; so a captured step replays
// with it, whatever the tables then hold.
//
// Attention goes on in any case, with what arguments.hpp says of wrong tables: a wrong start makes
// it read and write outside of the query and the output.
//
// Threads: a TableCheck from any thread; a launch by one thread at a time. Checks that may run at
// once need a report each.
// Lifetime: the Runtime must outlive a TableCheck, and must not be moved meanwhile.
// A launch stands alone.
#pragma once

#include "kernel_src/kimi_k3_mla/args.hpp"
#include "kernel_src/kimi_k3_mla/arguments.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels::kimi_k3_mla {

class KILN_API TableCheck {
 public:
  /// Registers the program; compiles nothing and needs no device. Requires the sources: see
  /// kernels::add_sources.
  /// Errors  invalid_argument for missing sources
  static Result<TableCheck> create(Runtime& runtime);

  /// Prepares a check of the call's tables for the current context's device; compiles first where
  /// no warmup has. It does nothing for a call without tokens. `report` is device memory, or the
  /// host's as the device sees it, that was cleared to zero.
  /// Errors  as check() and check_device(); invalid_argument for a report that is null or no
  /// multiple of 4; and all
  ///         that Runtime::get and LaunchPool::prepare give
  Result<LaunchDescriptor> prepare(const Arguments& arguments, TableReport* report) const;

  /// Points a prepared check at another call. Allocates nothing unless it fails; then it does
  /// nothing until an update succeeds.
  /// Errors  as prepare()
  Status update(LaunchDescriptor& launch, const Arguments& arguments, TableReport* report) const;

  KernelId kernel() const noexcept { return kernel_; }

 private:
  TableCheck(Runtime& runtime, KernelId kernel) noexcept : runtime_(&runtime), kernel_(kernel) {}
  Runtime* runtime_;
  KernelId kernel_;
};

/// The report's fault as an error, or success. The report is the host's copy of it.
/// Errors  invalid_argument naming the table, the place in it, the value, what is allowed, and
///         which check found it; or for a report that no check can have left
KILN_API Status status_of(const TableReport& report);

}  // namespace kiln::kernels::kimi_k3_mla
