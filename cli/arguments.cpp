#include "cli/arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "cli/entry_search.hpp"
#include "cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr int kMostJobs = 1024;

std::string check_key(std::string& key) {
  for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool digits =
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (digits && !key.empty() && key.size() <= kKeyDigits) return {};
  return "\"" + shortened(key) +
         "\" is no key: give up to 32 hexadecimal digits, as kiln cache ls shows them";
}

// A variable of a script that is not set, more often than not.
std::string check_name(const std::string& name) {
  return name.empty() ? "the name is empty" : std::string();
}

}  // namespace

CLI::App& add_verb(CLI::App& parent, const std::string& name, const std::string& description,
                   const std::string& footer) {
  auto* verb = parent.add_subcommand(name, description);
  verb->footer(footer);
  return *verb;
}

CLI::Option& add_option(CLI::App& verb, const std::string& names, std::string& value,
                        const std::string& type, const std::string& help) {
  auto& option = *verb.add_option(names, value, help)->type_name(type);
  if (type == "FILE") option.check(check_name);
  return option;
}

CLI::Option& add_option(CLI::App& verb, const std::string& names,
                        const std::function<void(const std::string& value)>& take,
                        const std::string& type, const std::string& help) {
  return *verb.add_option_function<std::string>(names, take, help)->type_name(type);
}

CLI::Option& add_list(CLI::App& verb, const std::string& names, std::vector<std::string>& values,
                      const std::string& type, const std::string& help) {
  return *verb.add_option(names, values, help)->type_name(type)->allow_extra_args(false);
}

CLI::Option& add_words(CLI::App& verb, const std::string& name, std::vector<std::string>& values,
                       const std::string& help) {
  return *verb.add_option(name, values, help)->type_name("")->expected(1, -1);
}

CLI::Option& add_flag(CLI::App& verb, const std::string& names, bool& value,
                      const std::string& help) {
  return *verb.add_flag(names, value, help);
}

CLI::Option& decimal(CLI::Option& option) {
  return *option.check([](const std::string& text) {
    const bool digits =
        std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (digits && (text.size() == 1 || !text.starts_with('0'))) return std::string();
    return text + " must be decimal digits without a 0 before them";
  });
}

CLI::Option& add_seconds(CLI::App& verb, const std::string& name, double& seconds,
                         const std::string& help) {
  constexpr double kLeast = 0.001, kMost = 1e6;
  // Range takes "nan", which is neither less nor more.
  const auto is_number = [](const std::string& text) {
    double number = 0;
    return CLI::detail::lexical_cast(text, number) && std::isnan(number) ? text + " is no number"
                                                                         : std::string();
  };
  return *verb.add_option(name, seconds, help)
              ->type_name("SECONDS")
              ->check(CLI::Range(kLeast, kMost).description(""))
              ->check(is_number);
}

void require(CLI::Option& option) {
  option.required();
}

void exclude(CLI::Option& option, CLI::Option& other) {
  option.excludes(&other);
}

void add_cache_directory(CLI::App& verb, Given& given) {
  verb.add_option("--cache-dir", given.cache_directory,
                  "Cache directory [KILN_CACHE_DIR; default ~/.cache/kiln]")
      ->type_name("DIR")
      ->check(check_name);
}

void add_read_only_caches(CLI::App& verb, Given& given) {
  add_list(verb, "--cache-readonly", given.read_only_caches, "DIR",
           "A cache or bundle that is asked after it and never written, "
           "repeated\n[KILN_CACHE_READONLY; KILN_CACHE_SIGNERS says who must have signed bundles]");
}

void add_architectures(CLI::App& verb, Given& given) {
  add_list(verb, "--arch", given.architectures, "ARCH",
           "Architectures, repeated or with commas; a GPU of 9.0 or newer uses its own with an a, "
           "such as\n"
           "sm_90a, and no sm_90 [KILN_ARCH; default the devices here]");
}

void add_remote(CLI::App& verb, Given& given) {
  add_list(verb, "--remote", given.remotes, "URL",
           "The remote cache, such as https://host/kiln or redis://host; one of each kind\n"
           "[KILN_REMOTE; KILN_CACHE_SIGNERS says who must have signed what it has]");
}

void add_remote_key(CLI::App& verb, Given& given) {
  add_option(verb, "--secret-key", given.remote_key, "FILE",
             "Sign what is sent with this key [KILN_REMOTE_KEY]");
}

void add_jobs(CLI::App& verb, Given& given) {
  decimal(*verb.add_option_function<int>(
                   "-j,--jobs", [&given](int jobs) { given.jobs = static_cast<unsigned>(jobs); },
                   "Compiles at a time, 0 for one a processor [KILN_JOBS; default 0]")
               ->type_name("N")
               ->check(CLI::Range(0, kMostJobs).description("")));
}

void add_key(CLI::App& verb, std::string& key, const std::string& name) {
  auto& option =
      add_option(verb, name, key, "", "The entry's key, or a start of it that no other has");
  option.required();
  option.transform(CLI::Validator(check_key, ""));
}

}  // namespace kiln::cli
