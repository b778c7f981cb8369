// The shipped programs with every warp late, by a time that nobody foresees, wherever warps wait
// for each other or tell each other something: a result or an end that hangs by who is first shows.
#pragma once

#include <string_view>
#include <vector>

#include "support/changed_sources.hpp"

namespace kiln::test {

/// 0 to 3.4 us, mostly less than 1, by the clock: before what follows.
inline constexpr std::string_view kLate = R"cuda(
  asm volatile(
      "{\n\t"
      ".reg .u32 t, u;\n\t"
      "mov.u32 t, %%clock;\n\t"
      "bfe.u32 t, t, 4, %0;\n\t"
      "mul.lo.u32 u, t, t;\n\t"
      "mul.lo.u32 t, t, u;\n\t"
      "nanosleep.u32 t;\n\t"
      "}" ::"n"(4)
      : "memory");
)cuda";

/// The edits that do it, of the functions in kernel_src/device that are one instruction each.
inline std::vector<SourceEdit> warps_come_late() {
  struct Function {
    std::string_view file, begins;
  };
  static constexpr Function kFunctions[] = {
      {"device/ptx_barrier.cuh", "void barrier_sync(unsigned barrier, unsigned threads) {\n"},
      {"device/ptx_barrier.cuh", "barrier_arrive_of_warp(unsigned barrier, unsigned threads) {\n"},
      {"device/ptx_barrier.cuh", "barrier_any(unsigned barrier, unsigned threads, bool says) {\n"},
      {"device/ptx_cluster.cuh", "void cluster_arrive() {\n"},
      {"device/ptx_cluster.cuh", "void cluster_arrive_release() {\n"},
      {"device/ptx_cluster.cuh", "void cluster_wait() {\n"},
      {"device/ptx_cluster.cuh",
       "send_8(kernels::u32 to, float a, float b, kernels::u32 barrier) {\n"},
      {"device/ptx_cluster.cuh",
       "                                        kernels::u32 barrier) {\n"},
      {"device/ptx_grid_dependency.cuh", "void wait_for_previous_kernels() {\n"},
      {"device/ptx_grid_dependency.cuh", "void allow_next_kernel() {\n"},
      {"device/ptx_mbarrier.cuh", "barrier_arrive(kernels::u32 barrier) {\n"},
      {"device/ptx_mbarrier.cuh",
       "barrier_arrive_expect(kernels::u32 barrier, kernels::u32 bytes) {\n"},
      {"device/ptx_mbarrier.cuh", "barrier_arrive_in_block(kernels::u32 barrier) {\n"},
      {"device/ptx_mbarrier.cuh", "barrier_arrive_after_reads(kernels::u32 barrier) {\n"},
      {"device/ptx_mbarrier.cuh",
       "barrier_try_wait(kernels::u32 barrier, kernels::u32 parity) {\n"},
      {"device/ptx_mbarrier.cuh",
       "                                                         kernels::u32 parity) {\n"},
      {"device/ptx_proxy.cuh", "void fence_async_shared() {\n"},
      {"device/ptx_registers.cuh", "void more_registers() {\n"},
      {"device/ptx_registers.cuh", "void fewer_registers() {\n"},
  };
  // The edits only refer to what they put in.
  static const std::vector<std::string> instead = [] {
    std::vector<std::string> texts;
    for (const Function& function : kFunctions)
      texts.push_back(std::string(function.begins) + std::string(kLate));
    return texts;
  }();
  std::vector<SourceEdit> edits;
  for (std::size_t i = 0; i < instead.size(); ++i)
    edits.push_back({kFunctions[i].file, kFunctions[i].begins, instead[i]});
  return edits;
}

}  // namespace kiln::test
