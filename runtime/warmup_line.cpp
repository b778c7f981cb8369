// The kernels of a warmup that wait for a compile: in which order, and which of them may begin.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "runtime/warmup_run.hpp"

namespace kiln {
namespace {

using std::chrono::milliseconds;

// To make a header takes about a compile and a third, to use it a tenth to two thirds of one.
constexpr std::size_t kSharersOfAHeader = 3;
// Of a host: if all may run all their jobs at once, nobody needs to know of the others.
constexpr std::uint64_t kMostRanks = 16;
// From the begin of a compile until its lock shows to those who count them, and between counts.
constexpr milliseconds kUntilLocked{3};

}  // namespace

// With all that there is looked up: what is left is compiled, and only now does it matter how many
// fit into memory and what they took before.
void WarmupRun::plan() {
  if (waiting_.empty()) return;
  if (const auto known = state_.hints.largest_peak(); known != 0) usual_bytes_ = known;
  jobs_ = count_jobs(usual_bytes_);
  if (jobs_.jobs > 1) resident_before_ = resident_bytes();
  plan_headers();
  milliseconds sum{};
  std::size_t known = 0;
  for (const auto& [place, task] : waiting_)
    if (const auto cost = state_.hints.find(*task->spec, task->report.architecture)) {
      task->expected = *cost;
      task->expected_known = true;
      sum += cost->time;
      ++known;
    }
  std::uint64_t bytes = 0;
  for (const auto& [place, task] : waiting_) bytes += bytes_of(*task);
  mean_bytes_ = bytes / waiting_.size();
  // What nothing is known of counts as the mean of the others.
  const auto mean = known != 0 ? sum / static_cast<milliseconds::rep>(known) : milliseconds{0};
  const auto unordered = std::exchange(waiting_, {});
  for (const auto& [place, task] : unordered) {
    if (!task->expected_known) task->expected.time = mean;
    wait_in_line(*task);
  }
}

JobCount WarmupRun::count_jobs(std::uint64_t compile_bytes) const {
  if (asked_jobs_ == 1) return {1, "1 job: as asked; one may take what memory there is"};
  return choose_jobs(asked_jobs_, limits_, compile_bytes);
}

// A header pays where several programs in one process use it.
void WarmupRun::plan_headers() {
  std::map<cache::Digest, std::vector<Task*>> by_header;
  for (const auto& [place, task] : waiting_)
    if (const auto header = state_.service.shared_header_of(*task->request))
      by_header[*header].push_back(task);
  const std::size_t processes = state_.workers != nullptr ? jobs_.jobs : 1;
  for (const auto& [header, tasks] : by_header)
    for (auto* const task : tasks)
      task->request->share_header = tasks.size() >= kSharersOfAHeader * processes;
}

void WarmupRun::wait_in_line(Task& task) {
  const auto expected = task.expected.time.count();
  if (work_is_shared_)
    waiting_.insert(
        {{task.rank, -std::bit_width(static_cast<std::uint64_t>(expected)), random_()}, &task});
  else
    waiting_.insert({{task.rank, -expected, task.id.index}, &task});
}

void WarmupRun::look_again() {
  if (busy_.empty()) return;
  wait_in_line(*busy_.front());
  busy_.pop_front();
}

// Others compile the same kernels. Each process then takes those that take about as long in an
// order of its own; in the same order, each would find every key taken that the others are at.
void WarmupRun::share_work() {
  if (std::exchange(work_is_shared_, true)) return;
  for (const auto& [place, task] : std::exchange(waiting_, {})) wait_in_line(*task);
}

std::uint64_t WarmupRun::bytes_of(const Task& task) const {
  return task.expected.peak_bytes != 0 ? task.expected.peak_bytes : usual_bytes_;
}

// Whether there is memory for it beside what is compiled here and, where memory is short of the
// processors, by other ranks on the same cache: together they have each counted all of it. One
// compile each may have in any case.
bool WarmupRun::fits(const Task& task) {
  if (compiling_ == 0 || !limits_.memory_bytes) return true;
  const auto wanted = compiling_bytes_ + bytes_of(task);
  if (wanted > *limits_.memory_bytes) return false;
  const auto hold = *limits_.memory_bytes / std::max<std::uint64_t>(mean_bytes_, 1);
  if (!state_.store || hold >= kMostRanks * std::uint64_t{jobs_.jobs}) return true;
  const auto now = Clock::now();
  if (now < last_begin_ + kUntilLocked) return false;
  if (now >= count_again_) {
    const auto locked = state_.store->locked(static_cast<std::size_t>(hold) + 1);
    compiling_elsewhere_ = locked - std::min(locked, compiling_);
    // On a network file system each lock may be a question to its server.
    const auto took = Clock::now() - now;
    count_again_ = now + std::max<Clock::duration>(kUntilLocked, took * 10);
  }
  return wanted + compiling_elsewhere_ * mean_bytes_ <= *limits_.memory_bytes;
}

// The first in line for which there is a job and memory; the first of all where nothing runs. What
// others compile is only looked at now and then, which takes neither.
WarmupRun::Step WarmupRun::next_in_line() {
  const bool has_job = !alone_ && compiling_ < jobs_.jobs;
  const auto now = Clock::now();
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    auto* const task = at->second;
    const bool may_begin = has_job && fits(*task);
    if (!may_begin && !task->was_busy) continue;
    waiting_.erase(at);
    return {task, may_begin && now >= task->try_again ? Reach::make : Reach::look};
  }
  return {};
}

WarmupRun::Step WarmupRun::begin(Task& task, Reach reach) {
  // The first time; later it waits for somebody else, or for another try.
  if (!task.began) {
    task.queue = Clock::now() - task.looked;
    compiling_changed_ = true;
  }
  task.began = Clock::now();
  if (reach == Reach::look) return {&task, reach, /*of_line=*/true};
  task.compiling = true;
  last_begin_ = *task.began;
  if (const auto limit = state_.options.compile_limit; limit.count() > 0)
    task.overdue = *task.began + limit;
  ++compiling_;
  task.reserved_bytes = bytes_of(task);
  compiling_bytes_ += task.reserved_bytes;
  return {&task, reach, /*of_line=*/true};
}

// While others compile.
void WarmupRun::rest(std::unique_lock<ForkMutex>& lock) {
  if (!ended_.empty()) finished_.notify_all();
  const auto sleep = time_to_sleep();
  lock.unlock();
  state_.service.wait_for_change(sleep);
  lock.lock();
  busy_in_a_row_ = 0;
  // Two; settle() goes on for as long as they are there.
  look_again();
  look_again();
}

// So that an earlier group does not wait for the later ones because somebody else compiles some of
// it.
void WarmupRun::look_again_at_earlier() {
  if (busy_.empty() || Clock::now() < busy_.front()->try_again) return;
  const auto rank = busy_.front()->rank;
  const bool comes_first = (waiting_.empty() || rank < waiting_.begin()->second->rank) &&
                           (to_look_.empty() || rank < to_look_.front()->rank);
  if (comes_first) look_again();
}

}  // namespace kiln
