// One warmup: its kernels, in the order that they are built in, and the threads that take them.
//
// The thread that called warmup() drives: it loads, reports progress, and watches the time. It
// never compiles, so that it can leave when it must; what a compile in flight then touches is this
// object, which the threads share, and the Runtime, which waits for its threads.
// Threads: drive() once, by the caller; ready() from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/fork_mutex.hpp"
#include "runtime/job_limits.hpp"
#include "runtime/runtime_state.hpp"

namespace kiln {

class WarmupRun : public std::enable_shared_from_this<WarmupRun> {
 public:
  using Clock = std::chrono::steady_clock;
  /// Loads one kernel as deep as was asked for; by the driving thread.
  using Load = std::function<Status(KernelId, const std::string& architecture)>;

  WarmupRun(Runtime::State& state, unsigned asked_jobs)
      : state_(state),
        asked_jobs_(asked_jobs),
        limits_(asked_jobs == 1 ? MachineLimits()
                                : machine_limits(/*in_process=*/state.workers == nullptr)) {}

  /// `rank`: that of its group; kernels of a lower one come first.
  void add(KernelId id, const KernelSpec& spec, std::string architecture, std::string group,
           std::size_t rank);

  /// For ready(); a kernel may be in several, and a group may have none.
  void add_group(const WarmupGroup& group);

  /// Fills in what the run tells of `report`: the kernels, the jobs, and why it stopped.
  void drive(const WarmupOptions& options, const Load& load, WarmupReport& report);

  bool ready(std::string_view group) const;

 private:
  struct Task {
    KernelId id{};
    const KernelSpec* spec = nullptr;
    std::size_t rank = 0;
    KernelReport report{};
    std::optional<CompileRequest> request{};
    CompileCost expected{};
    bool expected_known = false;
    Clock::time_point touched{};  // first
    Clock::time_point looked{};   // the end of its look-up
    Clock::duration queue{};
    std::optional<Clock::time_point> began{};    // its step in hand
    std::optional<Clock::time_point> overdue{};  // when its compile has taken too long
    std::uint64_t reserved_bytes = 0;            // while it compiles
    bool compiling = false;
    bool was_busy = false;          // somebody else compiled it when it was tried last
    Clock::time_point try_again{};  // until then it is only looked at
    bool given_up = false;          // its thread is left to the Runtime
    bool ended = false;             // but not loaded or told of yet
    bool done = false;
  };
  struct Step {
    Task* task = nullptr;
    Reach reach = Reach::look;
    bool of_line = false;  // its turn came; else it is the first look at it
  };
  // By rank, then the longest first, then in order; see share_work().
  using Place = std::tuple<std::size_t, std::int64_t, std::size_t>;

  bool start_thread();
  void work(unsigned lane);
  Step next(std::unique_lock<ForkMutex>& lock);
  Step begin(Task& task, Reach reach);
  void rest(std::unique_lock<ForkMutex>& lock);
  void tell_driver();
  std::chrono::microseconds time_to_sleep();
  std::optional<Outcome> take(Task& task, Reach reach);
  void learn_from(const Outcome& outcome);
  // True when this thread still belongs to the run.
  bool settle(const Step& step, std::optional<Outcome> outcome, unsigned lane);
  void plan();
  JobCount count_jobs(std::uint64_t compile_bytes) const;
  void plan_headers();
  void wait_in_line(Task& task);
  void look_again();
  void look_again_at_earlier();
  void share_work();
  std::uint64_t bytes_of(const Task& task) const;
  bool fits(const Task& task);
  Step next_in_line();
  void finish(Task& task);
  void give_up_overdue();
  void keep_a_thread();
  Progress progress_now() const;
  // Without the lock while it loads.
  void load_one(Task& task, const Load& load, std::unique_lock<ForkMutex>& lock);
  void tell_all(WarmupReport& report) const;
  void stop(std::string why);
  Error too_slow(const Task& task) const;

  Runtime::State& state_;
  const unsigned asked_jobs_;
  const MachineLimits limits_;  // not read for one job, which is never one too many
  const Clock::time_point start_ = Clock::now();
  std::atomic<bool> stopped_{false};

  mutable ForkMutex mutex_;
  ForkCondition changed_;                                               // for the threads
  ForkCondition finished_;                                              // for the driver
  std::deque<Task> tasks_;                                              // never move
  std::map<std::string, std::set<std::uint32_t>, std::less<>> groups_;  // by name
  std::deque<Task*> to_look_;
  std::set<std::pair<Place, Task*>> waiting_;  // for a compile
  std::deque<Task*> busy_;                     // somebody else compiles them
  bool work_is_shared_ = false;
  unsigned busy_in_a_row_ = 0;
  Clock::time_point last_end_ = start_;  // when a kernel had its outcome
  std::chrono::microseconds longest_compile_{};
  Clock::time_point last_news_ = start_;  // when the driver was told
  std::minstd_rand random_{random_seed()};
  std::deque<Task*> to_retry_;  // alone
  std::deque<Task*> ended_;     // for the driver to load and report
  std::size_t looking_ = 0;
  std::size_t compiling_ = 0;
  std::uint64_t compiling_bytes_ = 0;
  bool alone_ = false;
  bool planned_ = false;
  bool compiling_changed_ = false;
  unsigned threads_ = 0;
  std::optional<Clock::time_point> without_threads_{};  // since none is left and none can be made
  unsigned lanes_ = 0;
  unsigned active_ = 0;  // threads inside a step
  std::size_t done_ = 0;
  JobCount jobs_{};
  std::uint64_t usual_bytes_ = kUsualCompileBytes;  // of a compile that nothing is known of
  std::uint64_t mean_bytes_ = kUsualCompileBytes;   // of what is compiled here, and so elsewhere
  std::uint64_t compiling_elsewhere_ = 0;
  Clock::time_point count_again_{};
  Clock::time_point last_begin_{};  // of a compile here
  std::uint64_t resident_before_ = 0;
  std::string why_stopped_;
};

}  // namespace kiln
