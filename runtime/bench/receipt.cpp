#include "kiln/bench/receipt.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace kiln::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

Json json_of(const Summary& summary) {
  return {
      {"median", summary.median}, {"p10", summary.p10}, {"p90", summary.p90}, {"n", summary.count}};
}

Json json_of(const Figures& figures) {
  return {{"baseline", json_of(figures.baseline)},
          {"candidate", json_of(figures.candidate)},
          {"ratio", figures.ratio},
          {"difference", json_of(figures.difference)},
          {"aa_ratio", figures.aa_ratio},
          {"aa_difference", json_of(figures.aa_difference)},
          {"noise_floor", figures.noise_floor},
          {"disagreement", figures.disagreement},
          {"drift", figures.drift}};
}

Json json_of(const Clocks& clocks) {
  if (clocks.readings == 0) return nullptr;
  return {{"readings", clocks.readings},
          {"median_sm_mhz", clocks.median_sm_mhz},
          {"least_sm_mhz", clocks.least_sm_mhz},
          {"most_sm_mhz", clocks.most_sm_mhz},
          {"throttle_reasons", clocks.throttle_reasons}};
}

Json json_of(const Attempt& attempt) {
  return {{"faults", attempt.faults},
          {"figures", json_of(attempt.figures)},
          {"clocks", json_of(attempt.clocks)},
          {"samples",
           {{"baseline", attempt.samples.baseline},
            {"candidate", attempt.samples.candidate},
            {"aa_first", attempt.samples.aa_first},
            {"aa_second", attempt.samples.aa_second}}}};
}

Json json_of(const CompareOptions& options) {
  return {{"rounds", options.rounds},           {"warmup_rounds", options.warmup_rounds},
          {"win_ratio", options.win_ratio},     {"same_within", options.same_within},
          {"least_clock", options.least_clock}, {"most_disagreement", options.most_disagreement},
          {"most_drift", options.most_drift},   {"bitwise_parity", options.bitwise_parity}};
}

Json known(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json json_of(const Provenance& provenance) {
  return {{"processor", known(provenance.processor)},
          {"device", known(provenance.device)},
          {"driver", known(provenance.driver)},
          {"cuda_driver", known(provenance.cuda_driver)},
          {"toolkit", known(provenance.toolkit)},
          {"compiler", known(provenance.compiler)},
          {"commit", known(provenance.commit)},
          {"key", known(provenance.key)},
          {"pinned", provenance.pinned}};
}

}  // namespace

std::string timing_text(const DeviceTiming& timing) {
  const auto calls = "graph of " + std::to_string(timing.calls) + " calls, ";
  return timing.l2 == L2::warm ? calls + std::to_string(timing.replays) + " replays, warm L2"
                               : calls + "each after a flush, cold L2";
}

std::string to_json(const Receipt& receipt) {
  const auto& comparison = receipt.comparison;
  const auto& last = comparison.last();
  Json document = {{"schema", kSchema},
                   {"name", receipt.name},
                   {"timing", receipt.timing},
                   {"unit", "us"},
                   {"baseline", comparison.baseline},
                   {"candidate", comparison.candidate},
                   {"claim", to_string(comparison.options.claim)},
                   {"verdict", to_string(comparison.verdict)},
                   {"faults", last.faults},
                   {"limits", json_of(comparison.options)},
                   {"figures", json_of(last.figures)},
                   {"clocks", json_of(last.clocks)},
                   {"attempts", Json::array()},
                   {"provenance", json_of(receipt.provenance)}};
  for (const auto& attempt : comparison.attempts) document["attempts"].push_back(json_of(attempt));
  // Text that is not UTF-8 is replaced instead of reported.
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string table_head() {
  char line[256];
  std::snprintf(line, sizeof(line), "%-44s %10s %10s %8s %7s %7s %7s %7s  %s", "", "base us",
                "cand us", "ratio", "noise", "order", "drift", "SM MHz", "verdict");
  return line;
}

std::string table_row(const Receipt& receipt) {
  const auto& comparison = receipt.comparison;
  const auto& figures = comparison.last().figures;
  char line[512];
  std::snprintf(line, sizeof(line),
                "%-44.120s %10.3f %10.3f %8.4f %7.4f %7.4f %7.4f %7.0f  %s: %s%s",
                receipt.name.c_str(), figures.baseline.median, figures.candidate.median,
                figures.ratio, figures.noise_floor, figures.disagreement, figures.drift,
                comparison.last().clocks.median_sm_mhz,
                std::string(to_string(comparison.options.claim)).c_str(),
                std::string(to_string(comparison.verdict)).c_str(),
                comparison.attempts.size() > 1 ? " (second attempt)" : "");
  std::string text = line;
  for (const auto& fault : comparison.last().faults) text += "\n    refused: " + fault;
  return text;
}

}  // namespace kiln::bench
