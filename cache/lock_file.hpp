// Locks on numbers: open-file-description locks on single bytes of one shared file.
//
// Each lock has a description of its own, so that threads exclude one another just as processes
// do. The kernel frees it when its process dies. A child made by fork() keeps none of them.
// Threads: any. A lock saves work and nothing more: no entry is wrong for the want of one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cache/file.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// A locked byte; unlocked on destruction, unless that happens in a forked child.
class LockedByte {
 public:
  struct Attempt;

  /// Locks the byte at `number`, less its two highest bits, of the lock file below `root`; makes
  /// the file and its directories where they are missing. Never waits.
  static Attempt try_lock(const SystemCalls& calls, const std::string& root, std::uint64_t number);

  LockedByte(const LockedByte&) = delete;
  LockedByte& operator=(const LockedByte&) = delete;
  ~LockedByte();

 private:
  friend struct LockRegistry;
  LockedByte(const SystemCalls& calls, Fd file, off_t offset);
  int set(short type) const noexcept;

  const SystemCalls* calls_;
  Fd file_;  // empty in a forked child
  off_t offset_;
  pid_t process_;
  LockedByte* next_ = nullptr;
  LockedByte* previous_ = nullptr;
};

struct LockedByte::Attempt {
  LockOutcome outcome = LockOutcome::unavailable;
  std::unique_ptr<LockedByte> lock{};
  std::string reason{};  // why locks are unavailable
};

}  // namespace kiln::cache
