// Builds of kernels that were asked for too late, on threads of a Runtime: each kernel by one
// thread at a time, and no more at once than a warmup would. The others stand in line.
//
// Threads: any member from any thread. A forked child begins anew, since it has none of the
// threads.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "runtime/background_threads.hpp"
#include "runtime/fork_mutex.hpp"

namespace kiln {

class LateBuilds {
 public:
  using Subject = std::pair<std::uint32_t, std::string>;  ///< index of a kernel, and architecture

  /// `jobs`: how many at once, 0 for as many as the machine allows; `in_process`: where they
  /// compile.
  LateBuilds(unsigned jobs, bool in_process) : jobs_(jobs), in_process_(in_process) {}

  /// Has `build` called on one of `threads`, which end before this does. Nothing where `subject` is
  /// being built or stands in line. False when no thread can be made.
  bool add(BackgroundThreads& threads, const Subject& subject, std::function<void()> build);

 private:
  struct Build {
    Subject subject;
    std::function<void()> run;
  };
  void work(const BackgroundThreads& threads);

  const unsigned jobs_;
  const bool in_process_;
  ForkMutex mutex_;
  unsigned generation_ = 0;     // fork_generation() of the process that what follows is of
  unsigned working_ = 0;        // threads
  std::set<Subject> subjects_;  // being built or in line
  std::deque<Build> line_;
};

}  // namespace kiln
