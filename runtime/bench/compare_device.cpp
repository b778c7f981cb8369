#include <algorithm>
#include <cmath>
#include <optional>

#include "kiln/bench/device.hpp"
#include "runtime/bench/clocks.hpp"
#include "runtime/bench/graph_timing.hpp"
#include "runtime/bench/outputs.hpp"

namespace kiln::bench {
namespace {

// How long the device works while its clock is read.
constexpr double kLoadMicroseconds = 5000;
constexpr unsigned kMostLoadReplays = 5000;

Status check_arm(const DeviceArm& arm) {
  if (arm.enqueue && arm.check && !arm.outputs.empty()) return {};
  return Error(ErrorCode::invalid_argument,
               "device timing: the arm \"" + arm.name +
                   "\" must have enqueue, check and at least one output");
}

Status check_timing(const DeviceTiming& timing) {
  if (timing.calls >= 1 && timing.calls <= 10'000 && timing.replays >= 1 &&
      timing.replays <= 10'000)
    return {};
  return Error(ErrorCode::invalid_argument,
               "device timing: calls is " + std::to_string(timing.calls) + " and replays " +
                   std::to_string(timing.replays) + "; each must be from 1 to 10000");
}

/// Both arms on the device.
struct DeviceTrial {
  struct ArmState {
    const DeviceArm& arm;
    TimedGraph graph;
    double call_microseconds = 0;  ///< of the last sample
  };

  ArmState& of(Side side) { return arms[side == Side::baseline ? 0 : 1]; }

  Result<double> sample(Side side) {
    auto& state = of(side);
    KILN_TRY(state.call_microseconds, state.graph.sample(stream));
    return state.call_microseconds;
  }

  /// The graph that is timed, over poisoned outputs.
  Status run_poisoned(const ArmState& state) {
    KILN_TRY(poison(state.arm.outputs));
    KILN_TRY(state.graph.launch(stream));
    return stream.synchronize();
  }

  Status check(Side side) {
    KILN_TRY(run_poisoned(of(side)));
    return of(side).arm.check();
  }

  Result<std::string> parity() {
    std::vector<Bytes> all[2];
    for (const auto side : {Side::baseline, Side::candidate}) {
      KILN_TRY(run_poisoned(of(side)));
      KILN_TRY(all[side == Side::baseline ? 0 : 1], download(of(side).arm.outputs));
    }
    return first_difference(all[0], all[1]);
  }

  Result<Clock> clock() {
    if (!clocks) return clocks.error();
    const auto& state = arms[0];
    const double replay = std::max(state.call_microseconds * timing.calls, 1.0);
    const auto replays =
        std::min(kMostLoadReplays, static_cast<unsigned>(std::ceil(kLoadMicroseconds / replay)));
    for (unsigned i = 0; i < replays; ++i) KILN_TRY(state.graph.launch(stream));
    auto reading = clocks->read();
    KILN_TRY(stream.synchronize());
    return reading;
  }

  Stream& stream;
  const DeviceTiming& timing;
  Result<DeviceClocks> clocks;
  std::vector<ArmState> arms;
};

Result<DeviceClocks> open_clocks(const std::string& pci_id) {
  KILN_TRY(const auto nvml, NvmlApi::load());
  return DeviceClocks::open(nvml, pci_id);
}

}  // namespace

Result<Comparison> compare_device(const Device& device, const DeviceArm& baseline,
                                  const DeviceArm& candidate, const DeviceTiming& timing,
                                  const CompareOptions& options) {
  for (const auto* arm : {&baseline, &candidate}) KILN_TRY(check_arm(*arm));
  KILN_TRY(check_timing(timing));
  KILN_TRY(auto stream, Stream::make(device.state()->context));
  std::optional<L2Flush> flush;
  if (timing.l2 == L2::cold) {
    KILN_TRY(auto made, L2Flush::make(device));
    flush.emplace(std::move(made));
  }
  DeviceTrial trial{stream, timing, open_clocks(device.state()->pci_id), {}};
  for (const auto* arm : {&baseline, &candidate}) {
    KILN_TRY(auto graph, TimedGraph::make(device, stream, *arm, timing, flush ? &*flush : nullptr));
    trial.arms.push_back({*arm, std::move(graph)});
  }
  const Probe probe{.sample = [&](Side side) { return trial.sample(side); },
                    .check = [&](Side side) { return trial.check(side); },
                    .parity = [&] { return trial.parity(); },
                    .clock = [&] { return trial.clock(); }};
  KILN_TRY(auto comparison, compare(probe, options));
  comparison.baseline = baseline.name;
  comparison.candidate = candidate.name;
  return comparison;
}

}  // namespace kiln::bench
