// Timing in paired rounds: the arms take turns, so that what disturbs one disturbs the other.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/report.hpp"

namespace kiln::bench {

struct Arm {
  std::string name{};
  std::function<void()> run{};
  std::vector<double> microseconds{};
};

/// Microseconds that `work` takes.
template <class Work>
double time_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Runs every arm `calls` times a round, `rounds` rounds after a warm-up one, in alternating order;
/// the values are microseconds a call.
inline void run_rounds(std::vector<Arm>& arms, int rounds, int calls) {
  for (int round = -1; round < rounds; ++round)
    for (std::size_t i = 0; i < arms.size(); ++i) {
      auto& arm = arms[round % 2 == 0 ? i : arms.size() - 1 - i];
      const double time = time_of([&] {
        for (int call = 0; call < calls; ++call) arm.run();
      });
      if (round >= 0) arm.microseconds.push_back(time / calls);
    }
}

/// Ours minus the rival's, round by round.
inline std::vector<double> differences(const Arm& ours, const Arm& rival) {
  std::vector<double> result;
  for (std::size_t i = 0; i < ours.microseconds.size(); ++i)
    result.push_back(ours.microseconds[i] - rival.microseconds[i]);
  return result;
}

/// Two rows: ours beside the rival, and their paired difference.
inline void add_pair(Report& report, const std::string& title, const Arm& rival, const Arm& ours) {
  report.add(title + ": " + ours.name, "us", ours.microseconds, {rival.name, rival.microseconds});
  report.add(title + ": paired difference", "us", differences(ours, rival));
}

}  // namespace kiln::bench
