// The attention program with one thing taken out of it, to see the tests of long rows fail that are
// there for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "kiln/runtime.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

/// Texts of the program, each once in its file, and what takes their place.
struct Change {
  struct Edit {
    std::string_view file, text, instead;
  };
  const char* what = "";
  std::vector<Edit> edits{};
};

/// References stay what the first tile made them, so weights pass 448, E4M3's largest.
inline const Change kReferencesStay = {
    "references stay",
    {{"attend_common.cuh", "constexpr float kMostExponent = 8.80f;",
      "constexpr float kMostExponent = 1e30f;"}}};

/// Seven octaves between a weight at its reference and E4M3's largest, rather than 2.8.
inline const Change kSevenOctaves = {"seven octaves",
                                     {{"attend_common.cuh", "constexpr float kWeightShift = 6;",
                                       "constexpr float kWeightShift = 1.8f;"}}};

/// The matrix units go on with the sums of all tiles, of which they keep some 14 bits. For weights
/// of one term.
inline const Change kSumsStayInTheMatrixUnits = {
    "sums stay in the matrix units",
    {{"attend_tiles.cuh",
      "      Products::begin();\n"
      "      Products::template columns_of_32<kTerms * kColumns, false>(",
      "      for (u32 i = 0; i < kHeld; ++i)\n"
      "        sums[block % (behind + 1)][i] = outputs.dims[block][i];\n"
      "      Products::begin();\n"
      "      Products::template columns_of_32<kTerms * kColumns, true>("},
     {"attend_tiles.cuh", "        outputs.dims[block][i % kHeld] +=\n",
      "        outputs.dims[block][i % kHeld] =\n"}}};

inline const Change* const kChanges[] = {&kReferencesStay, &kSevenOctaves,
                                         &kSumsStayInTheMatrixUnits};

/// All sources, with the change.
/// Errors  invalid_argument for a text that is not there once; as Runtime::add_source
inline Status add_changed_sources(Runtime& runtime, const Change& change) {
  std::size_t made = 0;
  for (const SourceText& source : embedded_sources()) {
    std::string text(source.text);
    for (const Change::Edit& edit : change.edits) {
      if (source.name != "kernel_src/kimi_k3_mla/" + std::string(edit.file)) continue;
      const auto at = text.find(edit.text);
      if (at == std::string::npos || text.find(edit.text, at + 1) != std::string::npos)
        return Error(ErrorCode::invalid_argument,
                     std::string(edit.file) + " does not hold once: " + std::string(edit.text));
      text.replace(at, edit.text.size(), edit.instead);
      ++made;
    }
    if (Status added = runtime.add_source(source.name, text); !added) return added;
  }
  if (made != change.edits.size())
    return Error(ErrorCode::invalid_argument, std::string(change.what) + ": a file is not there");
  return {};
}

}  // namespace kiln::kernels::kimi_k3_mla::test
