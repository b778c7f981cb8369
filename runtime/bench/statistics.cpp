#include "runtime/bench/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "kiln/bench/compare.hpp"

namespace kiln::bench {

double quantile_of(std::span<const double> values, double q) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

std::vector<double> paired_differences(std::span<const double> first,
                                       std::span<const double> second) {
  std::vector<double> result;
  result.reserve(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) result.push_back(second[i] - first[i]);
  return result;
}

std::vector<double> alternate(std::span<const double> values, std::size_t start) {
  std::vector<double> result;
  for (std::size_t i = start; i < values.size(); i += 2) result.push_back(values[i]);
  return result;
}

Summary summarize(const std::vector<double>& values) {
  return {.median = median_of(values),
          .p10 = quantile_of(values, 0.1),
          .p90 = quantile_of(values, 0.9),
          .count = values.size()};
}

namespace {

double drift_of(std::span<const double> values) {
  const std::size_t quarter = values.size() / 4;
  return std::abs(median_of(values.last(quarter)) / median_of(values.first(quarter)) - 1);
}

double ratio_of(std::span<const double> baseline, std::span<const double> candidate) {
  return median_of(candidate) / median_of(baseline);
}

}  // namespace

Figures figures_of(const Samples& samples) {
  Figures figures;
  figures.baseline = summarize(samples.baseline);
  figures.candidate = summarize(samples.candidate);
  figures.ratio = ratio_of(samples.baseline, samples.candidate);
  figures.difference = summarize(paired_differences(samples.baseline, samples.candidate));
  figures.aa_ratio = ratio_of(samples.aa_first, samples.aa_second);
  figures.aa_difference = summarize(paired_differences(samples.aa_first, samples.aa_second));
  figures.noise_floor = std::abs(figures.aa_ratio - 1);
  const auto ratio_from = [&](std::size_t start) {
    return ratio_of(alternate(samples.baseline, start), alternate(samples.candidate, start));
  };
  figures.disagreement = std::abs(ratio_from(0) - ratio_from(1));
  const double baseline_drift = drift_of(samples.baseline);
  const double candidate_drift = drift_of(samples.candidate);
  // One that is no number, of times that were 0, must not be lost.
  figures.drift = std::isnan(baseline_drift) || baseline_drift >= candidate_drift ? baseline_drift
                                                                                  : candidate_drift;
  return figures;
}

}  // namespace kiln::bench
