// Two arms against each other: the rounds, the figures, the gates and the verdict. Where the
// samples come from is the business of host.hpp and device.hpp, or of a test.
//
// One attempt:
//   1. both arms are checked, and where asked their outputs are compared byte for byte;
//   2. `warmup_rounds` rounds are thrown away;
//   3. `rounds` rounds of four samples: one pair of baseline and candidate, and one pair of the
//      baseline with itself (A/A). Even rounds take the first of each pair first, odd rounds the
//      second: ABBA over two rounds. The SM clock is read under load after every fourth round;
//   4. both arms are checked again.
// The gates look at how the attempt went, never at whether the candidate is faster. When one of
// them fails, the whole attempt is made once more and no more; the second one counts, whatever it
// gives. A wrong output is not noise: it is refused at once.
//
// Threads: one at a time; what it calls is called on the caller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::bench {

enum class Side : unsigned char { baseline, candidate };

/// Quantiles are linear between the two nearest values.
struct Summary {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  std::size_t count = 0;
};
Summary summarize(const std::vector<double>& values);

/// Microseconds of one call, one value a round.
struct Samples {
  std::vector<double> baseline{};
  std::vector<double> candidate{};
  std::vector<double> aa_first{};   ///< the baseline again,
  std::vector<double> aa_second{};  ///< against itself
};

struct Figures {
  Summary baseline{};
  Summary candidate{};
  /// median(candidate) / median(baseline): below 1 the candidate takes less time.
  double ratio = 0;
  Summary difference{};     ///< candidate minus baseline of the same round, in microseconds
  double aa_ratio = 0;      ///< median(aa_second) / median(aa_first)
  Summary aa_difference{};  ///< aa_second minus aa_first of the same round, in microseconds
  double noise_floor = 0;   ///< |aa_ratio - 1|: what two equal arms differ by
  /// |ratio of the even rounds - ratio of the odd rounds|: what going first is worth.
  double disagreement = 0;
  /// |median of the last quarter of the rounds / that of the first - 1|, of the arm with more.
  double drift = 0;
};
/// Requires at least 8 rounds, all four vectors being of one size.
Figures figures_of(const Samples& samples);

/// What NVML says of a device at one moment.
struct Clock {
  unsigned sm_mhz = 0;
  unsigned most_sm_mhz = 0;            ///< that the device can run at
  std::uint64_t throttle_reasons = 0;  ///< nvmlClocksEventReasons bits
};
/// All readings of an attempt, which were taken under load.
struct Clocks {
  std::size_t readings = 0;
  double median_sm_mhz = 0;
  unsigned least_sm_mhz = 0;
  unsigned most_sm_mhz = 0;
  std::uint64_t throttle_reasons = 0;  ///< of any reading
};

/// What a comparison is to show.
enum class Claim : unsigned char {
  faster,  ///< ratio <= win_ratio, and 1 - ratio > noise_floor
  same,    ///< ratio within [1 / (1 + same_within), 1 + same_within]
};

struct CompareOptions {
  Claim claim = Claim::faster;
  unsigned rounds = 40;  ///< a multiple of 4 from 8 to 100 000
  unsigned warmup_rounds = 4;
  double win_ratio = 0.94;
  double same_within = 0.02;
  /// Gate: the median SM clock under load is at least this part of the device's maximum.
  double least_clock = 0.9;
  double most_disagreement = 0.02;  ///< gate
  double most_drift = 0.05;         ///< gate
  bool bitwise_parity = false;      ///< gate: the arms' outputs are equal, byte for byte
};

enum class Verdict : unsigned char {
  held,      ///< the measurement is valid and the claim is true of it
  not_held,  ///< the measurement is valid and the claim is not true of it
  refused,   ///< the measurement is not valid, twice over or by a wrong output: it shows nothing
};

struct Attempt {
  Samples samples{};
  Figures figures{};
  Clocks clocks{};
  /// One sentence for each gate that failed: the figure, and its limit. Empty: valid.
  std::vector<std::string> faults{};
  bool wrong_output = false;  ///< one of the faults is that of an output
};

struct Comparison {
  std::string baseline{};
  std::string candidate{};
  CompareOptions options{};
  std::vector<Attempt> attempts{};  ///< one, or two after a retry; the last one counts
  Verdict verdict = Verdict::refused;

  /// Requires an attempt. Of a refused comparison too, the figures are there to be looked at.
  const Attempt& last() const noexcept { return attempts.back(); }
};

/// Where a comparison gets what it looks at.
struct Probe {
  /// Microseconds of one call of the arm. Required.
  std::function<Result<double>(Side)> sample{};
  /// Runs the arm and says what is wrong with its output. Null: there is no output to check.
  std::function<Status(Side)> check{};
  /// How the outputs of the arms differ; empty when they do not. Called when parity is asked for.
  std::function<Result<std::string>()> parity{};
  /// The clock while the device works. Null: the arms run on the host, there is no such gate.
  std::function<Result<Clock>()> clock{};
};

/// Compares as above.
/// Errors  invalid_argument for options that cannot be; what sample() and parity() give; what
///         check() gives where it is driver_failed. Any other error of check() is a wrong output,
///         and any error of clock() is a fault.
Result<Comparison> compare(const Probe& probe, const CompareOptions& options);

/// "faster", "held" and the like.
std::string_view to_string(Claim claim) noexcept;
std::string_view to_string(Verdict verdict) noexcept;

}  // namespace kiln::bench
