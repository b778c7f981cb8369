// The verbs of the command, one file each: what they take, and what they do.
//
// Threads: used by the main thread alone.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/exit_code.hpp"
#include "cli/output.hpp"

namespace kiln::cli {

struct Verb {
  const CLI::App* command = nullptr;
  /// Runs it once the command line is parsed.
  std::function<Outcome(Output&)> run{};
};

Verb add_prewarm(CLI::App& kiln);
Verb add_bench(CLI::App& kiln);
Verb add_cache_ls(CLI::App& cache);
Verb add_cache_show(CLI::App& cache);
Verb add_cache_verify(CLI::App& cache);

}  // namespace kiln::cli
