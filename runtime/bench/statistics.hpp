// Quantiles of samples.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kiln::bench {

/// The value below which a part `q` of the values lie, linear between the two nearest; 0 of none.
double quantile_of(std::span<const double> values, double q);
inline double median_of(std::span<const double> values) {
  return quantile_of(values, 0.5);
}

/// `second` minus `first`, pair by pair. Requires equal sizes.
std::vector<double> paired_differences(std::span<const double> first,
                                       std::span<const double> second);

/// Every second value, from `start` (0 or 1) on.
std::vector<double> alternate(std::span<const double> values, std::size_t start);

}  // namespace kiln::bench
