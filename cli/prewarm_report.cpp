#include "cli/prewarm_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/entry_facts.hpp"

namespace kiln::cli {
namespace {

std::string fixed(double number, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, number);
  return text.data();
}

// Empty for a kernel that got no key.
std::string key_text(const cache::Digest& key) {
  return key == cache::Digest{} ? std::string() : key.hex();
}

}  // namespace

Json PrewarmReport::head() const {
  return {{"model", request_.manifest.model},
          {"parameters", request_.manifest.parameters},
          {"cache_dir", cache_directory_.string()}};
}

std::string PrewarmReport::title_of(KernelId id) const {
  const auto place = std::find(request_.ids.begin(), request_.ids.end(), id);
  return request_.titles.at(static_cast<std::size_t>(place - request_.ids.begin()));
}

void PrewarmReport::step(const KernelReport& kernel) const {
  if (output_.live() && ::isatty(STDOUT_FILENO) != 0) return;
  output_.line(padded(std::string(to_string(kernel.origin)), 8) + "  " +
               padded(kernel.architecture, 8) + "  " + padded(key_text(kernel.key), 32) + "  " +
               padded(milliseconds_text(kernel.time), -10) + "  " +
               padded(bytes_text(kernel.cubin_bytes), -10) + "  " + title_of(kernel.id));
}

ExitCode PrewarmReport::finish(const WarmupReport& report) const {
  // What is wrong with the machine is the same for all kernels, but for their names: once will do.
  std::set<std::string> reported;
  bool no_toolchain = false;
  for (const auto& kernel : report.kernels) {
    if (kernel.status) continue;
    const auto& error = kernel.status.error();
    if (error.code() == ErrorCode::not_ready && !report.stopped.empty()) continue;
    if (error.code() == ErrorCode::no_toolchain && std::exchange(no_toolchain, true)) continue;
    const auto message = error.message();
    if (!reported.insert(message).second) continue;
    output_.message("kiln: " + message);
    if (!error.detail().empty()) output_.message(error.detail());
  }
  if (!report.stopped.empty())
    output_.message("kiln: stopped (" + report.stopped + ") with " +
                    std::to_string(report.requested - report.failed) + " of " +
                    counted(report.requested, "kernel") +
                    " finished; the same command goes on from there");
  if (report.not_stored != 0)
    output_.message("kiln: " + std::to_string(report.not_stored) + " of " +
                    counted(report.compiled, "compiled kernel") + " could not be stored in " +
                    cache_directory_.string());

  std::string parameters;
  for (const auto& [name, value] : request_.manifest.parameters)
    parameters += (parameters.empty() ? " (" : ", ") + name + " " + value;
  if (!parameters.empty()) parameters += ")";
  const double seconds = std::chrono::duration<double>(report.time).count();
  output_.line(printable(request_.manifest.model + parameters) + ": " +
               counted(report.requested, "kernel") + ": " + counted(report.hits, "hit") + ", " +
               std::to_string(report.compiled) + " compiled, " + std::to_string(report.waited) +
               " waited for, " + std::to_string(report.failed) + " failed, in " +
               fixed(seconds, 2) + " s");
  if (!report.jobs_reason.empty()) output_.line(report.jobs_reason);
  if (!report.toolchain.empty()) output_.line("toolchain: " + report.toolchain);
  output_.line("cache: " + cache_directory_.string());

  auto result = head();
  result.update(Json::parse(to_json(report)));
  output_.object(result);

  if (no_toolchain) return ExitCode::environment;
  return report.failed != 0 || report.not_stored != 0 ? ExitCode::failed : ExitCode::done;
}

void PrewarmReport::planned(const std::vector<PlannedKernel>& planned) const {
  auto kernels = Json::array();
  for (const auto& kernel : planned) {
    const char* state = kernel.found.found ? "cached" : "missing";
    output_.line(padded(state, 8) + "  " + padded(kernel.architecture, 8) + "  " +
                 kernel.found.key.hex() + "  " + kernel.title);
    kernels.push_back({{"kernel", kernel.kernel},
                       {"key", kernel.found.key.hex()},
                       {"arch", kernel.architecture},
                       {"cached", kernel.found.found}});
  }
  const auto cached = static_cast<std::size_t>(std::count_if(
      planned.begin(), planned.end(), [](const auto& kernel) { return kernel.found.found; }));
  output_.line(counted(planned.size(), "kernel") + ": " + std::to_string(cached) + " cached, " +
               std::to_string(planned.size() - cached) +
               " missing; nothing was compiled or written");
  output_.line("cache: " + cache_directory_.string());

  auto result = head();
  result.update({{"dry_run", true},
                 {"requested", planned.size()},
                 {"cached", cached},
                 {"missing", planned.size() - cached},
                 {"toolchain", planned.empty() ? "" : planned.front().found.toolchain},
                 {"kernels", std::move(kernels)}});
  output_.object(result);
}

}  // namespace kiln::cli
