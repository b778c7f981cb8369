// The warm start of a server: a fresh process opens a Runtime on a filled cache, registers its
// kernels and warms up, all hits. Each value is of a process of its own, this program started
// again. Needs NVRTC, to fill the cache once; no GPU.
#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/rounds.hpp"
#include "bench/table_kernel.hpp"
#include "kiln/runtime.hpp"
#include "support/process.hpp"
#include "support/temporary_directory.hpp"

namespace {

using namespace kiln;
using bench::fail;
using bench::must;

constexpr int kKernels = 500;
constexpr const char* kArchitecture = "sm_90a";
constexpr double kGoalMilliseconds = 65;  // on one processor

/// Processor time of this process so far, in milliseconds: what other processes do to the machine
/// does not show in it.
double processor_milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

/// Opens, registers and warms up; the times of the three steps in milliseconds, and the processor
/// time of all.
std::array<double, 4> start(const std::filesystem::path& cache, int kernels, unsigned jobs,
                            bool filled) {
  std::array<double, 4> times{};
  std::optional<Runtime> runtime;
  const double before = processor_milliseconds();
  times[0] = bench::time_of(
      [&] { runtime = must(Runtime::open({.cache_directory = cache, .jobs = jobs})); });
  times[1] = bench::time_of([&] {
    must(runtime->add_source("table.cu", bench::kTableSource));
    for (int i = 0; i < kernels; ++i) static_cast<void>(must(runtime->add(bench::table_spec(i))));
  });
  times[2] = bench::time_of([&] {
    const auto report = must(runtime->warmup({.architectures = {kArchitecture}}));
    if (report.failed + report.not_stored != 0) fail("the cache cannot be filled");
    if (filled && report.hits != static_cast<std::size_t>(kernels)) fail("not all were hits");
  });
  for (double& time : times) time /= 1000;
  times[3] = processor_milliseconds() - before;
  return times;
}

/// The same files with nothing looked at, in milliseconds.
double read_all(const std::filesystem::path& cache) {
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::recursive_directory_iterator(cache / "v1/e"))
    if (file.is_regular_file()) paths.push_back(file.path().string());
  std::vector<std::vector<char>> kept;  // as a Runtime keeps what it has read
  return bench::time_of([&] {
           for (const auto& path : paths) {
             const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
             auto& bytes = kept.emplace_back(std::filesystem::file_size(path));
             if (::read(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
               fail("short read");
             ::close(fd);
           }
         }) /
         1000;
}

/// Leaves this process one of its processors: the last, which serves fewer interrupts.
void pin_to_one() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) fail("sched_getaffinity");
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) last = cpu;
  CPU_ZERO(&allowed);
  CPU_SET(last, &allowed);
  if (::sched_setaffinity(0, sizeof(allowed), &allowed) != 0) fail("sched_setaffinity");
}

struct Child {
  std::string name{};
  int kernels = kKernels;
  unsigned jobs = 0;
  bool pinned = false;
  bool bare = false;
  std::vector<double> open{}, add{}, warmup{}, all{}, processor{}, process{};

  void run(const std::string& self, const std::string& cache) {
    // Shared libraries may be found by it alone.
    const auto environment = test::this_environment();
    test::ProcessResult result;
    const double whole = bench::time_of([&] {
      result = test::run_process(
          {.arguments = {self, "child", cache, std::to_string(kernels), std::to_string(jobs),
                         pinned ? "pinned" : "free", bare ? "bare" : "warm"},
           .environment = environment});
    });
    if (result.exit_code != 0) fail("the child failed: " + result.err);
    std::istringstream times(result.out);
    double opening = 0, adding = 0, warming = 0, used = 0;
    times >> opening >> adding >> warming >> used;
    if (!times) fail("the child said: " + result.out);
    open.push_back(opening);
    add.push_back(adding);
    warmup.push_back(warming);
    all.push_back(opening + adding + warming);
    processor.push_back(used);
    process.push_back(whole / 1000);
  }
};

int child(char** argv) {
  if (argv[5] == std::string("pinned")) pin_to_one();
  if (argv[6] == std::string("bare")) {
    std::printf("0 0 %.6f 0\n", read_all(argv[2]));
    return 0;
  }
  const auto times = start(argv[2], std::atoi(argv[3]), static_cast<unsigned>(std::atoi(argv[4])),
                           /*filled=*/true);
  std::printf("%.6f %.6f %.6f %.6f\n", times[0], times[1], times[2], times[3]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 7 && argv[1] == std::string("child")) return child(argv);
  bench::Report report("warm_start", argc, argv, 21);
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  const test::TemporaryDirectory directory;
  const auto cache = directory / "cache";
  static_cast<void>(start(cache, kKernels, 0, /*filled=*/false));

  std::vector<Child> children = {
      {.name = "bare", .pinned = true, .bare = true},
      {.name = "one processor, 1 job", .jobs = 1, .pinned = true},
      {.name = "one processor, default jobs", .pinned = true},
      {.name = "all processors, default jobs"},
      {.name = "1 kernel", .kernels = 1},
  };
  for (int round = -1; round < report.rounds(); ++round) {
    if (round == 0)
      for (auto& each : children)
        each.open = each.add = each.warmup = each.all = each.processor = each.process = {};
    for (std::size_t i = 0; i < children.size(); ++i)
      children[round % 2 == 0 ? i : children.size() - 1 - i].run(self, cache.string());
  }
  const auto title = std::to_string(kKernels) + " kernels, ";
  const auto& bare = children[0];
  for (const auto& each : {children[1], children[2], children[3]})
    report.add("warm start of " + title + each.name, "ms", each.all,
               {"open, read, close of the same files on one processor", bare.all});
  const auto& one = children[1];
  report.add("the first of them beside its goal", "ms", one.all, {"goal", {kGoalMilliseconds}});
  report.add("of it processor time", "ms", one.processor);
  report.add("of it Runtime::open", "ms", one.open);
  report.add("of it Runtime::add of all", "ms", one.add);
  report.add("of it Runtime::warmup", "ms", one.warmup);
  report.add("whole process that warms up 1 kernel", "ms", children[4].process);
  return report.finish();
}
