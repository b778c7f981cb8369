#include "runtime/job_limits.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/message_text.hpp"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;  // old groups say a number near 2^63

// Of a file of the kernel's, which tells no size; empty where there is none.
std::string content_of(const fs::path& path) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  std::array<char, 4096> bytes;
  for (::ssize_t count = 0; (count = ::read(file, bytes.data(), bytes.size())) > 0;)
    text.append(bytes.data(), static_cast<std::size_t>(count));
  ::close(file);
  return text;
}

// The number that `text` begins with; empty for "max" and what is none.
std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

void bound(MachineLimits& limits, double processors, std::string by) {
  if (processors >= limits.processors || processors <= 0) return;
  limits.processors = processors;
  limits.processors_by = std::move(by);
}

void bound(MachineLimits& limits, std::uint64_t bytes, std::string by) {
  if (limits.memory_bytes && bytes >= *limits.memory_bytes) return;
  limits.memory_bytes = bytes;
  limits.memory_by = std::move(by);
}

std::uint64_t left(std::uint64_t limit, std::uint64_t used) {
  return limit > used ? limit - used : 0;
}

// Takes the first line from `text`.
std::string_view next_line(std::string_view& text) {
  const auto end = std::min(text.find('\n'), text.size());
  const auto line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// The value behind `name` in a list such as memory.stat or /proc/meminfo.
std::optional<std::uint64_t> field_in(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const auto line = next_line(text);
    if (!line.starts_with(name)) continue;
    const auto digit = line.find_first_of("0123456789", name.size());
    if (digit != std::string_view::npos) return number_in(line.substr(digit));
  }
  return std::nullopt;
}

void read_unified_group(MachineLimits& limits, const fs::path& group) {
  const auto cpu = content_of(group / "cpu.max");  // "200000 100000" or "max 100000"
  const auto quota = number_in(cpu);
  const auto space = cpu.find(' ');
  if (quota && space != std::string::npos)
    if (const auto period = number_in(std::string_view(cpu).substr(space + 1)); period && *period)
      bound(limits, static_cast<double>(*quota) / static_cast<double>(*period),
            "the CPU quota of a cgroup");
  // Beyond the second one the group is made to wait.
  for (const char* const name : {"memory.max", "memory.high"}) {
    const auto limit = number_in(content_of(group / name));
    if (!limit) continue;
    // Files that are only cached go when memory is needed.
    const auto cached = field_in(content_of(group / "memory.stat"), "inactive_file ").value_or(0);
    const auto used = number_in(content_of(group / "memory.current")).value_or(0);
    bound(limits, left(*limit, left(used, cached)), "the memory limit of a cgroup");
  }
}

void read_old_cpu_group(MachineLimits& limits, const fs::path& cpu) {
  const auto quota = number_in(content_of(cpu / "cpu.cfs_quota_us"));  // "-1" is none
  const auto period = number_in(content_of(cpu / "cpu.cfs_period_us"));
  if (quota && period && *period)
    bound(limits, static_cast<double>(*quota) / static_cast<double>(*period),
          "the CPU quota of a cgroup");
}

void read_old_memory_group(MachineLimits& limits, const fs::path& memory) {
  const auto limit = number_in(content_of(memory / "memory.limit_in_bytes"));
  if (limit && *limit < kNoLimit) {
    const auto cached =
        field_in(content_of(memory / "memory.stat"), "total_inactive_file ").value_or(0);
    const auto used = number_in(content_of(memory / "memory.usage_in_bytes")).value_or(0);
    bound(limits, left(*limit, left(used, cached)), "the memory limit of a cgroup");
  }
}

// `group` and all above it, as far as they can be seen: in a container, the mount is often the
// process's own group, under a path that is not there.
std::vector<fs::path> with_parents(const fs::path& mount, fs::path group) {
  std::vector<fs::path> all = {mount};
  for (group = group.relative_path(); !group.empty(); group = group.parent_path())
    all.push_back(mount / group);
  return all;
}

void read_groups(MachineLimits& limits, const fs::path& root) {
  const auto mounts = root / "sys/fs/cgroup";
  const auto all = content_of(root / "proc/self/cgroup");  // "0::/path", "4:cpu,cpuacct:/path"
  for (std::string_view lines = all; !lines.empty();) {
    const auto line = next_line(lines);
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const auto controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const fs::path path = line.substr(second + 1);
    if (controllers == ",,")
      for (const auto& group : with_parents(mounts, path)) read_unified_group(limits, group);
    if (controllers.find(",cpu,") != std::string::npos)
      for (const auto& group : with_parents(mounts / "cpu", path))
        read_old_cpu_group(limits, group);
    if (controllers.find(",memory,") != std::string::npos)
      for (const auto& group : with_parents(mounts / "memory", path))
        read_old_memory_group(limits, group);
  }
}

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string(bytes / kMebibyte) + " MiB";
}

std::string processors_text(double processors) {
  const auto hundredths = std::llround(processors * 100);
  auto text = std::to_string(hundredths / 100);
  if (hundredths % 100 != 0) {
    const auto rest = std::to_string(hundredths % 100 + 100).substr(1);
    text += '.' + (rest.back() == '0' ? rest.substr(0, 1) : rest);
  }
  return text;
}

}  // namespace

MachineLimits machine_limits(bool in_process, const fs::path& root) {
  MachineLimits limits;
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  // More processors than the set has bits.
  if (count <= 0) count = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  limits.processors = std::max(count, 1);
  limits.processors_by = "the processors that this process may use";
  if (const auto available = field_in(content_of(root / "proc/meminfo"), "MemAvailable:"))
    bound(limits, *available * 1024, "the machine's free memory");
  read_groups(limits, root);
  if (in_process) {
    const auto used = number_in(content_of(root / "proc/self/statm")).value_or(0) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      bound(limits, left(limit.rlim_cur, used), "ulimit -v");
  }
  return limits;
}

std::uint64_t resident_bytes() {
  const auto text = content_of("/proc/self/statm");  // pages: all, resident, ...
  const auto space = text.find(' ');
  if (space == std::string::npos) return 0;
  return number_in(std::string_view(text).substr(space + 1)).value_or(0) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

JobCount choose_jobs(unsigned asked, const MachineLimits& limits, std::uint64_t compile_bytes) {
  const double processors = std::max(limits.processors, 1.0);
  const auto wanted = asked != 0 ? asked : static_cast<unsigned>(std::ceil(processors));
  auto jobs = wanted;
  const auto by =
      asked != 0 ? "as asked" : processors_text(limits.processors) + " by " + limits.processors_by;
  std::string memory = "nothing limits memory";
  if (limits.memory_bytes) {
    const auto fitting = *limits.memory_bytes / std::max<std::uint64_t>(compile_bytes, 1);
    memory = mebibytes(*limits.memory_bytes) + " by " + limits.memory_by + " hold " +
             counted(fitting, "compile") + " of " + mebibytes(compile_bytes);
    if (fitting < jobs) {
      jobs = static_cast<unsigned>(std::max<std::uint64_t>(fitting, 1));
      return {jobs, counted(jobs, "job") + ": " + memory + ", which is fewer than " +
                        std::to_string(wanted) + " (" + by + ")"};
    }
  }
  return {jobs, counted(jobs, "job") + ": " + by + "; " + memory};
}

}  // namespace kiln
