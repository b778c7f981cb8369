#include "cli/compile_report.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/entry_facts.hpp"

namespace kiln::cli {
namespace {

// The runtime's error, with the user's names of files.
Failure failure_in(const SourceFile& file, const Error& error) {
  auto failure = failure_of(error);
  failure.message = as_typed(file, failure.message);
  failure.detail = as_typed(file, failure.detail);
  return failure;
}

Json json_of(const CompileReport& report, const CompiledTarget& target) {
  const auto& kernel = target.report;
  Json json = {{"arch", kernel.architecture},
               {"key", kernel.key == cache::Digest{} ? "" : kernel.key.hex()},
               {"origin", to_string(kernel.origin)},
               {"ms", milliseconds_of(kernel.time)}};
  if (!target.artifact) {
    const auto failure = failure_in(report.file, kernel.status.error());
    json["error"] = {{"code", failure.code}, {"message", failure.message}};
    if (!failure.detail.empty()) json["error"]["detail"] = failure.detail;
    return json;
  }
  const auto& facts = target.artifact->facts;
  json.update({{"bytes", target.artifact->cubin_bytes},
               {"symbol", facts.symbol},
               {"registers", facts.usage.registers},
               {"static_shared_bytes", facts.usage.static_shared_bytes},
               {"local_bytes", facts.usage.local_bytes},
               {"spill_store_bytes", facts.usage.spill_store_bytes},
               {"spill_load_bytes", facts.usage.spill_load_bytes},
               {"waits_on_grid", facts.waits_on_grid},
               {"toolchain", facts.toolchain},
               {"log", as_typed(report.file, facts.log)},
               {"stored", kernel.stored}});
  if (!kernel.stored && !kernel.storing.ok()) json["not_stored"] = kernel.storing.error().message();
  return json;
}

void show(const CompileReport& report, const CompiledTarget& target, Output& output) {
  const auto& kernel = target.report;
  const auto& facts = target.artifact->facts;
  const auto& usage = facts.usage;
  const auto line = [&](const char* name, const std::string& value) {
    output.line("  " + padded(name, 15) + printable(value));
  };
  const auto how = kernel.origin == Origin::compiled ? "compiled in "
                   : kernel.origin == Origin::waited ? "compiled elsewhere meanwhile, in "
                                                     : "found in ";
  output.line(printable(report.file.typed + ": " + report.entry + " for " + kernel.architecture) +
              ", " + how + milliseconds_text(kernel.time));
  line("key", kernel.key.hex());
  line("symbol", facts.symbol);
  line("cubin", bytes_text(target.artifact->cubin_bytes));
  line("registers", std::to_string(usage.registers) + " a thread");
  line("shared memory", bytes_text(usage.static_shared_bytes) + " a block, static");
  line("local memory", bytes_text(usage.local_bytes) + " a thread");
  line("spills", bytes_text(usage.spill_store_bytes) + " stored, " +
                     bytes_text(usage.spill_load_bytes) + " loaded");
  line("waits on grid", facts.waits_on_grid ? "yes" : "no");
  line("stored", kernel.stored ? "yes, in " + report.cache_directory.string()
                               : "no: " + (kernel.storing.ok() ? std::string("it was not tried")
                                                               : kernel.storing.error().message()));
}

}  // namespace

ExitCode tell(const CompileReport& report, Output& output) {
  auto exit = ExitCode::done;
  const auto fail = [&](ExitCode code) {
    if (exit != ExitCode::environment) exit = code;
  };
  auto targets = Json::array();
  std::string last_message;
  for (const auto& target : report.targets) {
    targets.push_back(json_of(report, target));
    if (target.artifact) {
      show(report, target, output);
      const auto& log = target.artifact->facts.log;
      if (!log.empty()) output.message(as_typed(report.file, log));
      // Code that must not be kept is no failure; a cache that cannot be written is one.
      const auto& storing = target.report.storing;
      if (!storing && storing.code() != ErrorCode::not_cacheable) {
        fail(ExitCode::failed);
        if (last_message != storing.error().message())
          output.message("kiln: " + (last_message = storing.error().message()));
      }
      continue;
    }
    const auto& error = target.report.status.error();
    const auto failure = failure_in(report.file, error);
    fail(error.code() == ErrorCode::no_toolchain ? ExitCode::environment : ExitCode::failed);
    if (std::exchange(last_message, failure.message) == failure.message) continue;
    output.message("kiln: " + failure.message);
    if (!failure.detail.empty()) output.message(failure.detail);
  }
  Json result = {{"file", report.file.typed},
                 {"entry", report.entry},
                 {"cache_dir", report.cache_directory.string()}};
  if (!report.output_file.empty()) {
    output.line("  " + padded("written to", 15) + printable(report.output_file));
    result["output"] = report.output_file;
  }
  result["targets"] = std::move(targets);
  output.object(result);
  return exit;
}

}  // namespace kiln::cli
