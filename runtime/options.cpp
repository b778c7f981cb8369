#include "kiln/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "runtime/job_limits.hpp"

namespace kiln {
namespace {

// Reads a variable and notes its name when it holds something. One that is set but empty counts as
// not set.
std::string value_of(const EnvironmentReader& environment, const char* name, std::string& origin) {
  auto value = environment(name).value_or(std::string());
  if (!value.empty()) origin = name;
  return value;
}

std::filesystem::path cache_directory_from(const EnvironmentReader& environment,
                                           std::string& origin) {
  if (auto named = value_of(environment, "KILN_CACHE_DIR", origin); !named.empty()) return named;
  // The XDG rules: a relative path in these variables is invalid and ignored.
  const std::filesystem::path shared = value_of(environment, "XDG_CACHE_HOME", origin);
  if (shared.is_absolute()) return shared / "kiln";
  const std::filesystem::path home = value_of(environment, "HOME", origin);
  if (home.is_absolute()) return home / ".cache" / "kiln";
  origin.clear();
  return {};
}

Result<unsigned> jobs_from(const std::string& text) {
  unsigned jobs = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), jobs);
  if (error != std::errc{} || end != text.data() + text.size() || jobs > kMostJobs)
    return Error(ErrorCode::invalid_argument,
                 "KILN_JOBS is \"" + text +
                     "\": it must be a whole number from 0 (as many as there are processors) to " +
                     std::to_string(kMostJobs));
  return jobs;
}

template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The parts of a list, empty ones left out.
std::vector<std::string_view> split(std::string_view list, char separator) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const auto end = std::min(list.find(separator), list.size());
    if (end != 0) parts.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

Error bad_number(const char* name, std::string_view text, const char* wanted) {
  return Error(ErrorCode::invalid_argument,
               std::string(name) + " is \"" + std::string(text) + "\": it must be " + wanted);
}

Result<cache::Trust> trust_from(const EnvironmentReader& environment) {
  cache::Trust trust;
  const auto users = environment("KILN_CACHE_USERS").value_or(std::string());
  for (const auto text : split(users, ',')) {
    const auto user = number_from<std::uint32_t>(text);
    if (!user) return bad_number("KILN_CACHE_USERS", users, "numbers of users with commas between");
    trust.users.push_back(*user);
  }
  const auto signers = environment("KILN_CACHE_SIGNERS").value_or(std::string());
  for (const auto text : split(signers, ',')) {
    auto key = cache::PublicKey::from_text(text);
    if (!key)
      return Error(
          ErrorCode::invalid_argument,
          "KILN_CACHE_SIGNERS lists public keys with commas between: " + key.error().message());
    trust.signers.push_back(*key);
  }
  const auto group = environment("KILN_CACHE_GROUP").value_or(std::string());
  if (group.empty()) return trust;
  trust.group = number_from<std::uint32_t>(group);
  // To the system -1 is no group but "leave it as it is".
  if (!trust.group || *trust.group == static_cast<std::uint32_t>(-1))
    return bad_number("KILN_CACHE_GROUP", group, "the number of a group");
  return trust;
}

Result<cache::Limits> limits_from(const EnvironmentReader& environment) {
  constexpr const char* kWanted = "a number of bytes, such as 512M or 8G";
  cache::Limits limits;
  const auto most = environment("KILN_CACHE_MAX_BYTES").value_or(std::string());
  if (!most.empty()) {
    const auto bytes = bytes_from(most);
    if (!bytes) return bad_number("KILN_CACHE_MAX_BYTES", most, kWanted);
    limits.max_bytes = *bytes;
  }
  const auto least = environment("KILN_CACHE_MIN_FREE_BYTES").value_or(std::string());
  if (least.empty()) return limits;
  limits.min_free_bytes = bytes_from(least);
  if (!limits.min_free_bytes) return bad_number("KILN_CACHE_MIN_FREE_BYTES", least, kWanted);
  return limits;
}

Result<cache::RemoteOptions> remote_from(const EnvironmentReader& environment,
                                         std::string& origin) {
  cache::RemoteOptions remote;
  const auto urls = value_of(environment, "KILN_REMOTE", origin);
  for (const auto url : split(urls, ','))
    if (auto status = remote.add(url); !status)
      return Error(status.code(), "KILN_REMOTE: " + status.error().message());
  if (!remote.is_on()) return remote;
  const auto file = [&](const char* name) {
    return std::filesystem::path(environment(name).value_or(std::string()));
  };
  remote.bearer_token = file("KILN_REMOTE_TOKEN");
  remote.netrc = file("KILN_REMOTE_NETRC");
  remote.headers = file("KILN_REMOTE_HEADERS");
  remote.lease_password = file("KILN_REMOTE_PASSWORD");
  remote.authorities = file("KILN_REMOTE_CA");
  if (const auto key = file("KILN_REMOTE_KEY"); !key.empty()) {
    KILN_TRY(auto secret, cache::SecretKey::read(key));
    remote.signer = std::make_shared<const cache::SecretKey>(std::move(secret));
  }
  const auto unsigned_ones = environment("KILN_REMOTE_UNSIGNED").value_or(std::string());
  if (!unsigned_ones.empty() && unsigned_ones != "accept")
    return bad_number("KILN_REMOTE_UNSIGNED", unsigned_ones, "accept, or nothing");
  remote.accept_anyone = !unsigned_ones.empty();
  return remote;
}

}  // namespace

std::optional<std::uint64_t> bytes_from(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  unsigned shift = 0;
  if (!text.empty())
    if (const auto unit = kUnits.find(text.back()); unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  const auto number = number_from<std::uint64_t>(text);
  if (!number || *number > (UINT64_MAX >> shift)) return std::nullopt;
  return *number << shift;
}

EnvironmentReader process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    // The only one in the library. In a program that runs with more rights than its caller (setuid)
    // it finds nothing: what such a program loads and trusts is not the caller's choice.
    const char* value = ::secure_getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

std::vector<std::string> variables_of_process(std::string_view prefix) {
  std::vector<std::string> names;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view variable = *at;
    if (variable.starts_with(prefix)) names.emplace_back(variable.substr(0, variable.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<RuntimeOptions> options_from(const EnvironmentReader& environment, OptionOrigins* origins) {
  OptionOrigins unasked;
  auto& from = origins != nullptr ? *origins : unasked;
  from = {};
  RuntimeOptions options;
  options.cache_directory = cache_directory_from(environment, from.cache_directory);
  if (options.cache_directory.empty())
    options.why_no_cache = "neither XDG_CACHE_HOME nor HOME is the absolute path of a directory";
  const auto read_only = value_of(environment, "KILN_CACHE_READONLY", from.read_only_caches);
  for (const auto path : split(read_only, ':')) options.read_only_caches.emplace_back(path);
  KILN_TRY(options.cache_trust, trust_from(environment));
  KILN_TRY(options.cache_limits, limits_from(environment));
  KILN_TRY(options.remote, remote_from(environment, from.remote));
  options.source_directory = value_of(environment, "KILN_SOURCE_DIR", from.source_directory);
  options.nvrtc = value_of(environment, "KILN_NVRTC", from.nvrtc);
  options.record_file = value_of(environment, "KILN_RECORD", from.record_file);
  if (const auto jobs = value_of(environment, "KILN_JOBS", from.jobs); !jobs.empty()) {
    KILN_TRY(options.jobs, jobs_from(jobs));
  }
  return options;
}

}  // namespace kiln
