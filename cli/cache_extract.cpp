// kiln cache extract: the machine code, the source or the compile's warnings of one entry.
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "cli/entry_facts.hpp"
#include "cli/entry_search.hpp"
#include "cli/file_input.hpp"
#include "cli/file_output.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "kiln/kernels/kernels.hpp"
#include "kiln/key_text.hpp"

namespace kiln::cli {
namespace {

struct CacheExtractArguments {
  Given given{};
  std::string key{};
  bool cubin = false;
  bool source = false;
  bool log = false;
  std::string output{};
};

// `text` when it is what the key was made of. A byte-order mark is no part of that.
std::optional<std::string> matching(std::string_view text, const KeyTextFile& file) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  if (cache::digest_of(text).hex() != file.digest) return std::nullopt;
  return std::string(text);
}

// An entry holds digests of its sources, so a text can be proven to be the one, once it is found.
std::variant<std::string, Failure> source_of(const cache::Entry& entry, const std::string& key,
                                             const std::filesystem::path& source_directory,
                                             const std::string& output) {
  const auto files = key_text_files(entry.key_text());
  if (files.empty())
    return Failure{.exit = ExitCode::failed,
                   .code = "no_source",
                   .message = "entry " + key + " names no source: another program made it"};
  const auto& root = files.front();
  for (const auto& embedded : kernels::embedded_sources())
    if (embedded.name == root.name)
      if (auto text = matching(embedded.text, root)) return *std::move(text);
  if (!source_directory.empty()) {
    const auto path = source_directory / root.name;
    const std::array inputs{InputFile{"the source", path.string()}};
    if (auto failure = output_is_input("-o", output, inputs)) return *std::move(failure);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored))
      if (const auto content = read_whole(path))
        if (auto text = matching(*content, root)) return *std::move(text);
  }
  std::string listed;
  for (const auto& file : files) listed += "\n  " + file.digest + "  " + printable(file.name);
  return Failure{
      .exit = ExitCode::failed,
      .code = "no_source",
      .message = "entry " + key + " holds digests of its sources and not their text, and no \"" +
                 root.name + "\" with its digest is " +
                 (source_directory.empty() ? std::string("built in")
                                           : "built in or in " + source_directory.string()) +
                 "; set KILN_SOURCE_DIR to the directory that it lies in. Its files:" + listed};
}

Outcome run(const CacheExtractArguments& arguments, Output& output) {
  if (arguments.cubin + arguments.source + arguments.log != 1)
    return usage_failure("name what to extract: one of --cubin, --source and --log");
  const bool to_stream = arguments.output.empty();
  if (arguments.cubin && to_stream && output.form() == OutputForm::json)
    return usage_failure("--json and a cubin cannot share standard output; use -o FILE");
  if (arguments.cubin && to_stream && ::isatty(STDOUT_FILENO) != 0)
    return usage_failure("a cubin is not for a terminal; use -o FILE, or pipe it on");

  const auto environment = process_environment();
  auto opened = open_cache(arguments.given, environment, output.log_sink(LogLevel::warning));
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& store = std::get<cache::Store>(opened);
  auto found = find_entry(store, arguments.key);
  if (auto* failure = std::get_if<Failure>(&found)) return std::move(*failure);
  const auto name = std::get<cache::EntryInfo>(found).name;
  const auto entry = store.read(name);
  if (!entry) return failure_of(entry.error());

  std::string text;
  if (arguments.cubin) {
    const auto payload = entry->payload();
    text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  } else if (arguments.log) {
    text = text_fact(facts_of(*entry), "log");
    if (!text.empty() && text.back() != '\n') text += '\n';
  } else {
    const auto settings = settings_from(arguments.given, environment);
    if (!settings) return failure_of(settings.error());
    auto source =
        source_of(*entry, name.hex(), settings->runtime.source_directory, arguments.output);
    if (auto* failure = std::get_if<Failure>(&source)) return std::move(*failure);
    text = std::get<std::string>(std::move(source));
  }

  Json result = {{"key", name.hex()},
                 {"what", arguments.cubin    ? "cubin"
                          : arguments.source ? "source"
                                             : "log"},
                 {"bytes", text.size()}};
  if (!to_stream) {
    if (auto failure = write_output(arguments.output, text)) return *std::move(failure);
    result["output"] = arguments.output;
    output.line(bytes_text(text.size()) + " in " + printable(arguments.output));
  } else if (output.form() == OutputForm::json) {
    result["text"] = text;
  } else if (arguments.cubin) {
    output.bytes(text);
  } else if (!text.empty()) {
    // Who reads it at a terminal is not at the mercy of what a source holds.
    output.bytes(::isatty(STDOUT_FILENO) != 0 ? printable_lines(text) : text);
  }
  output.object(result);
  return ExitCode::done;
}

}  // namespace

Verb add_cache_extract(CLI::App& cache) {
  auto& verb = add_verb(
      cache, "extract", "Take the cubin, source or log out of an entry",
      "Examples:\n"
      "  kiln cache extract 5f3a --cubin -o kernel.cubin\n"
      "  kiln cache extract 5f3a --cubin | cuobjdump -sass -\n"
      "  KILN_SOURCE_DIR=kernels kiln cache extract 5f3a --source\n"
      "An entry holds digests of its sources: --source prints the root file where it is built "
      "into\n"
      "kiln or lies, unchanged, in KILN_SOURCE_DIR. --log prints the warnings of the compile, and\n"
      "nothing where there were none.");
  const auto arguments = std::make_shared<CacheExtractArguments>();
  add_key(verb, arguments->key);
  add_flag(verb, "--cubin", arguments->cubin, "The machine code");
  add_flag(verb, "--source", arguments->source, "The root source");
  add_flag(verb, "--log", arguments->log, "The warnings of the compile");
  add_option(verb, "-o,--output", arguments->output, "FILE",
             "Write it there [default standard output]");
  add_cache_directory(verb, arguments->given);
  return {&verb, [arguments](Output& output) { return run(*arguments, output); }};
}

}  // namespace kiln::cli
