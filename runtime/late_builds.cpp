#include "runtime/late_builds.hpp"

#include <mutex>

#include "runtime/fork_generation.hpp"
#include "runtime/job_limits.hpp"

namespace kiln {

bool LateBuilds::add(BackgroundThreads& threads, const Subject& subject,
                     std::function<void()> build) {
  const std::lock_guard lock(mutex_);
  if (generation_ != fork_generation()) {
    generation_ = fork_generation();
    working_ = 0;
    subjects_.clear();
    line_.clear();
  }
  if (!subjects_.insert(subject).second) return true;
  line_.push_back({subject, std::move(build)});
  const auto at_once = choose_jobs(jobs_, machine_limits(in_process_), kUsualCompileBytes).jobs;
  if (working_ >= at_once) return true;
  if (threads.start([this, &threads] { work(threads); }))
    ++working_;
  else if (working_ == 0) {
    line_.clear();
    subjects_.clear();
  }
  return working_ != 0;
}

void LateBuilds::work(const BackgroundThreads& threads) {
  std::unique_lock lock(mutex_);
  while (!line_.empty() && !threads.stopping()) {
    const auto build = std::move(line_.front());
    line_.pop_front();
    lock.unlock();
    build.run();
    lock.lock();
    subjects_.erase(build.subject);
  }
  --working_;
}

}  // namespace kiln
