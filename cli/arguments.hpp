// Verbs and options on the command line. CLI11 stands behind these calls and not in this header:
// including it costs each verb more time to compile than the verb itself.
//
// Threads: used by the main thread alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kiln::cli {

/// What the command line gave of what several verbs take; an empty member was not given.
struct Given {
  std::optional<std::string> cache_directory{};
  std::vector<std::string> read_only_caches{};
  std::optional<unsigned> jobs{};
  /// URLs of the remote cache, and the file with the key that signs for it.
  std::vector<std::string> remotes{};
  std::string remote_key{};
  /// Each an architecture or a list of them with commas between.
  std::vector<std::string> architectures{};
};

/// A verb of `parent`, which owns it. `footer` ends its help.
CLI::App& add_verb(CLI::App& parent, const std::string& name, const std::string& description,
                   const std::string& footer);

/// An option with a value of the `type` that the help shows; without dashes in `names` it is an
/// argument. `value` must outlive the parse.
CLI::Option& add_option(CLI::App& verb, const std::string& names, std::string& value,
                        const std::string& type, const std::string& help);
CLI::Option& add_option(CLI::App& verb, const std::string& names,
                        const std::function<void(const std::string& value)>& take,
                        const std::string& type, const std::string& help);
/// An option that is repeated, with one value each time.
CLI::Option& add_list(CLI::App& verb, const std::string& names, std::vector<std::string>& values,
                      const std::string& type, const std::string& help);
/// Arguments without a name, as many as there are.
CLI::Option& add_words(CLI::App& verb, const std::string& name, std::vector<std::string>& values,
                       const std::string& help);
CLI::Option& add_flag(CLI::App& verb, const std::string& names, bool& value,
                      const std::string& help);

/// Refuses a number that CLI11 would not take for decimal: 010 would be 8.
CLI::Option& decimal(CLI::Option& option);

/// A time that is more than nothing.
CLI::Option& add_seconds(CLI::App& verb, const std::string& name, double& seconds,
                         const std::string& help);

void require(CLI::Option& option);
/// Refuses the two together.
void exclude(CLI::Option& option, CLI::Option& other);

/// --cache-dir, --cache-readonly, --arch, --jobs and the key of an entry, the same for every verb.
void add_cache_directory(CLI::App& verb, Given& given);
void add_read_only_caches(CLI::App& verb, Given& given);
void add_architectures(CLI::App& verb, Given& given);
/// --remote and --secret-key.
void add_remote(CLI::App& verb, Given& given);
void add_remote_key(CLI::App& verb, Given& given);
void add_jobs(CLI::App& verb, Given& given);
/// A key that is no start of one is refused while parsing.
void add_key(CLI::App& verb, std::string& key, const std::string& name = "KEY");

}  // namespace kiln::cli
