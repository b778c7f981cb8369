// Compiles with exceptions: std::thread reports by one that no more threads can be made.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/runtime_state.hpp"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

// Between looking again at a key that another process compiles.
constexpr std::chrono::milliseconds kPoll{10};

struct Task {
  const KernelSpec* spec = nullptr;
  KernelReport* report = nullptr;
  std::optional<CompileRequest> request{};
  std::optional<Clock::time_point> started{};
};

}  // namespace

// The tasks of one warmup, and the threads that take them: a task that another process is busy with
// goes to the end of the line.
class WarmupRun {
 public:
  WarmupRun(Runtime::State& state, const WarmupOptions& options)
      : state_(state), options_(options) {}

  void add(const KernelSpec& spec, KernelReport& report) { ready_.push_back({&spec, &report}); }

  void run(unsigned jobs) {
    total_ = ready_.size();
    if (options_.progress) options_.progress({0, total_, nullptr});
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < std::min<std::size_t>(jobs, total_); ++i) {
      try {
        threads.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        break;  // the threads that there are do the work
      }
    }
    work();
    for (auto& thread : threads) thread.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (done_ < total_) {
      if (ready_.empty()) {
        if (busy_.empty()) {
          changed_.wait_for(lock, kPoll);
          continue;
        }
        // Only busy keys are left: look at each again after a short sleep.
        lock.unlock();
        state_.service.wait_for_change(kPoll);
        lock.lock();
        std::move(busy_.begin(), busy_.end(), std::back_inserter(ready_));
        busy_.clear();
        continue;
      }
      auto task = std::move(ready_.front());
      ready_.pop_front();
      lock.unlock();
      const bool finished = advance(task);
      if (finished) finish(*task.report);
      lock.lock();
      if (!finished) busy_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  // True when the task's report is complete.
  bool advance(Task& task) {
    auto& report = *task.report;
    if (!task.started) {
      task.started = Clock::now();
      auto request = state_.request(*task.spec, report.architecture);
      if (!request) {
        report.status = request.error();
        return true;
      }
      task.request = *std::move(request);
    }
    auto outcome = state_.service.advance(*task.request);
    if (!outcome) return false;
    report.key = outcome->key;
    report.origin = outcome->origin;
    report.status = outcome->status;
    report.stored = outcome->stored;
    report.storing = outcome->storing;
    if (outcome->artifact) report.cubin_bytes = outcome->artifact->cubin_bytes;
    report.time = Clock::now() - *task.started;
    return true;
  }

  // One callback at a time, in order, and without holding up the other threads' work.
  void finish(const KernelReport& report) {
    const std::lock_guard one_at_a_time(progress_mutex_);
    std::size_t done = 0;
    {
      const std::lock_guard lock(mutex_);
      done = ++done_;
    }
    if (options_.progress) options_.progress({done, total_, &report});
  }

  Runtime::State& state_;
  const WarmupOptions& options_;
  std::mutex progress_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> ready_;
  std::vector<Task> busy_;
  std::size_t total_ = 0;
  std::size_t done_ = 0;
};

namespace {

void count(WarmupReport& report) {
  report.requested = report.kernels.size();
  for (const auto& kernel : report.kernels) {
    switch (kernel.origin) {
      case Origin::memory:
      case Origin::disk:
      case Origin::lower_tier:
        ++report.hits;
        break;
      case Origin::compiled:
        ++report.compiled;
        if (!kernel.stored) ++report.not_stored;
        break;
      case Origin::waited:
        ++report.waited;
        break;
      case Origin::failed:
        ++report.failed;
        break;
    }
  }
}

}  // namespace

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::memory:
      return "memory";
    case Origin::disk:
      return "disk";
    case Origin::lower_tier:
      return "lower tier";
    case Origin::compiled:
      return "compiled";
    case Origin::waited:
      return "waited";
    case Origin::failed:
      return "failed";
  }
  return "unknown";
}

Result<WarmupReport> Runtime::warmup(const WarmupOptions& options) {
  auto& state = *state_;
  const auto started = Clock::now();
  auto architectures = options.architectures;
  if (architectures.empty()) {
    auto infos = state.devices();
    if (!infos)
      return Error(ErrorCode::no_device,
                   "warmup: no architecture is named and no device can be asked for one; name "
                   "them, such as sm_90a. " +
                       infos.error().message());
    for (const auto& info : *infos) architectures.push_back(info.architecture);
  }
  for (const auto& architecture : architectures)
    if (auto status = state.compiler.check_target(architecture); !status) return status.error();
  std::vector<std::string> distinct;
  for (const auto& architecture : architectures)
    if (std::find(distinct.begin(), distinct.end(), architecture) == distinct.end())
      distinct.push_back(architecture);

  WarmupReport report;
  const auto registered = state.registry.size();
  for (std::uint32_t index = 0; index < registered; ++index)
    for (const auto& architecture : distinct)
      report.kernels.push_back(
          {.kernel = state.registry.at({index})->spec().name, .architecture = architecture});
  WarmupRun run(state, options);
  for (std::size_t i = 0; i < report.kernels.size(); ++i)
    run.add(state.registry.at({static_cast<std::uint32_t>(i / distinct.size())})->spec(),
            report.kernels[i]);
  auto jobs = options.jobs != 0 ? options.jobs : state.options.jobs;
  if (jobs == 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  run.run(jobs);

  // A filled cache serves without a compiler by its record of this one.
  if (!options.architectures.empty()) state.service.record_toolchain();
  // Named architectures mean a prewarm. Otherwise load as well, so that nothing is left for the
  // first launch, on the device whose context is current; other devices load at their first get().
  const auto current =
      options.architectures.empty() ? state.open_driver()->current_device() : Result<int>(-1);
  if (current && *current >= 0) {
    KILN_TRY(const auto info, device(*current));
    for (std::size_t i = 0; i < report.kernels.size(); ++i) {
      auto& kernel = report.kernels[i];
      if (!kernel.status || kernel.architecture != info.architecture) continue;
      auto loaded = get({static_cast<std::uint32_t>(i / distinct.size())}, *current);
      if (loaded) continue;
      kernel.status = loaded.error();
      kernel.origin = Origin::failed;
    }
  }

  count(report);
  report.nvrtc_loaded = state.compiler.loaded();
  report.toolchain = state.service.toolchain_text();
  report.time = Clock::now() - started;
  return report;
}

}  // namespace kiln
