// What kiln doctor looks at, one function a topic. Nothing here changes the disk.
//
// Threads: used by the main thread alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "cli/settings.hpp"
#include "kiln/options.hpp"
#include "kiln/runtime.hpp"

namespace kiln::cli {

enum class State : unsigned char {
  ok,
  note,     ///< worth knowing; compiling works all the same
  problem,  ///< compiling or storing does not work
};

/// What was found on one topic.
struct Check {
  State state = State::ok;
  std::string name{};
  std::vector<std::string> lines{};  ///< for people, the first one the answer
  std::string origin{};              ///< of a setting: an option, a variable or "default"
  std::string cure{};                ///< empty when nothing is wrong
  Json facts = Json::object();
};

/// A Runtime with `settings` and without a cache is opened for these: its driver and its compiler.
Check check_driver(Runtime& runtime);
/// Compiles a small kernel for each architecture in force, or for one when none is.
Check check_compile(Runtime& runtime, const std::vector<std::string>& architectures);

Check check_nvrtc(const Settings& settings, const EnvironmentReader& environment);
Check check_toolkit(const Settings& settings, const EnvironmentReader& environment);
Check check_cache(const Settings& settings, const EnvironmentReader& environment);
/// Those below the cache directory.
Check check_read_only_caches(const Settings& settings);
/// Asks each server, and writes nothing that stays. In remote_doctor.cpp.
Check check_remote(const Settings& settings);
Check check_jobs(const Settings& settings);
Check check_architectures(const Settings& settings, Runtime& runtime);
Check check_source_directory(const Settings& settings);
/// The variables that are set and count, and those called KILN_* that mean nothing.
Check check_environment(const EnvironmentReader& environment);

}  // namespace kiln::cli
