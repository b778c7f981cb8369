// What a benchmark ran on, for its report.
//
// Threads: any.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace kiln::bench {

/// Machine, driver, NVRTC, compiler, build type, commit and the processors this process may use,
/// each null or "unknown" where it cannot be told.
nlohmann::ordered_json describe_run();

}  // namespace kiln::bench
