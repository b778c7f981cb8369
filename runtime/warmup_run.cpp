#include "runtime/warmup_run.hpp"

#include <algorithm>
#include <utility>

#include "cache/capped.hpp"

namespace kiln {
namespace {

using std::chrono::milliseconds;

// Between asking whether there is something to do.
constexpr milliseconds kPoll{10};
constexpr unsigned kBusyInARow = 4;
// Between looks at busy keys: a part of the time for which none has ended, and of what a compile
// took here, so that a short compile is seen soon and a long one is not asked for often; never the
// same, so that many processes do not fall into step.
constexpr int kPartOfWait = 8, kPartOfCompile = 32;
constexpr std::chrono::microseconds kShortestSleep{1000}, kLongestSleep{40000};
// A look takes a third of a try at the lock; in between it is enough to see when the others end.
constexpr milliseconds kBetweenTries{10};
// Between looks at the clock and at who wants the warmup to end.
constexpr milliseconds kLook{20};
// How long a stop waits for compiles in hand, of the two seconds that it may take.
constexpr milliseconds kPatience{1200};
// The driver is not told of every hit: to wake it takes longer than to read an entry.
constexpr milliseconds kBetweenNews{2};
// How long beyond its limit a compile on a thread may go on until it is given up.
constexpr milliseconds kGrace{500};
// How long no thread can be made, and none is left, until the rest is not built.
constexpr milliseconds kWithoutThreads{1000};

}  // namespace

void WarmupRun::add(KernelId id, const KernelSpec& spec, std::string architecture,
                    std::string group, std::size_t rank) {
  auto& task = tasks_.emplace_back();
  task.id = id;
  task.spec = &spec;
  task.rank = rank;
  task.report.kernel = spec.name;
  task.report.id = id;
  task.report.architecture = std::move(architecture);
  task.report.group = std::move(group);
  to_look_.push_back(&task);
}

void WarmupRun::add_group(const WarmupGroup& group) {
  auto& kernels = groups_[group.name];
  for (const auto id : group.kernels) kernels.insert(id.index);
}

bool WarmupRun::start_thread() {
  if (!state_.threads.start([run = shared_from_this(), lane = lanes_ + 1] { run->work(lane); }))
    return false;
  ++lanes_;
  ++threads_;
  return true;
}

void WarmupRun::work(unsigned lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto step = next(lock);
    if (step.task == nullptr) break;
    ++active_;
    lock.unlock();
    auto outcome = take(*step.task, step.reach);
    lock.lock();
    --active_;
    const bool stays = settle(step, std::move(outcome), lane);
    changed_.notify_all();
    tell_driver();
    if (!stays) return;
  }
  --threads_;
  finished_.notify_all();
}

// At once of what took long and of the last one; of hits only now and then.
void WarmupRun::tell_driver() {
  if (ended_.empty()) return;
  const auto now = Clock::now();
  const bool is_hit = ended_.back()->report.compile.count() == 0;
  const bool is_last = done_ + ended_.size() == tasks_.size();
  if (is_hit && !is_last && now < last_news_ + kBetweenNews) return;
  last_news_ = now;
  finished_.notify_all();
}

std::chrono::microseconds WarmupRun::time_to_sleep() {
  const auto waited =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - last_end_);
  const auto part = std::max(waited / kPartOfWait, longest_compile_ / kPartOfCompile);
  const auto usual = std::clamp(part, kShortestSleep, kLongestSleep).count();
  return std::chrono::microseconds(
      std::uniform_int_distribution<std::int64_t>(usual / 2, usual * 3 / 2)(random_));
}

// Waits until there is something to do; nothing once all is done or stopped.
WarmupRun::Step WarmupRun::next(std::unique_lock<ForkMutex>& lock) {
  for (;;) {
    if (stopped_ || done_ + ended_.size() == tasks_.size()) return {};
    look_again_at_earlier();
    if (!to_look_.empty()) {
      auto* const task = to_look_.front();
      to_look_.pop_front();
      ++looking_;
      task->touched = Clock::now();
      return {task, Reach::look};
    }
    if (looking_ == 0) {
      if (!std::exchange(planned_, true)) plan();
      // With several keys taken in a row most are: there is more to wait for than to do, and to try
      // them all would keep the processor from those that compile.
      const bool rests = !busy_.empty() && busy_in_a_row_ >= kBusyInARow;
      auto step = rests ? Step() : next_in_line();
      if (step.task == nullptr && waiting_.empty() && compiling_ == 0 && !to_retry_.empty()) {
        step.task = to_retry_.front();
        step.reach = Reach::make;
        to_retry_.pop_front();
        alone_ = true;
      }
      if (step.task != nullptr) return begin(*step.task, step.reach);
      // What is left is in other hands, or waits for memory that is in use here.
      if (!busy_.empty()) {
        rest(lock);
        continue;
      }
    }
    changed_.wait_for(lock, kPoll);
  }
}

std::optional<Outcome> WarmupRun::take(Task& task, Reach reach) {
  if (!task.request) {
    auto request = state_.request(task.id, task.report.architecture);
    if (!request) return Outcome{.status = request.error()};
    task.request = *std::move(request);
    // Asked by the thread that compiles, which alone changes `overdue`.
    task.request->stop = [this, &task] {
      return stopped_ || state_.threads.stopping() ||
             (task.overdue && Clock::now() > *task.overdue);
    };
  }
  auto outcome = state_.service.advance(*task.request, reach);
  if (!outcome) return outcome;
  state_.note(task.id, *task.spec, *task.request, task.report.architecture, *outcome);
  if (outcome->origin == Origin::compiled)
    state_.hints.note(
        *task.spec, task.report.architecture,
        {std::chrono::duration_cast<milliseconds>(outcome->compile_time), outcome->peak_bytes});
  return outcome;
}

// What a compile says of those to come: how long one takes, and how much memory.
void WarmupRun::learn_from(const Outcome& outcome) {
  longest_compile_ =
      std::max(longest_compile_,
               std::chrono::duration_cast<std::chrono::microseconds>(outcome.compile_time));
  if (outcome.compile_time.count() <= 0) return;
  if (const auto resident = jobs_.jobs > 1 && !state_.workers ? resident_bytes() : 0;
      resident > resident_before_)
    usual_bytes_ = std::max(usual_bytes_, (resident - resident_before_) / (compiling_ + 1));
  if (outcome.peak_bytes != 0) usual_bytes_ = std::max(usual_bytes_, outcome.peak_bytes);
}

bool WarmupRun::settle(const Step& step, std::optional<Outcome> outcome, unsigned lane) {
  auto& task = *step.task;
  const auto now = Clock::now();
  if (!step.of_line) {
    --looking_;
    task.looked = now;
    if (!outcome) {
      wait_in_line(task);
      return true;
    }
    task.began = task.touched;
  } else if (step.reach == Reach::make && !task.given_up) {
    --compiling_;
    compiling_bytes_ -= task.reserved_bytes;
    alone_ = false;
    task.compiling = false;
  }
  if (task.given_up) return false;
  if (!outcome) {
    task.was_busy = true;
    if (step.reach == Reach::make) task.try_again = now + kBetweenTries;
    ++busy_in_a_row_;
    busy_.push_back(&task);
    share_work();
    return true;
  }
  busy_in_a_row_ = 0;
  last_end_ = now;
  if (task.was_busy) look_again();
  learn_from(*outcome);

  auto& report = task.report;
  report.key = outcome->key;
  report.compile = outcome->compile_time;
  report.peak_bytes = outcome->peak_bytes;
  report.header_shared = outcome->header_shared;
  report.lane = lane;
  const bool failed_in_passing =
      outcome->passing && outcome->status.code() == ErrorCode::compile_failed;
  if (failed_in_passing && !report.retried && !stopped_) {
    report.retried = true;
    task.request->share_header = false;
    report.status = outcome->status;
    to_retry_.push_back(&task);
    return true;
  }
  report.origin = outcome->origin;
  report.status = outcome->status;
  report.stored = outcome->stored;
  report.storing = outcome->storing;
  report.verify = outcome->verify_time;
  if (outcome->status.code() == ErrorCode::not_ready && task.overdue && now > *task.overdue)
    report.status = too_slow(task);
  if (outcome->artifact) {
    report.cubin_bytes = outcome->artifact->cubin_bytes;
    report.usage = outcome->artifact->facts.usage;
    report.log = outcome->artifact->facts.log;
  }
  // What it was made of is of no use any more, and its memory serves the next one.
  task.request.reset();
  finish(task);
  return true;
}

void WarmupRun::finish(Task& task) {
  auto& report = task.report;
  const auto now = Clock::now();
  const auto began = task.began.value_or(now);
  report.began = began - start_;
  report.queue = task.queue;
  report.time = now - task.touched - task.queue;
  task.ended = true;
  ended_.push_back(&task);
}

Error WarmupRun::too_slow(const Task& task) const {
  return Error(ErrorCode::not_ready, "kernel " + task.spec->name + " for " +
                                         task.report.architecture +
                                         ": its compile took longer than the limit of " +
                                         std::to_string(state_.options.compile_limit.count()) +
                                         " ms; raise the compile limit");
}

// A compile on a thread that does not end when it is told to: the thread is left to the Runtime,
// and another takes its place.
void WarmupRun::give_up_overdue() {
  if (state_.options.compile_limit.count() <= 0) return;
  for (auto& task : tasks_) {
    if (!task.compiling || !task.overdue || Clock::now() < *task.overdue + kGrace) continue;
    task.given_up = true;
    task.compiling = false;
    --compiling_;
    --threads_;
    compiling_bytes_ -= task.reserved_bytes;
    alone_ = false;
    task.report.status = too_slow(task);
    task.report.origin = Origin::failed;
    finish(task);
    start_thread();
  }
}

// Nobody is left to build what is left once a thread was given up and none could be made.
void WarmupRun::keep_a_thread() {
  if (stopped_ || threads_ != 0 || done_ + ended_.size() == tasks_.size() || start_thread()) {
    without_threads_.reset();
    return;
  }
  const auto now = Clock::now();
  if (!without_threads_) without_threads_ = now;
  if (now - *without_threads_ >= kWithoutThreads)
    stop(
        "no thread can be made in place of one whose compile was given up; allow this process "
        "more of them, as by ulimit -u");
}

void WarmupRun::stop(std::string why) {
  why_stopped_ = std::move(why);
  stopped_ = true;
  changed_.notify_all();
}

void WarmupRun::load_one(Task& task, const Load& load, std::unique_lock<ForkMutex>& lock) {
  lock.unlock();
  const auto started = Clock::now();
  const auto status = load(task.id, task.report.architecture);
  const auto took = Clock::now() - started;
  lock.lock();
  task.report.load_began = started - start_;
  task.report.load = took;
  if (status) return;
  task.report.status = status;
  task.report.origin = Origin::failed;
}

void WarmupRun::drive(const WarmupOptions& options, const Load& load, WarmupReport& report) {
  std::unique_lock lock(mutex_);
  const auto tell = [&](const KernelReport* latest) {
    if (!options.progress) return;
    auto progress = progress_now();
    progress.latest = latest;
    lock.unlock();
    options.progress(progress);
    lock.lock();
  };
  tell(nullptr);

  // What is wanted first is looked up first as well, so that a full cache gives it first.
  std::stable_sort(to_look_.begin(), to_look_.end(),
                   [](const Task* a, const Task* b) { return a->rank < b->rank; });
  jobs_.jobs = count_jobs(1).jobs;
  if (options.cancel.stop_requested()) stop("cancelled");
  const auto wanted = stopped_ ? 0 : std::min<std::size_t>(tasks_.size(), jobs_.jobs);
  while (threads_ < wanted && start_thread()) continue;
  if (threads_ == 0 && wanted != 0) {
    // No thread can be made: this one does the work, and then the rest of its own.
    ++threads_;
    lock.unlock();
    work(++lanes_);
    lock.lock();
  }

  std::optional<Clock::time_point> deadline;
  if (options.time_limit.count() > 0) deadline = start_ + cache::capped(options.time_limit);
  while (done_ < tasks_.size() && !stopped_) {
    if (!ended_.empty()) {
      auto& task = *ended_.front();
      ended_.pop_front();
      if (load && task.report.status) load_one(task, load, lock);
      task.done = true;
      ++done_;
      changed_.notify_all();
      tell(&task.report);
    } else if (std::exchange(compiling_changed_, false)) {
      tell(nullptr);
    } else {
      finished_.wait_for(lock, kLook);
    }
    if (options.cancel.stop_requested()) stop("cancelled");
    if (deadline && Clock::now() >= *deadline && done_ < tasks_.size())
      stop("the time limit of " + std::to_string(options.time_limit.count()) + " ms");
    give_up_overdue();
    keep_a_thread();
  }
  // Every thread leaves by itself once all is done; when stopped, after its compile at most.
  finished_.wait_for(lock, kPatience, [&] { return threads_ == 0; });
  // Finished in the meantime, and so stored; there is no time to load it.
  for (auto* const task : std::exchange(ended_, {})) {
    task->done = !load || !task->report.status;
    done_ += task->done;
  }

  tell_all(report);
}

}  // namespace kiln
