// The attention program with one thing taken out of it, to see the tests of long rows fail that are
// there for it.
#pragma once

#include <vector>

#include "kernel_src/shared/types.hpp"
#include "kiln/runtime.hpp"
#include "support/changed_sources.hpp"
#include "support/late_warps.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

struct Change {
  const char* what = "";
  u32 row_tile = 0;  // of the program that it is tried with
  std::vector<kiln::test::SourceEdit> edits{};
};

/// References stay what the first tile made them, so weights pass 448, E4M3's largest.
inline const Change kReferencesStay = {
    "references stay",
    48,
    {{"kimi_k3_mla/attend_common.cuh", "constexpr float kMostExponent = 8.80f;",
      "constexpr float kMostExponent = 1e30f;"}}};

/// Seven octaves between a weight at its reference and E4M3's largest, rather than 2.8.
inline const Change kSevenOctaves = {
    "seven octaves",
    48,
    {{"kimi_k3_mla/attend_common.cuh", "constexpr float kWeightShift = 6;",
      "constexpr float kWeightShift = 1.8f;"}}};

/// The matrix units go on with the sums of all tiles, of which they keep some 14 bits. For weights
/// of one term.
inline const Change kSumsStayInTheMatrixUnits = {
    "sums stay in the matrix units",
    48,
    {{"kimi_k3_mla/attend_tiles.cuh",
      "      Products::begin();\n"
      "      Products::template columns_of_32<kTerms * kColumns, false>(",
      "      for (u32 i = 0; i < kHeld; ++i)\n"
      "        sums[block % (behind + 1)][i] = outputs.dims[block][i];\n"
      "      Products::begin();\n"
      "      Products::template columns_of_32<kTerms * kColumns, true>("},
     {"kimi_k3_mla/attend_tiles.cuh", "        outputs.dims[block][i % kHeld] +=\n",
      "        outputs.dims[block][i % kHeld] =\n"}}};

/// Scores are added up in fp32 after every 128 dims, rather than by the matrix units.
inline const Change kScoresOf128Dims = {
    "scores of 128 dims",
    16,
    {{"kimi_k3_mla/attend_tiles.cuh",
      "  Products::begin();\n"
      "  Products::template rows_of_128<kColumns, false>(scores, keys, query, 0);\n",
      "  float sums[kHeld];\n"
      "  for (u32 i = 0; i < kHeld; ++i) scores[i] = 0;\n"
      "#pragma unroll\n"
      "  for (u32 part = 0; part <= kParts; ++part) {\n"
      "    const u32 here = Products::after(keys, part * kPartBytes);\n"
      "    const u32 rows = Products::after(query, part * (kColumns * 128));\n"
      "    Products::begin();\n"
      "    if (part < kParts) {\n"
      "      Products::template rows_of_128<kColumns, false>(sums, here, rows, 0);\n"
      "#pragma unroll\n"
      "      for (u32 step = 1; step < 4; ++step)\n"
      "        Products::template rows_of_128<kColumns, true>(sums, here, rows, step);\n"
      "    } else {\n"
      "      Products::template rows_of_64<kColumns, false>(sums, here, rows, 0);\n"
      "      Products::template rows_of_64<kColumns, true>(sums, here, rows, 1);\n"
      "    }\n"
      "    Products::go();\n"
      "    Products::wait(sums);\n"
      "    for (u32 i = 0; i < kHeld; ++i) scores[i] += sums[i];\n"
      "  }\n"
      "  if constexpr (kColumns == 0) {\n"
      "  Products::template rows_of_128<kColumns, false>(scores, keys, query, 0);\n"},
     {"kimi_k3_mla/attend_tiles.cuh",
      "  Products::go();\n}\n\n// Takes away what a row does not see.",
      "  }\n}\n\n// Takes away what a row does not see."}}};

inline const Change kWarpsComeLate = {"warps come late", 96, kiln::test::warps_come_late()};

inline const Change* const kChanges[] = {&kReferencesStay, &kSevenOctaves,
                                         &kSumsStayInTheMatrixUnits, &kScoresOf128Dims,
                                         &kWarpsComeLate};

/// All sources, with the change. Errors as kiln::test::add_changed_sources.
inline Status add_changed_sources(Runtime& runtime, const Change& change) {
  return kiln::test::add_changed_sources(runtime, change.edits);
}

}  // namespace kiln::kernels::kimi_k3_mla::test
