// Locks on numbers: open-file-description locks on single bytes of one shared file.
//
// Each lock has a description of its own, so that threads exclude one another just as processes
// do. The kernel frees it when its process dies. A child made by fork() keeps none of them.
// Threads: any. A lock saves work and nothing more: no entry is wrong for the want of one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cache/file.hpp"
#include "cache/root.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// Where the lock of an entry lies in the lock file; that of trimming comes after all of them.
off_t lock_offset(const Digest& name) noexcept;
inline constexpr off_t kTrimLockOffset = off_t{1} << 62;

/// A locked byte; unlocked on destruction, unless that happens in a forked child.
class LockedByte {
 public:
  struct Attempt;

  /// Locks a byte of the lock file below `root`; makes the file and its directories where they are
  /// missing. Never waits.
  static Attempt try_lock(const Root& root, off_t offset);

  /// Locks a byte of `file`, which is given back in the lock, or stays where it was with EAGAIN.
  static int try_lock_file(const SystemCalls& calls, Fd& file, off_t offset,
                           std::unique_ptr<LockedByte>& lock);

  /// The locked file; none in a forked child.
  int file() const noexcept { return file_.get(); }

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

/// Whether locks of the lock file below a root are held, by whomever.
class LockWatch {
 public:
  /// `base` is the root.
  LockWatch(const SystemCalls& calls, int base);
  bool is_held(off_t offset) const noexcept;
  /// How many locks of entries are held, counted up to `most`.
  std::size_t count_held(std::size_t most) const;

 private:
  /// The place of a lock that is held from `from` on and before `end`; `end` where none is.
  off_t find_held(off_t from, off_t end) const noexcept;

  const SystemCalls* calls_;
  Fd file_;  // empty where there is none: then no lock is held
};

struct LockedByte::Attempt {
  LockOutcome outcome = LockOutcome::unavailable;
  std::unique_ptr<LockedByte> lock{};
  int error = 0;         // why locks are unavailable, as Root gives it
  std::string reason{};  // the same in words, where no error says it
};

}  // namespace kiln::cache
