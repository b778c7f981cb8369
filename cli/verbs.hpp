// The verbs of the command, one file each: what they take, and what they do.
//
// Threads: used by the main thread alone.
#pragma once

#include <functional>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/completion_script.hpp"
#include "cli/exit_code.hpp"
#include "cli/output.hpp"

namespace kiln::cli {

struct Verb {
  const CLI::App* command = nullptr;
  /// Runs it once the command line is parsed.
  std::function<Outcome(Output&)> run{};
  /// Options that take one of a few values, for completion.
  std::vector<Choices> choices{};
};

Verb add_prewarm(CLI::App& kiln);
Verb add_compile(CLI::App& kiln);
Verb add_explain(CLI::App& kiln);
Verb add_plan(CLI::App& kiln);
Verb add_doctor(CLI::App& kiln);
/// `choices` are those of all verbs, once they are there; it and `kiln` must outlive the verb.
Verb add_completion(CLI::App& kiln, const std::vector<Choices>& choices);
Verb add_keygen(CLI::App& kiln);
Verb add_push(CLI::App& kiln);
Verb add_pull(CLI::App& kiln);
Verb add_remote_check(CLI::App& remote);
Verb add_bundle_pack(CLI::App& bundle);
Verb add_bundle_unpack(CLI::App& bundle);
Verb add_bundle_ls(CLI::App& bundle);
Verb add_bundle_verify(CLI::App& bundle);
Verb add_cache_extract(CLI::App& cache);
Verb add_bench(CLI::App& kiln);
Verb add_cache_ls(CLI::App& cache);
Verb add_cache_show(CLI::App& cache);
Verb add_cache_verify(CLI::App& cache);
Verb add_cache_diff(CLI::App& cache);
Verb add_cache_stat(CLI::App& cache);
Verb add_cache_trim(CLI::App& cache);
Verb add_cache_clear(CLI::App& cache);
Verb add_cache_gc(CLI::App& cache);

Verb add_manifest_merge(CLI::App& manifest);
Verb add_manifest_diff(CLI::App& manifest);

}  // namespace kiln::cli
