#include "cache/lock_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/layout.hpp"

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
constexpr mode_t kLockMode = 0644;  // less the umask
constexpr mode_t kSharedLockMode = 0664;
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
[[maybe_unused]] const int kInstalled =
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

Opened open_lock_file(const Root& root, int directory) {
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
  Opened opened = open_at(root.calls(), directory, kLockName, kFlags);
  if (opened.error != ENOENT) return opened;
  // Only what we made ourselves gets another mode: a link to some other file may come in between.
  opened = open_at(root.calls(), directory, kLockName, kFlags | O_CREAT | O_EXCL, kLockMode);
  if (opened.error == EEXIST) return open_at(root.calls(), directory, kLockName, kFlags);
  if (opened.fd && root.trust().group)  // which the file has from its directory
    root.calls().fchmod(opened.fd.get(), kSharedLockMode);
  return opened;
}

/// Whether the lock file at hand is still the one that others will open.
bool is_current(const Root& root, int file) {
  struct stat here {};
  struct stat there {};
  const std::string path = root.path() + "/v1/" + kLockName;
  const SystemCalls& calls = root.calls();
  return calls.fstat(file, &here) == 0 && calls.fstatat(AT_FDCWD, path.c_str(), &there, 0) == 0 &&
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

off_t lock_offset(const Digest& name) noexcept {
  return static_cast<off_t>(name.low & kOffsetMask);
}

int LockedByte::try_lock_file(const SystemCalls& calls, Fd& file, off_t offset,
                              std::unique_ptr<LockedByte>& lock) {
  // Registered before it is locked: no fork can fall between the two.
  std::unique_ptr<LockedByte> made(new LockedByte(calls, std::move(file), offset));
  const int error = made->set(F_WRLCK);
  if (error == 0)
    lock = std::move(made);
  else
    made->file_.swap(file);
  return error == EACCES ? EAGAIN : error;
}

LockedByte::Attempt LockedByte::try_lock(const Root& root, off_t offset) {
  const SystemCalls& calls = root.calls();
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Opened directory = root.open_for_writing(kVersionDirectory, Durability::relaxed);
    Opened file =
        directory.fd ? open_lock_file(root, directory.fd.get()) : Opened{.error = directory.error};
    error = file.error;
    if (has_vanished(error)) continue;
    if (error != 0) break;
    struct stat status {};
    if (calls.fstat(file.fd.get(), &status) != 0 || !S_ISREG(status.st_mode))
      return {.reason = "the lock file is not a regular file"};

    std::unique_ptr<LockedByte> lock;
    error = try_lock_file(calls, file.fd, offset, lock);
    if (error == EAGAIN) return {.outcome = LockOutcome::busy};
    if (error != 0) break;
    if (!is_current(root, lock->file_.get())) continue;
    return {.outcome = LockOutcome::held, .lock = std::move(lock)};
  }
  // A tree that is deleted faster than we can lock it: work without, there is nothing to warn of.
  if (error == 0) return {.outcome = LockOutcome::unavailable};
  return {.error = error};
}

LockWatch::LockWatch(const SystemCalls& calls, int base) : calls_(&calls) {
  const std::string path = std::string(kVersionDirectory) + '/' + kLockName;
  file_ = open_beneath(calls, base, path.c_str(), O_RDONLY).fd;
}

off_t LockWatch::find_held(off_t from, off_t end) const noexcept {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = from;
  range.l_len = end - from;
  const bool is_held =
      file_ && calls_->get_lock(file_.get(), &range) == 0 && range.l_type != F_UNLCK;
  return is_held ? std::clamp(range.l_start, from, end - 1) : end;
}

bool LockWatch::is_held(off_t offset) const noexcept {
  return find_held(offset, offset + 1) == offset;
}

std::size_t LockWatch::count_held(std::size_t most) const {
  std::size_t count = 0;
  // The kernel names any of a range, and not the first.
  std::vector<std::pair<off_t, off_t>> ranges = {{0, kTrimLockOffset}};
  while (!ranges.empty() && count < most) {
    const auto [from, end] = ranges.back();
    ranges.pop_back();
    const off_t found = from < end ? find_held(from, end) : end;
    if (found == end) continue;
    ++count;
    ranges.emplace_back(from, found);
    ranges.emplace_back(found + 1, end);
  }
  return count;
}

}  // namespace kiln::cache
