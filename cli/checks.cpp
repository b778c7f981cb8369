#include "cli/checks.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/architectures.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/probe.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/version.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

// An architecture that each NVRTC has known since 12.8, the oldest that Kiln takes.
constexpr const char* kTrialTarget = "sm_90a";
constexpr const char* kTrialSource = "kiln_doctor.cu";

constexpr std::array kOwnVariables = {"KILN_ARCH",
                                      "KILN_CACHE_DIR",
                                      "KILN_CACHE_GROUP",
                                      "KILN_CACHE_MAX_BYTES",
                                      "KILN_CACHE_MIN_FREE_BYTES",
                                      "KILN_CACHE_READONLY",
                                      "KILN_CACHE_SIGNERS",
                                      "KILN_CACHE_USERS",
                                      "KILN_JOBS",
                                      "KILN_NVRTC",
                                      "KILN_RECORD",
                                      "KILN_REMOTE",
                                      "KILN_REMOTE_CA",
                                      "KILN_REMOTE_HEADERS",
                                      "KILN_REMOTE_KEY",
                                      "KILN_REMOTE_NETRC",
                                      "KILN_REMOTE_PASSWORD",
                                      "KILN_REMOTE_TOKEN",
                                      "KILN_REMOTE_UNSIGNED",
                                      "KILN_SOURCE_DIR"};
constexpr std::array kOtherVariables = {
    "CUDA_HOME",   "CUDA_PATH",      "CUDA_VISIBLE_DEVICES", "CONDA_PREFIX",   "HOME",
    "VIRTUAL_ENV", "XDG_CACHE_HOME", "LD_LIBRARY_PATH",      "NV_NVVM_VERSION"};

// An option, a variable, or the default, which some variables take part in.
std::string origin_of(const std::string& named) {
  if (named.empty()) return "default";
  return named == "HOME" || named == "XDG_CACHE_HOME" ? "default, by " + named : named;
}

Json strings(const std::vector<fs::path>& paths) {
  auto array = Json::array();
  for (const auto& path : paths) array.push_back(path.string());
  return array;
}

Check failed(std::string name, const Error& error) {
  return {.state = State::problem,
          .name = std::move(name),
          .lines = {error.message()},
          .facts = {{"error", error.message()}}};
}

void count_bundle(const fs::path& file, const cache::Trust& trust, Check& check) {
  const auto bundle = cache::Bundle::open(file, {.keys = trust.signers});
  if (bundle) {
    check.lines.push_back(entries_text(bundle->entries().size()) + ", signed by " +
                          bundle->signer()->text());
    return;
  }
  check.state = State::note;
  check.lines.push_back(printable(bundle.error().message()));
}

// By the listing alone.
void count_entries(const fs::path& directory, const cache::Trust& trust, Check& check) {
  auto store = cache::Store::open({.directory = directory, .trust = trust});
  const auto entries = store ? store->list() : Result<std::vector<cache::EntryInfo>>(store.error());
  if (!entries) {
    check.state = State::problem;
    check.lines.push_back(entries.error().message());
    return;
  }
  std::uint64_t bytes = 0;
  for (const auto& entry : *entries) bytes += entry.file_bytes;
  check.lines.push_back(entries_text(entries->size()) + ", " + bytes_text(bytes));
  check.facts.update({{"entries", entries->size()}, {"total_bytes", bytes}});
}

}  // namespace

Check check_driver(Runtime& runtime) {
  Check check{.name = "driver"};
  const auto version = driver_version();
  const auto devices = runtime.devices();
  check.facts["cuda"] = version.empty() ? Json() : Json(version);
  check.facts["devices"] = Json::array();
  check.lines.push_back(version.empty() ? "none; only launching needs one" : "for CUDA " + version);
  for (const auto& device : devices) {
    check.lines.push_back("device " + std::to_string(device.ordinal) + ": " + device.architecture +
                          ", " + std::to_string(device.sm_count) + " SMs, " +
                          bytes_text(device.shared_bytes_per_block) + " shared a block");
    check.facts["devices"].push_back({{"ordinal", device.ordinal},
                                      {"arch", device.architecture},
                                      {"sm_count", device.sm_count},
                                      {"shared_bytes_per_block", device.shared_bytes_per_block}});
  }
  if (!devices.empty()) return check;
  check.state = State::note;
  if (const auto device = runtime.device(0); !device) {
    check.cure = device.error().message();
    check.facts["why"] = check.cure;
  }
  return check;
}

Check check_nvrtc(const Settings& settings, const EnvironmentReader& environment) {
  const auto found = find_toolchain(settings.runtime, environment);
  if (!found) {
    auto check = failed("NVRTC", found.error());
    check.origin = origin_of(settings.origins.nvrtc);
    return check;
  }
  Check check{
      .name = "NVRTC",
      .lines = {found->version + ", " + found->library.string() + " (" + found->how_found + ")",
                "builtins " + found->builtins.string(), found->identity},
      .origin = origin_of(settings.origins.nvrtc),
      .facts = {{"version", found->version},
                {"path", found->library.string()},
                {"builtins", found->builtins.string()},
                {"identity", found->identity},
                {"how_found", found->how_found}}};
  if (!found->ambiguity.empty()) {
    check.state = State::note;
    check.cure = found->ambiguity +
                 "; keep one NVRTC in a directory, or name the library by its "
                 "full version in KILN_NVRTC";
  }
  return check;
}

Check check_compile(Runtime& runtime, const std::vector<std::string>& architectures) {
  Check check{.name = "compile"};
  auto targets = architectures;
  if (targets.empty()) targets.emplace_back(kTrialTarget);
  check.facts["targets"] = Json::array();
  std::string good;
  const auto tell = [&](const std::string& target, const Error& error) {
    check.state = State::problem;
    const auto message = error.message();
    // What is wrong with the machine is the same for all architectures.
    if (std::find(check.lines.begin(), check.lines.end(), message) == check.lines.end())
      check.lines.push_back(message);
    check.facts["targets"].push_back({{"arch", target}, {"ok", false}, {"error", message}});
  };
  const auto status =
      runtime.add_source(kTrialSource, "extern \"C\" __global__ void entry(int* x) { *x = 1; }\n");
  const auto id = status ? runtime.add({.name = "kiln_doctor", .source = kTrialSource})
                         : Result<KernelId>(status.error());
  for (const auto& target : targets) {
    const auto made = id ? runtime.artifact(*id, target) : Result<Artifact>(id.error());
    if (!made) {
      tell(target, made.error());
      continue;
    }
    good += (good.empty() ? "" : ", ") + target;
    check.facts["targets"].push_back({{"arch", target}, {"ok", true}});
  }
  if (!good.empty()) check.lines.insert(check.lines.begin(), "a small kernel compiles for " + good);
  return check;
}

Check check_toolkit(const Settings& settings, const EnvironmentReader& environment) {
  const auto found = find_toolkit(settings.runtime, environment);
  Check check{.name = "toolkit headers"};
  if (!found) {
    check.state = State::note;
    check.lines.push_back("not looked for: they must be those of the NVRTC");
    return check;
  }
  check.facts = {{"directories", strings(found->directories)},
                 {"how_found", found->how_found},
                 {"skipped", found->skipped}};
  if (found->directories.empty()) {
    const auto nvrtc = find_toolchain(settings.runtime, environment);
    const auto version = nvrtc ? nvrtc->version : std::string("the NVRTC's version");
    check.state = State::note;
    check.lines.push_back("none of CUDA " + version +
                          "; only kernels that include <cuda_fp16.h> and the like need them");
    check.cure = "install the CUDA toolkit " + version + " and set CUDA_HOME to it" +
                 (found->skipped.empty() ? "" : "; not used: " + joined(found->skipped, ", "));
    return check;
  }
  for (const auto& directory : found->directories)
    check.lines.push_back(directory.string() +
                          (check.lines.empty() ? " (" + found->how_found + ")" : ""));
  return check;
}

Check check_cache(const Settings& settings, const EnvironmentReader& environment) {
  const auto& directory = settings.runtime.cache_directory;
  if (directory.empty()) {
    const auto failure = no_cache_directory();
    return {.state = State::problem,
            .name = "cache",
            .lines = {failure.message},
            .facts = {{"directory", nullptr}}};
  }
  const auto probe = cache::probe(directory);
  std::error_code ignored;
  const auto absolute = fs::absolute(directory, ignored).string();
  Check check{.name = "cache", .origin = origin_of(settings.origins.cache_directory)};
  check.lines.push_back(printable(absolute) +
                        (probe.exists || probe.nearest.empty()
                             ? ""
                             : ", would be made in " + printable(probe.nearest.string())));
  check.facts = {{"directory", absolute},
                 {"exists", probe.exists},
                 {"writable", probe.trouble.empty()},
                 {"file_system", probe.file_system},
                 {"network", probe.network},
                 {"free_bytes", probe.free_bytes ? Json(*probe.free_bytes) : Json()},
                 {"anonymous_files", probe.anonymous_files},
                 {"locks", probe.locks ? Json(*probe.locks) : Json()}};
  if (!probe.trouble.empty()) {
    check.state = State::problem;
    check.lines.push_back("not writable: " + printable(probe.trouble));
    check.cure = "name a writable directory with --cache-dir or KILN_CACHE_DIR";
    check.facts["trouble"] = probe.trouble;
  } else {
    check.lines.push_back("writable; locks " +
                          std::string(!probe.locks   ? "not tried"
                                      : *probe.locks ? "work"
                                                     : "do not work") +
                          "; " + (probe.anonymous_files ? "unnamed" : "named") +
                          " temporary files; " + probe.file_system +
                          (probe.network ? ", a network file system" : "") +
                          (probe.free_bytes ? ", " + bytes_text(*probe.free_bytes) + " free" : ""));
  }
  if (probe.exists) count_entries(directory, settings.runtime.cache_trust, check);
  if (probe.locks == false && check.state == State::ok) {
    check.state = State::note;
    check.cure = "without locks two processes may compile the same kernel at once; nothing breaks";
  }
  constexpr std::uint64_t kLittle = 64U << 20;
  if (check.state == State::ok && probe.free_bytes && *probe.free_bytes < kLittle) {
    check.state = State::note;
    check.cure = "little space is left: name another directory with --cache-dir or KILN_CACHE_DIR";
  }
  if (const auto version = environment("NV_NVVM_VERSION")) {
    check.state = State::problem;
    check.lines.push_back("off, since NV_NVVM_VERSION=" + *version + " changes what NVRTC makes");
    check.cure = "unset NV_NVVM_VERSION";
    check.facts["off"] = true;
  }
  return check;
}

Check check_read_only_caches(const Settings& settings) {
  Check check{.name = "read-only caches",
              .origin = origin_of(settings.origins.read_only_caches),
              .facts = {{"directories", strings(settings.runtime.read_only_caches)}}};
  for (const auto& directory : settings.runtime.read_only_caches) {
    check.lines.push_back(printable(directory.string()));
    std::error_code ignored;
    if (!fs::exists(directory, ignored)) {
      check.lines.back() += " does not exist";
      if (check.state == State::ok) check.state = State::note;
      continue;
    }
    Check counted;
    if (fs::is_regular_file(directory, ignored))
      count_bundle(directory, settings.runtime.cache_trust, counted);
    else
      count_entries(directory, settings.runtime.cache_trust, counted);
    check.lines.insert(check.lines.end(), counted.lines.begin(), counted.lines.end());
    if (counted.state != State::ok) check.state = counted.state;
  }
  if (check.lines.empty()) check.lines.emplace_back("none");
  if (check.state != State::ok)
    check.cure = "mend it, or take it out of KILN_CACHE_READONLY; the others serve all the same";
  return check;
}

Check check_jobs(const Settings& settings) {
  const auto jobs = settings.runtime.jobs;
  const auto processors = std::max(1u, std::thread::hardware_concurrency());
  return {.name = "jobs",
          .lines = {jobs != 0 ? std::to_string(jobs)
                              : std::to_string(processors) +
                                    ", one a processor; fewer where a quota or memory allows no "
                                    "more, which each warmup says"},
          .origin = origin_of(settings.origins.jobs),
          .facts = {{"jobs", jobs != 0 ? jobs : processors}}};
}

Check check_architectures(const Settings& settings, Runtime& runtime) {
  auto names = settings.architectures;
  if (names.empty())
    for (const auto& device : runtime.devices())
      if (std::find(names.begin(), names.end(), device.architecture) == names.end())
        names.push_back(device.architecture);
  Check check{.name = "architectures",
              .lines = {names.empty() ? "none named, and no device to ask" : joined(names, ", ")},
              .origin = origin_of(settings.architectures_origin),
              .facts = {{"architectures", names}}};
  if (settings.architectures.empty() && !names.empty())
    check.lines.front() += " (of the devices here)";
  if (names.empty()) {
    check.state = State::note;
    check.cure = "name what to compile for, such as --arch sm_90a,sm_100a or KILN_ARCH";
  }
  for (const auto& name : settings.architectures)
    if (const auto asked = asked_instead_of(name); !asked.empty()) {
      check.state = State::note;
      check.lines.push_back("no run asks for " + name);
      check.cure = "name " + asked + ", which Kiln asks for on such a GPU, in " +
                   settings.architectures_origin;
    }
  return check;
}

Check check_source_directory(const Settings& settings) {
  const auto& directory = settings.runtime.source_directory;
  Check check{.name = "source directory",
              .lines = {directory.empty() ? "none: the built-in sources" : directory.string()},
              .origin = origin_of(settings.origins.source_directory),
              .facts = {{"directory", directory.empty() ? Json() : Json(directory.string())}}};
  std::error_code ignored;
  if (!directory.empty() && !fs::is_directory(directory, ignored)) {
    check.state = State::problem;
    check.lines.front() += " is no directory";
    check.cure = "set KILN_SOURCE_DIR to the root of a source tree, or unset it";
  }
  return check;
}

namespace {

// URLs that are refused may be so for a secret in them.
bool may_be_shown(std::string_view name, std::string_view value) {
  if (name != "KILN_REMOTE") return true;
  cache::RemoteOptions remote;
  while (!value.empty()) {
    const auto end = std::min(value.find(','), value.size());
    if (end != 0 && !remote.add(value.substr(0, end))) return false;
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  return true;
}

}  // namespace

Check check_environment(const EnvironmentReader& environment) {
  Check check{.name = "environment"};
  const auto show = [&](const std::string& name) {
    const auto value = environment(name.c_str());
    if (!value) return;
    const auto shown = may_be_shown(name, *value) ? *value : "(not shown)";
    check.lines.push_back(name + "=" + printable(shown));
    check.facts[name] = shown;
  };
  for (const auto* name : kOwnVariables) show(name);
  for (const auto* name : kOtherVariables) show(name);
  for (const auto& name : variables_of_process("KILN_")) {
    if (std::find(kOwnVariables.begin(), kOwnVariables.end(), name) != kOwnVariables.end())
      continue;
    check.state = State::note;
    check.lines.push_back(name + " is set and means nothing to Kiln");
    check.facts[name] = nullptr;
  }
  if (check.state == State::note)
    check.cure = "the variables are " + joined({kOwnVariables.begin(), kOwnVariables.end()}, ", ");
  if (check.lines.empty()) check.lines.emplace_back("nothing that counts is set");
  return check;
}

}  // namespace kiln::cli
