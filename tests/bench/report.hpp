// What every benchmark prints: a table as it goes, and with --json FILE one document that also says
// on what it ran. A row is ours, and beside it what was measured in the same run to judge it by.
//
// Threads: one.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::bench {

/// Ends the benchmark.
[[noreturn]] void fail(const std::string& why);

/// The value; without one the benchmark ends here.
template <class T>
T must(Result<T> result) {
  if (!result) fail(result.error().message());
  return *std::move(result);
}
inline void must(const Status& status) {
  if (!status) fail(status.error().message());
}

/// The value below which `q` of the values lie; they must not be empty.
double quantile(std::vector<double> values, double q);

/// What a row is judged by: its measured values, or one number.
struct Rival {
  std::string name{};
  std::vector<double> values{};
};

class Report {
 public:
  /// Reads `[--rounds N] [--json FILE]`, where FILE "-" is the standard output and sends the table
  /// to the other one. Fails the program on anything else.
  Report(std::string bench, int argc, char** argv, int default_rounds);

  int rounds() const noexcept { return rounds_; }

  /// Adds a row and prints it: the median of `ours` with its 10 and 90 % quantiles, beside the
  /// median of the rival's. `unit` is that of both.
  void add(const std::string& name, const std::string& unit, const std::vector<double>& ours,
           const Rival& rival = {});

  /// Writes the document; the exit code of the program.
  int finish() const;

 private:
  struct Row {
    std::string name, unit;
    double ours, p10, p90;
    std::size_t n;
    std::string rival_name;
    double rival;  ///< without a rival: not looked at
  };

  std::string bench_;
  int rounds_;
  std::string json_file_;
  std::vector<Row> rows_;
};

}  // namespace kiln::bench
