#include "bench/report.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "bench/machine.hpp"

namespace kiln::bench {

void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

Report::Report(std::string bench, int argc, char** argv, int default_rounds)
    : bench_(std::move(bench)), rounds_(default_rounds) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const bool known = i + 1 < argc && (option == "--rounds" || option == "--json");
    if (known && option == "--json") json_file_ = argv[i + 1];
    if (known && option == "--rounds") rounds_ = std::atoi(argv[i + 1]);
    if (!known || rounds_ < 1)
      fail("usage: kiln_" + bench_ + "_bench [--rounds N] [--json FILE]\n  N from 1 on, " +
           std::to_string(default_rounds) + " if not given; FILE - is the standard output");
  }
}

void Report::add(const std::string& name, const std::string& unit, const std::vector<double>& ours,
                 const Rival& rival) {
  Row row{.name = name,
          .unit = unit,
          .ours = quantile(ours, 0.5),
          .p10 = quantile(ours, 0.1),
          .p90 = quantile(ours, 0.9),
          .n = ours.size(),
          .rival_name = rival.name,
          .rival = rival.values.empty() ? 0 : quantile(rival.values, 0.5)};
  auto* const out = json_file_ == "-" ? stderr : stdout;
  std::fprintf(out, "%-66s %11.3f %-4s (10 %% %.3f, 90 %% %.3f, n %zu)", row.name.c_str(), row.ours,
               row.unit.c_str(), row.p10, row.p90, row.n);
  if (!row.rival_name.empty())
    std::fprintf(out, "  %s: %.3f, ratio %.4f", row.rival_name.c_str(), row.rival,
                 row.ours / row.rival);
  std::fputc('\n', out);
  std::fflush(out);
  rows_.push_back(std::move(row));
}

int Report::finish() const {
  if (json_file_.empty()) return 0;
  nlohmann::ordered_json document = {{"bench", bench_}};
  document.update(describe_run());
  auto& rows = document["rows"] = nlohmann::ordered_json::array();
  for (const auto& row : rows_) {
    nlohmann::ordered_json line = {{"name", row.name}, {"unit", row.unit}, {"ours", row.ours}};
    const bool judged = !row.rival_name.empty();
    line["rival_name"] = judged ? nlohmann::ordered_json(row.rival_name) : nullptr;
    line["rival"] = judged ? nlohmann::ordered_json(row.rival) : nullptr;
    line["ratio"] = judged ? nlohmann::ordered_json(row.ours / row.rival) : nullptr;
    line["n"] = row.n;
    line["p10"] = row.p10;
    line["p90"] = row.p90;
    rows.push_back(std::move(line));
  }
  if (json_file_ == "-") {
    std::cout << document.dump(1) << std::endl;
    return std::cout ? 0 : 1;
  }
  std::ofstream file(json_file_);
  file << document.dump(1) << std::endl;
  if (!file) fail("cannot write " + json_file_ + "; name a file in a directory that is writable");
  return 0;
}

}  // namespace kiln::bench
