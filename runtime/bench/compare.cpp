#include "kiln/bench/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "runtime/bench/statistics.hpp"

namespace kiln::bench {
namespace {

constexpr unsigned kRoundsPerClockReading = 4;

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

Error wrong_option(const char* name, const std::string& value, const char* allowed) {
  return {ErrorCode::invalid_argument,
          std::string("comparison: ") + name + " is " + value + "; it must be " + allowed};
}

Status check_options(const Probe& probe, const CompareOptions& options) {
  if (!probe.sample)
    return Error(ErrorCode::invalid_argument, "comparison: there is nothing to take samples with");
  if (options.bitwise_parity && !probe.parity)
    return Error(ErrorCode::invalid_argument,
                 "comparison: bitwise parity is asked for, but the arms name no outputs");
  if (options.rounds < 8 || options.rounds > 100'000 || options.rounds % 4 != 0)
    return wrong_option("rounds", std::to_string(options.rounds),
                        "a multiple of 4 from 8 to 100000");
  if (options.warmup_rounds > 100'000)
    return wrong_option("warmup_rounds", std::to_string(options.warmup_rounds), "at most 100000");
  const std::pair<const char*, double> parts[] = {{"win_ratio", options.win_ratio},
                                                  {"same_within", options.same_within},
                                                  {"least_clock", options.least_clock},
                                                  {"most_disagreement", options.most_disagreement},
                                                  {"most_drift", options.most_drift}};
  for (const auto& [name, value] : parts)
    if (!(value >= 0 && value <= 1)) return wrong_option(name, number(value, 4), "from 0 to 1");
  return {};
}

/// One attempt in the making.
class Trial {
 public:
  Trial(const Probe& probe, const CompareOptions& options) : probe_(probe), options_(options) {}

  Result<Attempt> run() {
    KILN_TRY(check_outputs("before"));
    if (options_.bitwise_parity) {
      KILN_TRY(const std::string difference, probe_.parity());
      if (!difference.empty()) wrong_output("the outputs differ: " + difference);
    }
    Samples thrown_away;
    for (unsigned round = 0; round < options_.warmup_rounds; ++round)
      KILN_TRY(take_round(round, thrown_away));
    for (unsigned round = 0; round < options_.rounds; ++round) {
      KILN_TRY(take_round(round, attempt_.samples));
      if (round % kRoundsPerClockReading == kRoundsPerClockReading - 1) read_clock();
    }
    KILN_TRY(check_outputs("after"));
    attempt_.figures = figures_of(attempt_.samples);
    judge_clock();
    judge_figures();
    return std::move(attempt_);
  }

 private:
  void fault(std::string what) { attempt_.faults.push_back(std::move(what)); }
  void wrong_output(std::string what) {
    attempt_.wrong_output = true;
    fault(std::move(what));
  }

  Status check_outputs(const char* when) {
    if (!probe_.check) return {};
    for (const auto side : {Side::baseline, Side::candidate}) {
      const auto status = probe_.check(side);
      if (status) continue;
      if (status.code() == ErrorCode::driver_failed) return status;
      const char* const whose = side == Side::baseline ? "baseline" : "candidate";
      wrong_output(std::string(when) + " the rounds the " + whose +
                   "'s output is wrong: " + status.error().message());
    }
    return {};
  }

  Status take_pair(Side first, std::vector<double>& firsts, Side second,
                   std::vector<double>& seconds, bool second_goes_first) {
    const auto take = [&](Side side, std::vector<double>& values) -> Status {
      const auto time = probe_.sample(side);
      if (!time) return time.error();
      values.push_back(*time);
      return {};
    };
    if (second_goes_first) {
      KILN_TRY(take(second, seconds));
      return take(first, firsts);
    }
    KILN_TRY(take(first, firsts));
    return take(second, seconds);
  }

  Status take_round(unsigned round, Samples& samples) {
    const bool swapped = round % 2 != 0;
    if (auto status = take_pair(Side::baseline, samples.baseline, Side::candidate,
                                samples.candidate, swapped);
        !status)
      return status;
    return take_pair(Side::baseline, samples.aa_first, Side::baseline, samples.aa_second, swapped);
  }

  void read_clock() {
    if (!probe_.clock || clock_error_) return;
    const auto clock = probe_.clock();
    if (!clock) {
      clock_error_ = clock.error();
      return;
    }
    readings_.push_back(static_cast<double>(clock->sm_mhz));
    auto& clocks = attempt_.clocks;
    clocks.least_sm_mhz =
        clocks.readings == 0 ? clock->sm_mhz : std::min(clocks.least_sm_mhz, clock->sm_mhz);
    clocks.most_sm_mhz = clock->most_sm_mhz;
    clocks.throttle_reasons |= clock->throttle_reasons;
    ++clocks.readings;
  }

  void judge_clock() {
    if (!probe_.clock) return;
    auto& clocks = attempt_.clocks;
    clocks.median_sm_mhz = median_of(readings_);
    if (clock_error_) {
      fault("the SM clock is not known: " + clock_error_->message());
      return;
    }
    const double limit = options_.least_clock * static_cast<double>(clocks.most_sm_mhz);
    if (clocks.median_sm_mhz < limit || clocks.most_sm_mhz == 0)
      fault("the SM clock under load is " + number(clocks.median_sm_mhz, 0) + " MHz, below " +
            number(options_.least_clock, 2) + " of its maximum of " +
            std::to_string(clocks.most_sm_mhz) + " MHz");
  }

  void judge_figures() {
    const auto& figures = attempt_.figures;
    const auto gate = [&](double value, double limit, const char* name) {
      // A figure that is no number passes no gate.
      if (value <= limit) return;
      fault(std::string(name) + " is " + number(value, 4) + ", above " + number(limit, 4));
    };
    gate(figures.disagreement, options_.most_disagreement,
         "the disagreement between the two orders of the arms");
    gate(figures.drift, options_.most_drift, "the drift from the first rounds to the last");
  }

  const Probe& probe_;
  const CompareOptions& options_;
  Attempt attempt_;
  std::vector<double> readings_;
  std::optional<Error> clock_error_;
};

bool holds(const Figures& figures, const CompareOptions& options) {
  switch (options.claim) {
    case Claim::faster:
      return figures.ratio <= options.win_ratio && 1 - figures.ratio > figures.noise_floor;
    case Claim::same:
      return figures.ratio <= 1 + options.same_within &&
             figures.ratio >= 1 / (1 + options.same_within);
  }
  return false;
}

}  // namespace

Result<Comparison> compare(const Probe& probe, const CompareOptions& options) {
  KILN_TRY(check_options(probe, options));
  Comparison comparison{.options = options};
  constexpr std::size_t kMostAttempts = 2;
  do {
    KILN_TRY(auto attempt, Trial(probe, options).run());
    comparison.attempts.push_back(std::move(attempt));
  } while (!comparison.last().faults.empty() && !comparison.last().wrong_output &&
           comparison.attempts.size() < kMostAttempts);
  if (comparison.last().faults.empty())
    comparison.verdict =
        holds(comparison.last().figures, options) ? Verdict::held : Verdict::not_held;
  return comparison;
}

std::string_view to_string(Claim claim) noexcept {
  return claim == Claim::faster ? "faster" : "same";
}

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::held:
      return "held";
    case Verdict::not_held:
      return "not_held";
    case Verdict::refused:
      return "refused";
  }
  return "refused";
}

}  // namespace kiln::bench
