// How the store's costs depend on how much is in it: a publish at 1,000 and at 50,000 entries, by
// system calls, instructions and time; the longest publish that trims; tiers.
//
// Threads: one.
#pragma once

#include "bench/report.hpp"

namespace kiln::cache {

void growth_rows(bench::Report& report);
void tier_rows(bench::Report& report);

}  // namespace kiln::cache
