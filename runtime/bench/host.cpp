#include "kiln/bench/host.hpp"

#include <chrono>

namespace kiln::bench {
namespace {

std::int64_t monotonic_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<Comparison> compare_host(const HostArm& baseline, const HostArm& candidate,
                                const HostTiming& timing, const CompareOptions& options) {
  if (timing.calls == 0 || !baseline.run || !candidate.run)
    return Error(ErrorCode::invalid_argument,
                 "host timing: a sample needs at least 1 call and both arms something to run");
  const auto arm = [&](Side side) -> const HostArm& {
    return side == Side::baseline ? baseline : candidate;
  };
  const auto now = timing.now ? timing.now : std::function<std::int64_t()>(monotonic_nanoseconds);
  Probe probe;
  probe.sample = [&](Side side) -> Result<double> {
    if (timing.settle) KILN_TRY(timing.settle());
    const auto& run = arm(side).run;
    const auto start = now();
    auto status = run(timing.calls);
    const auto end = now();
    if (!status) return status.error();
    return static_cast<double>(end - start) / 1000 / timing.calls;
  };
  if (baseline.check || candidate.check)
    probe.check = [&](Side side) { return arm(side).check ? arm(side).check() : Status{}; };
  KILN_TRY(auto comparison, compare(probe, options));
  comparison.baseline = baseline.name;
  comparison.candidate = candidate.name;
  return comparison;
}

}  // namespace kiln::bench
