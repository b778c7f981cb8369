// Warmups: cold ones beside bare NVRTC doing the same compiles in as many threads, and herds of 8
// and 64 processes that want the same 50 kernels of 20 ms each, once of a processor and once of
// mere waiting; what a precompiled header saves.
// Needs NVRTC and no GPU.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "bench/rounds.hpp"
#include "kiln/compile_worker.hpp"
#include "kiln/runtime.hpp"
#include "runtime/compiler.hpp"
#include "runtime/program.hpp"
#include "support/temporary_directory.hpp"

namespace {

using namespace kiln;
using bench::fail;
using bench::must;

constexpr const char* kArchitecture = "sm_90a";
constexpr int kKernels = 16;

constexpr std::string_view kSource = R"(
#include "jit/key.cuh"
extern "C" __global__ void entry(float* x) {
  float a = x[threadIdx.x], b = x[threadIdx.x + 1];
#pragma unroll
  for (int i = 0; i < 300 + key::steps; ++i) { a = a * b + x[i]; b = b * a - x[i + 7]; }
  x[threadIdx.x] = a + b;
}
)";

KernelSpec spec(int steps) {
  return {.name = "steps", .source = "steps.cu", .key = {{"steps", "i32", std::to_string(steps)}}};
}

// The compiler alone, with the programs made ahead.
double bare_seconds(unsigned threads) {
  const auto search = find_nvrtc({}, process_environment());
  if (!search.found) fail(no_nvrtc_error(search).message());
  SourceSet sources{std::filesystem::path()};
  must(sources.add("steps.cu", kSource));
  FileMemo memo;
  std::vector<Program> programs;
  for (int i = 0; i < kKernels; ++i)
    programs.push_back(must(make_program(spec(i), sources, {}, memo)));
  const auto toolchain = search.found->toolchain();
  const double time = bench::time_of([&] {
    const auto library = must(NvrtcLibrary::open(*search.found));
    const auto& api = library.api();
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < threads; ++i)
      workers.emplace_back([&] {
        for (auto at = next++; at < programs.size(); at = next++) {
          const auto& files = programs[at].closure.memory;
          std::vector<const char*> texts, names, raw;
          for (std::size_t file = 1; file < files.size(); ++file) {
            texts.push_back(files[file].text->c_str());
            names.push_back(files[file].name.c_str());
          }
          const auto arguments = nvrtc_arguments(programs[at], kArchitecture, toolchain);
          for (const auto& argument : arguments) raw.push_back(argument.c_str());
          nvrtcProgram handle = nullptr;
          std::size_t size = 0;
          if (api.create_program(&handle, files.front().text->c_str(), "bare.cu",
                                 static_cast<int>(names.size()), texts.data(),
                                 names.data()) != NVRTC_SUCCESS ||
              api.compile_program(handle, static_cast<int>(raw.size()), raw.data()) !=
                  NVRTC_SUCCESS ||
              api.get_cubin_size(handle, &size) != NVRTC_SUCCESS)
            fail("bare NVRTC failed");
          std::string cubin(size, '\0');
          if (api.get_cubin(handle, cubin.data()) != NVRTC_SUCCESS) fail("no cubin");
          api.destroy_program(&handle);
        }
      });
    for (auto& worker : workers) worker.join();
  });
  return time / 1e6;
}

double warmup_seconds(unsigned threads, std::vector<std::string> worker_command) {
  const test::TemporaryDirectory directory;
  const double time = bench::time_of([&] {
    auto runtime = must(
        Runtime::open({.cache_directory = directory / "cache", .worker_command = worker_command}));
    must(runtime.add_source("steps.cu", kSource));
    for (int i = 0; i < kKernels; ++i) static_cast<void>(must(runtime.add(spec(i))));
    const auto report = must(runtime.warmup({.architectures = {kArchitecture}, .jobs = threads}));
    if (report.compiled != kKernels) fail("not all was compiled");
  });
  return time / 1e6;
}

// One that this process and its children have together.
template <class T>
class Shared {
 public:
  Shared() {
    void* const memory =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    value_ = new (memory) T{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(value_, sizeof(T)); }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_;
};

// In a process of its own, so that NVRTC is loaded anew each time.
template <class Work>
double in_process(const Work& work) {
  const Shared<double> result;
  if (test::in_child([&] {
        *result = work();
        return 0;
      }) != 0)
    fail("a child failed");
  return *result;
}

void add_cold(bench::Report& report, unsigned threads) {
  std::vector<double> bare, one, in_threads, in_workers;
  for (int round = 0; round < report.rounds(); ++round) {
    bare.push_back(in_process([&] { return bare_seconds(threads); }));
    in_threads.push_back(in_process([&] { return warmup_seconds(threads, {}); }));
    in_workers.push_back(in_process([&] {
      return warmup_seconds(threads, {"/proc/self/exe", "compile-worker"});
    }));
    one.push_back(in_process([&] { return bare_seconds(1); }));
  }
  const auto title = std::to_string(kKernels) + " kernels in " + std::to_string(threads) + " ";
  const bench::Rival rival{"bare NVRTC", bare};
  report.add(title + "threads, cold", "s", in_threads, rival);
  report.add(title + "worker processes, cold", "s", in_workers, rival);
  std::vector<double> linear;
  for (const double time : one) linear.push_back(time / threads);
  report.add(title + "threads: bare NVRTC", "s", bare, {"one thread's share", linear});
}

constexpr int kHeaderKernels = 20;

// The same kernel with and without the line that asks for a precompiled header.
double header_seconds(std::string_view includes, bool shared, unsigned jobs, bool workers) {
  const test::TemporaryDirectory directory;
  RuntimeOptions options{.cache_directory = directory / "cache"};
  if (workers) options.worker_command = {"/proc/self/exe", "compile-worker"};
  auto runtime = must(Runtime::open(options));
  must(runtime.add_source("heavy.cu", std::string(includes) +
                                          (shared ? "#pragma nv_hdrstop\n" : "") +
                                          "#include \"jit/key.cuh\"\n"
                                          "extern \"C\" __global__ void entry(float* x) {\n"
                                          "  cuda::std::array<float, 3> all{1, 2, key::factor};\n"
                                          "  *x *= all[threadIdx.x % 3];\n}\n"));
  for (int i = 0; i < kHeaderKernels; ++i)
    static_cast<void>(must(runtime.add(
        {.name = "heavy", .source = "heavy.cu", .key = {{"factor", "i32", std::to_string(i)}}})));
  return bench::time_of([&] {
           const auto done = must(runtime.warmup({.architectures = {kArchitecture}, .jobs = jobs}));
           if (done.compiled != kHeaderKernels) fail("not all was compiled");
           for (const auto& kernel : done.kernels)
             if (kernel.header_shared != shared) fail("the precompiled header was not used");
         }) /
         1e6;
}

void add_headers(bench::Report& report) {
  constexpr std::pair<const char*, const char*> kIncludes[] = {
      {"cuda/std/array", "#include <cuda/std/array>\n"},
      {"cuda/std/array, atomic, tuple",
       "#include <cuda/std/array>\n#include <cuda/std/atomic>\n#include <cuda/std/tuple>\n"}};
  for (const auto& [name, lines] : kIncludes)
    for (const bool workers : {false, true}) {
      const unsigned jobs = workers ? 2 : 1;
      const std::string_view includes = lines;
      std::vector<double> with, without;
      for (int round = 0; round < report.rounds(); ++round) {
        with.push_back(in_process([&] { return header_seconds(includes, true, jobs, workers); }));
        without.push_back(
            in_process([&] { return header_seconds(includes, false, jobs, workers); }));
      }
      report.add(std::to_string(kHeaderKernels) + " keys, " + name +
                     (workers ? ", 2 workers" : ", 1 thread") + ": one precompiled header",
                 "s", with, {"without", without});
    }
}

constexpr int kHerdKernels = 50, kHerdMilliseconds = 20;

struct Herd {
  std::atomic<int> ready{0};
  std::atomic<bool> may_begin{false};  // asked for every 0.2 ms: one word wakes no other process
  std::chrono::steady_clock::time_point begin{};
  std::array<std::chrono::steady_clock::time_point, 64> ends{};
};

// All begin once the last is there with its kernels registered, so that no start of a process is in
// it; the end of the last warmup counts, in milliseconds.
double herd(int processes, const std::filesystem::path& cache) {
  const Shared<Herd> shared;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i)
    children.push_back(test::start_child([&] {
      auto runtime = must(Runtime::open({.cache_directory = cache, .nvrtc = KILN_FAKE_NVRTC}));
      must(runtime.add_source("herd.cu", "// herd\n"));
      for (int k = 0; k < kHerdKernels; ++k)
        static_cast<void>(must(runtime.add(
            {.name = "herd", .source = "herd.cu", .key = {{"k", "i32", std::to_string(k)}}})));
      ++shared->ready;
      while (!shared->may_begin) std::this_thread::sleep_for(std::chrono::microseconds(200));
      const auto done = must(runtime.warmup({.architectures = {"sm_90"}, .jobs = 1}));
      shared->ends[static_cast<std::size_t>(i)] = std::chrono::steady_clock::now();
      return done.failed == 0 ? 0 : 1;
    }));
  for (int waited = 0; shared->ready < processes; ++waited) {
    if (waited == 60'000) fail("a process of the herd did not get ready within a minute");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  shared->begin = std::chrono::steady_clock::now();
  shared->may_begin = true;
  for (const auto child : children)
    if (test::wait_for(child) != 0) fail("a process of the herd failed");
  const auto last = *std::max_element(shared->ends.begin(), shared->ends.end());
  return std::chrono::duration<double, std::milli>(last - shared->begin).count();
}

// `busy`: a compile keeps a processor for its 20 ms, as a real one does, so that all processors
// together have an ideal; else it sleeps, and as many go on at once as there are processes.
void add_herd(bench::Report& report, int processes, bool busy) {
  const char* const kTime = busy ? "KILN_FAKE_NVRTC_CPU_MS" : "KILN_FAKE_NVRTC_MS";
  ::setenv(kTime, std::to_string(kHerdMilliseconds).c_str(), 1);
  std::vector<double> cold, full, compiles, bounds;
  // None goes before the last round: for seconds after many files were removed, ext4 looks longer
  // for places for new ones.
  std::deque<test::TemporaryDirectory> directories;
  for (int round = 0; round < report.rounds(); ++round) {
    const auto& directory = directories.emplace_back();
    const auto log = directory / "compiles";
    ::setenv("KILN_FAKE_NVRTC_LOG", log.c_str(), 1);
    cold.push_back(herd(processes, directory / "cache"));
    full.push_back(herd(processes, directory / "cache"));
    const auto lines = test::read_file(log);
    double count = 0;
    for (auto at = lines.find("begin"); at != std::string::npos; at = lines.find("begin", at + 1))
      ++count;
    compiles.push_back(count);
  }
  ::unsetenv(kTime);
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  const int at_once = busy ? std::min(processes, processors) : processes;
  const double ideal =
      busy ? static_cast<double>(kHerdKernels * kHerdMilliseconds) / at_once
           : static_cast<double>((kHerdKernels + at_once - 1) / at_once * kHerdMilliseconds);
  // The processes that find everything already keep the processors busy.
  for (const double time : full) bounds.push_back(time + ideal);
  const auto title = "herd of " + std::to_string(processes) + " processes, 50 kernels of 20 ms " +
                     (busy ? "of a processor: " : "of sleep: ");
  report.add(title + "compiles", "", compiles, {"kernels", {kHerdKernels}});
  report.add(title + "time", "ms", cold, {"compiles alone, spread evenly", {ideal}});
  report.add(title + "time", "ms", cold, {"that, and the herd on a full cache", bounds});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "compile-worker") return serve_compiles();
  bench::Report report("warmup", argc, argv, 5);
  add_cold(report, std::max(2u, std::thread::hardware_concurrency()));
  for (const int processes : {8, 64})
    for (const bool busy : {true, false}) add_herd(report, processes, busy);
  add_headers(report);  // takes minutes
  return report.finish();
}
