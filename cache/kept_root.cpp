#include "cache/kept_root.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <mutex>
#include <utility>

#include "cache/trust.hpp"

namespace kiln::cache {
namespace {

// One for all, so that a fork can take it: no child is to lack the thread that holds it.
constinit std::mutex roots_mutex;

void hold_roots() {
  roots_mutex.lock();
}
void release_roots() {
  roots_mutex.unlock();
}

// Before main, since a fork in the middle of a first use would leave a child without it.
[[maybe_unused]] const int kRootsSurviveForks =
    ::pthread_atfork(hold_roots, release_roots, release_roots);

}  // namespace

void KeptRoot::begin() noexcept {
  const std::lock_guard lock(roots_mutex);
  ++users_;
}

void KeptRoot::end() noexcept {
  const std::lock_guard lock(roots_mutex);
  if (--users_ != 0) return;
  fd_.reset();
  locks_.reset();
}

void KeptRoot::keep(const SystemCalls& calls, Fd root) {
  const std::lock_guard lock(roots_mutex);
  struct stat status {};
  if (users_ == 0 || calls.fstat(root.get(), &status) != 0) return;
  fd_ = std::make_shared<const Fd>(std::move(root));
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

std::shared_ptr<const Fd> KeptRoot::get(const Root& root) const {
  std::shared_ptr<const Fd> kept;
  {
    const std::lock_guard lock(roots_mutex);
    kept = fd_;
  }
  if (kept == nullptr) return nullptr;
  // The number may be that of another file by now, where a program closes what it has not opened.
  struct stat status {};
  const bool same = root.calls().fstat(kept->get(), &status) == 0 && is_ours(status);
  return same && distrust(status, root.trust()).empty() ? kept : nullptr;
}

bool KeptRoot::is_current(const Root& root) const {
  struct stat status {};
  return root.calls().fstatat(AT_FDCWD, root.path().c_str(), &status, 0) == 0 && is_ours(status);
}

bool KeptRoot::shows_lock(off_t offset) const {
  std::shared_ptr<const LockWatch> locks;
  {
    const std::lock_guard lock(roots_mutex);
    locks = locks_;
  }
  // A lock file that was deleted shows those that are still at work since then, and no others.
  return locks != nullptr && locks->is_held(offset);
}

void KeptRoot::watch_locks(const SystemCalls& calls) {
  const std::lock_guard lock(roots_mutex);
  if (users_ != 0 && fd_ != nullptr && locks_ == nullptr)
    locks_ = std::make_shared<const LockWatch>(calls, fd_->get());
}

bool KeptRoot::is_ours(const struct stat& status) const {
  const std::lock_guard lock(roots_mutex);
  return status.st_dev == device_ && status.st_ino == inode_;
}

}  // namespace kiln::cache
