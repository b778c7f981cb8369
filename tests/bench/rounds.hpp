// Timing in paired rounds: the arms take turns, so that what disturbs one disturbs the other.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::bench {

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

/// The value; without one the benchmark ends here.
template <class T>
T must(Result<T> result) {
  if (!result) fail(result.error().message());
  return *std::move(result);
}

struct Arm {
  std::string name{};
  std::function<void()> run{};
  std::vector<double> microseconds{};
};

inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

/// Runs every arm `calls` times a round, `rounds` rounds after a warm-up one, in alternating order.
inline void run_rounds(std::vector<Arm>& arms, int rounds, int calls) {
  for (int round = -1; round < rounds; ++round)
    for (std::size_t i = 0; i < arms.size(); ++i) {
      auto& arm = arms[round % 2 == 0 ? i : arms.size() - 1 - i];
      const auto start = std::chrono::steady_clock::now();
      for (int call = 0; call < calls; ++call) arm.run();
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - start;
      if (round >= 0) arm.microseconds.push_back(time.count() / calls);
    }
}

/// One line an arm: median with 10 and 90 %, and the median of the paired differences to the first.
inline void print(const std::string& title, const std::vector<Arm>& arms) {
  std::printf("%s\n", title.c_str());
  for (const auto& arm : arms) {
    std::vector<double> differences;
    for (std::size_t i = 0; i < arm.microseconds.size(); ++i)
      differences.push_back(arm.microseconds[i] - arms.front().microseconds[i]);
    std::printf("  %-44s %10.3f us  (10 %% %.3f, 90 %% %.3f)  minus first %+.3f us\n",
                arm.name.c_str(), quantile(arm.microseconds, 0.5), quantile(arm.microseconds, 0.1),
                quantile(arm.microseconds, 0.9), quantile(differences, 0.5));
  }
  std::fflush(stdout);
}

}  // namespace kiln::bench
