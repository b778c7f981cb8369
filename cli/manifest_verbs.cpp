// kiln manifest merge and diff: recordings of runs, put together or compared.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/file_output.hpp"
#include "cli/recording_file.hpp"
#include "cli/verbs.hpp"
#include "kiln/record.hpp"

namespace kiln::cli {
namespace {

struct MergeArguments {
  std::vector<std::string> files{};
  std::string output{};
};

Outcome run_merge(const MergeArguments& arguments, Output& output) {
  std::vector<InputFile> inputs;
  for (const auto& file : arguments.files) inputs.push_back({"the recording", file});
  if (auto failure = output_is_input("-o", arguments.output, inputs)) return *std::move(failure);
  Recording all;
  for (const auto& file : arguments.files) {
    const auto recording = read_recording_file(file);
    if (!recording) return failure_of(recording.error());
    if (const auto status = merge(all, *recording); !status)
      return usage_failure(file + ": " + status.error().message());
  }
  if (auto failure = write_output(arguments.output, to_json(all))) return *std::move(failure);
  output.line(counted(all.kernels.size(), "kernel") + " of " +
              counted(arguments.files.size(), "recording") + " in " + printable(arguments.output));
  output.object({{"output", arguments.output},
                 {"recordings", arguments.files.size()},
                 {"kernels", all.kernels.size()},
                 {"sources", all.sources.size()}});
  return ExitCode::done;
}

struct DiffArguments {
  std::string before{};
  std::string after{};
};

Outcome run_diff(const DiffArguments& arguments, Output& output) {
  const auto before = read_recording_file(arguments.before);
  if (!before) return failure_of(before.error());
  const auto after = read_recording_file(arguments.after);
  if (!after) return failure_of(after.error());
  const auto lines = difference(*before, *after);
  for (const auto& line : lines) output.line(printable(line));
  output.object({{"equal", lines.empty()}, {"difference", lines}});
  return lines.empty() ? ExitCode::done : ExitCode::failed;
}

}  // namespace

Verb add_manifest_merge(CLI::App& manifest) {
  auto& verb =
      add_verb(manifest, "merge", "Put recordings of KILN_RECORD together",
               "Example:\n"
               "  kiln manifest merge rank0.json rank1.json -o all.json\n"
               "Exit codes: 0 written; 1 it could not be; 2 a file is no recording, or two "
               "are of different builds.");
  const auto arguments = std::make_shared<MergeArguments>();
  require(add_words(verb, "FILE", arguments->files, "Recordings"));
  require(add_option(verb, "-o,--output", arguments->output, "FILE", "Where the result goes"));
  return {&verb, [arguments](Output& output) { return run_merge(*arguments, output); }};
}

Verb add_manifest_diff(CLI::App& manifest) {
  auto& verb = add_verb(manifest, "diff", "Show in which kernels two recordings differ",
                        "Example:\n"
                        "  kiln manifest diff monday.json tuesday.json\n"
                        "Exit codes: 0 equal; 1 they differ; 2 a file is no recording.");
  const auto arguments = std::make_shared<DiffArguments>();
  require(add_option(verb, "BEFORE", arguments->before, "FILE", "A recording"));
  require(add_option(verb, "AFTER", arguments->after, "FILE", "Another"));
  return {&verb, [arguments](Output& output) { return run_diff(*arguments, output); }};
}

}  // namespace kiln::cli
