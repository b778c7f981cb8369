// What is kept of a comparison: a JSON document that says what was measured, how, on what, and what
// came of it, and lines for people.
//
// Threads: values and pure functions.
#pragma once

#include <string>

#include "kiln/bench/compare.hpp"
#include "kiln/bench/device.hpp"

namespace kiln::bench {

/// On what a comparison ran; an empty member is not known.
struct Provenance {
  std::string processor{};    ///< model of the CPU
  std::string device{};       ///< name of the GPU
  std::string driver{};       ///< its version, such as "580.95.05"
  std::string cuda_driver{};  ///< the CUDA version that it is for, such as "13.0"
  std::string toolkit{};      ///< identity of the NVRTC that compiled the arms
  std::string compiler{};     ///< that built the harness
  std::string commit{};       ///< of the harness's source, with "-dirty" for a changed tree
  std::string key{};          ///< compile key of the kernel that is timed
  bool pinned = false;        ///< the process may run on fewer processors than are online
};

/// What the process can tell by itself: all but device, toolkit and key. Loads NVML, makes no
/// context.
Provenance provenance();

struct Receipt {
  std::string name{};    ///< of the row
  std::string timing{};  ///< how, such as what timing_text() gives
  Comparison comparison{};
  Provenance provenance{};
};

/// "graph of 20 calls, 10 replays, warm L2"
std::string timing_text(const DeviceTiming& timing);

/// One JSON object:
///
///   {"schema": 1, "name", "timing", "unit": "us", "baseline", "candidate",
///    "claim": "faster" | "same", "verdict": "held" | "not_held" | "refused",
///    "faults": [of the attempt that counts], "limits": {the options}, "figures": {the same names
///    as in Figures, a summary being {"median", "p10", "p90", "n"}}, "clocks": {...} or null,
///    "attempts": [{"faults", "figures", "clocks", "samples"}], "provenance": {null: not known}}
std::string to_json(const Receipt& receipt);

/// Lines of equal columns: name, both medians, ratio, noise floor, disagreement, drift, SM clock,
/// verdict. Below a row, a line for each fault of the attempt that counts.
std::string table_head();
std::string table_row(const Receipt& receipt);

}  // namespace kiln::bench
