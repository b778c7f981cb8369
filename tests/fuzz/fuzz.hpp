// What the fuzzers share: a claim that must hold for every input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace kiln::fuzz {

/// Ends the process, which the fuzzer reports with the input at hand.
inline void must(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", claim);
  std::abort();
}

}  // namespace kiln::fuzz
