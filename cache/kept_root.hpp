// A root that stays open between look-ups, while somebody makes many of them: to find it by its
// path each time is a sixth of what a hit costs.
//
// A hit may come through it whatever the path leads to by now. What is not found below it counts as
// absent only while the path still leads there, so that a tree that was moved, deleted or put in
// its place is seen at once.
//
// Threads: any member from any thread, also in a forked child.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <memory>

#include "cache/file.hpp"
#include "cache/lock_file.hpp"
#include "cache/root.hpp"

namespace kiln::cache {

class KeptRoot {
 public:
  /// What keep() gets is kept from the first begin() to the last end().
  void begin() noexcept;
  void end() noexcept;

  void keep(const SystemCalls& calls, Fd root);
  /// Null where nothing is kept, or what is kept is not trusted now.
  std::shared_ptr<const Fd> get(const Root& root) const;
  /// Whether the path of `root` leads to what is kept.
  bool is_current(const Root& root) const;

  /// Whether a byte of the lock file is seen to be locked; false where it has to be tried. Sees
  /// something from the first watch_locks() on.
  bool shows_lock(off_t offset) const;
  void watch_locks(const SystemCalls& calls);

 private:
  bool is_ours(const struct stat& status) const;

  unsigned users_ = 0;
  std::shared_ptr<const Fd> fd_;
  std::shared_ptr<const LockWatch> locks_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace kiln::cache
