// What a warmup tells of itself: progress while it runs, its report, and which groups are ready.
#include <algorithm>

#include "runtime/warmup_run.hpp"

namespace kiln {

Progress WarmupRun::progress_now() const {
  Progress progress{.done = done_, .requested = tasks_.size()};
  std::chrono::milliseconds left{};
  bool known = true;
  for (const auto& task : tasks_) {
    if (task.compiling)
      progress.compiling.push_back(task.report.kernel + " " + task.report.architecture);
    if (task.ended) continue;
    known = known && planned_ && task.expected.time.count() > 0;
    left += task.expected.time;
    if (task.compiling)
      left -= std::min(task.expected.time, std::chrono::duration_cast<std::chrono::milliseconds>(
                                               Clock::now() - *task.began));
  }
  if (known && jobs_.jobs != 0) progress.left = left / jobs_.jobs;
  return progress;
}

void WarmupRun::tell_all(WarmupReport& report) const {
  report.jobs = jobs_.jobs;
  report.jobs_reason = jobs_.reason;
  for (const auto& task : tasks_) {
    report.kernels.push_back(task.report);
    // A stop that came when all was finished has stopped nothing.
    if (!task.done || task.report.status.code() == ErrorCode::not_ready)
      report.stopped = why_stopped_;
    if (task.done) continue;
    auto& kernel = report.kernels.back();
    kernel.origin = Origin::failed;
    kernel.status = Error(ErrorCode::not_ready,
                          "kernel " + kernel.kernel + " for " + kernel.architecture +
                              ": the warmup was stopped before it was ready (" + why_stopped_ +
                              "); warm up again, what is finished is kept");
    if (kernel.time.count() == 0) kernel.began = Clock::now() - start_;
  }
}

bool WarmupRun::ready(std::string_view group) const {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(group);
  if (!group.empty() && known == groups_.end()) return false;
  return std::all_of(tasks_.begin(), tasks_.end(), [&](const Task& task) {
    const bool wanted = group.empty() || known->second.contains(task.id.index);
    return !wanted || (task.done && task.report.status.ok());
  });
}

}  // namespace kiln
