#include "cache/lock_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cache/directory.hpp"
#include "cache/file.hpp"

namespace kiln::cache {

// All lock descriptors of this process. A child made by fork() shares their descriptions: if it
// kept them open, a lock would outlive the death of the parent that holds it. So the child closes
// its copies at once, whatever its threads do later. The mutex is taken over the fork, hence never
// held by a thread that the child lacks.
struct LockRegistry {
  std::mutex mutex;
  LockedByte* first = nullptr;

  void add(LockedByte& lock) {
    const std::lock_guard guard(mutex);
    lock.next_ = first;
    if (first != nullptr) first->previous_ = &lock;
    first = &lock;
  }

  void remove(LockedByte& lock) {
    const std::lock_guard guard(mutex);
    if (lock.next_ != nullptr) lock.next_->previous_ = lock.previous_;
    if (lock.previous_ != nullptr) lock.previous_->next_ = lock.next_;
    if (first == &lock) first = lock.next_;
    lock.next_ = lock.previous_ = nullptr;
  }

  void abandon_all() noexcept {
    while (first != nullptr) {
      LockedByte& lock = *std::exchange(first, first->next_);
      lock.next_ = lock.previous_ = nullptr;
      lock.file_ = Fd();
    }
  }
};

namespace {

constexpr const char* kLockName = "lock";
constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << 62) - 1;
constexpr mode_t kLockMode = 0666;  // less the umask: who may write entries may lock them
// A lock file is deleted with its directory only; more than a few in a row is somebody's game.
constexpr int kAttempts = 16;

constinit LockRegistry registry;

void before_fork() {
  registry.mutex.lock();
}
void after_fork_in_parent() {
  registry.mutex.unlock();
}
void after_fork_in_child() {
  registry.abandon_all();
  registry.mutex.unlock();
}

// Before main, since a fork in the middle of a first use would leave a child without it.
[[maybe_unused]] const int installed =
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

Opened open_lock_file(const SystemCalls& calls, int directory) {
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
  Opened opened = open_at(calls, directory, kLockName, kFlags);
  if (opened.error != ENOENT) return opened;
  return open_at(calls, directory, kLockName, kFlags | O_CREAT, kLockMode);
}

/// Whether the lock file at hand is still the one that others will open.
bool is_current(const std::string& root, int file) noexcept {
  struct stat here {};
  struct stat there {};
  const std::string path = root + "/v1/" + kLockName;
  return ::fstat(file, &here) == 0 && ::stat(path.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

}  // namespace

LockedByte::LockedByte(const SystemCalls& calls, Fd file, off_t offset)
    : calls_(&calls), file_(std::move(file)), offset_(offset), process_(::getpid()) {
  registry.add(*this);
}

LockedByte::~LockedByte() {
  // Unlocking in a child would unlock the parent, whose description it is; the process id is
  // compared for children that were made without fork()'s handlers.
  if (file_ && process_ == ::getpid()) set(F_UNLCK);
  registry.remove(*this);
}

int LockedByte::set(short type) const noexcept {
  struct flock byte {};
  byte.l_type = type;
  byte.l_whence = SEEK_SET;
  byte.l_start = offset_;
  byte.l_len = 1;
  while (calls_->set_lock(file_.get(), &byte) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

LockedByte::Attempt LockedByte::try_lock(const SystemCalls& calls, const std::string& root,
                                         std::uint64_t number) {
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Opened directory = open_for_writing(calls, root, "v1", Durability::relaxed);
    Opened file =
        directory.fd ? open_lock_file(calls, directory.fd.get()) : Opened{.error = directory.error};
    error = file.error;
    if (has_vanished(error)) continue;
    if (error != 0) break;
    struct stat status {};
    if (::fstat(file.fd.get(), &status) != 0 || !S_ISREG(status.st_mode))
      return {.reason = "the lock file is not a regular file"};

    const auto offset = static_cast<off_t>(number & kOffsetMask);
    // Registered before it is locked: no fork can fall between the two.
    std::unique_ptr<LockedByte> lock(new LockedByte(calls, std::move(file.fd), offset));
    error = lock->set(F_WRLCK);
    if (error == EAGAIN || error == EACCES) return {.outcome = LockOutcome::busy};
    if (error != 0) break;
    if (!is_current(root, lock->file_.get())) continue;
    return {.outcome = LockOutcome::held, .lock = std::move(lock)};
  }
  // A tree that is deleted faster than we can lock it: work without, there is nothing to warn of.
  if (error == 0) return {.outcome = LockOutcome::unavailable};
  return {.reason = describe_error(error)};
}

}  // namespace kiln::cache
