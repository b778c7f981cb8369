// The programs with one thing in them another way: to see the tests fail that are there for it, or
// to bring about what happens once in a long time.
#pragma once

#include <vector>

#include "kernel_src/dsv41_decode/key.hpp"
#include "support/changed_sources.hpp"
#include "support/late_warps.hpp"

namespace kiln::kernels::dsv41_decode::test {

struct Change {
  const char* what = "";
  Key key{};  // of the program that it is tried with
  bool padded_heads = false;
  std::vector<kiln::test::SourceEdit> edits{};
};

/// P is one bf16 number.
inline const Change kNoLowTermsOfP = {
    "no low terms of P",
    {.heads = 16},
    false,
    {{"dsv41_decode/swapab_products.cuh", "p[2 * k] - low_of_bf16x2(high)", "0.0f"},
     {"dsv41_decode/swapab_products.cuh", "p[2 * k + 1] - high_of_bf16x2(high)", "0.0f"}}};

/// A bit of the clock says from which end tiles are merged.
inline const Change kMergeInAnyOrder = {
    "merge in any order",
    {.heads = 32, .record = Record::nvfp4},
    false,
    {{"dsv41_decode/swapab_merge.cuh",
      "  for (u32 tile = 0; tile < tiles; ++tile) {\n    const u32 further",
      "  for (u32 i = 0; i < tiles; ++i) {\n"
      "    const u32 tile = backwards ? tiles - 1 - i : i;\n    const u32 further"},
     {"dsv41_decode/swapab_merge.cuh", "float values[8] = {};",
      "float values[8] = {};\n"
      "  u32 clock;\n"
      "  asm volatile(\"mov.u32 %0, %%clock;\" : \"=r\"(clock));\n"
      "  const bool backwards = (clock >> 4 & 1) != 0;"}}};

/// Those that compute come late, 50 us, when those that bring records are through with theirs.
inline const Change kConsumersComeLate = {
    "consumers come late",
    {.heads = 16},
    true,
    {{"dsv41_decode/mega.cuh", "    device::more_registers<kConsumerRegisters>();\n",
      "    for (const long long start = clock64(); clock64() - start < 100000;) {\n"
      "    }\n"
      "    device::more_registers<kConsumerRegisters>();\n"}}};

inline const Change kWarpsComeLate = {
    "warps come late", {.heads = 16}, false, kiln::test::warps_come_late()};
inline const Change kWarpsOfPaddedHeadsComeLate = {
    "warps of padded heads come late", {.heads = 16}, true, kiln::test::warps_come_late()};

inline const Change* const kChanges[] = {&kNoLowTermsOfP, &kMergeInAnyOrder, &kConsumersComeLate,
                                         &kWarpsComeLate, &kWarpsOfPaddedHeadsComeLate};

}  // namespace kiln::kernels::dsv41_decode::test
