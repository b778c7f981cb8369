// Jitter: what many hosts do must not fall into step.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace kiln::cache {

inline double random_between(double least, double most) {
  thread_local std::mt19937_64 random(std::uint64_t{std::random_device{}()} << 32 |
                                      std::random_device{}());
  return std::uniform_real_distribution<double>(least, most)(random);
}

/// `time`, made shorter or longer by a factor between the two at random.
inline std::chrono::steady_clock::duration jittered(std::chrono::steady_clock::duration time,
                                                    double least, double most) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      time * random_between(least, most));
}

}  // namespace kiln::cache
