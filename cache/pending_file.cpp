#include "cache/pending_file.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace kiln::cache {
namespace {

constexpr mode_t kEntryMode =
    0444;  // less the umask; whoever makes a file may write it all the same
constexpr int kNameAttempts = 8;

/// Errors that would meet the other form as well, so that it need not be tried.
bool is_final(int error) noexcept {
  switch (error) {
    case EACCES:
    case EDQUOT:
    case EEXIST:
    case EFBIG:
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOENT:
    case ENOMEM:
    case ENOSPC:
    case EROFS:
    case ESTALE:
      return true;
    default:
      return false;
  }
}

bool is_removed(const SystemCalls& calls, int directory) noexcept {
  struct stat status {};
  return calls.fstat(directory, &status) != 0 || status.st_nlink == 0;
}

}  // namespace

PendingFile::PendingFile(const SystemCalls& calls, int directory, Fd file,
                         std::string temporary) noexcept
    : calls_(&calls),
      directory_(directory),
      file_(std::move(file)),
      temporary_(std::move(temporary)) {}

PendingFile::PendingFile(PendingFile&& other) noexcept
    : calls_(other.calls_),
      directory_(other.directory_),
      file_(std::move(other.file_)),
      temporary_(std::exchange(other.temporary_, {})) {}

PendingFile::~PendingFile() {
  if (!temporary_.empty()) calls_->unlinkat(directory_, temporary_.c_str(), 0);
}

PendingFile::Created PendingFile::create(const SystemCalls& calls, int directory, Form form,
                                         std::span<const std::byte> first,
                                         std::span<const std::byte> second, Durability durability,
                                         std::optional<gid_t> group) {
  Opened opened;
  std::string temporary;
  if (form == Form::anonymous) {
    opened = open_at(calls, directory, ".", O_TMPFILE | O_WRONLY, kEntryMode);
    if (!opened.fd) return {.error = opened.error, .form_refused = !is_final(opened.error)};
  } else {
    for (int attempt = 0; attempt < kNameAttempts && !opened.fd; ++attempt) {
      temporary = dot_name("tmp");
      opened = open_at(calls, directory, temporary.c_str(),
                       O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, kEntryMode);
      if (!opened.fd && opened.error != EEXIST) break;
    }
    if (!opened.fd) return {.error = opened.error};
  }

  // From here on its destructor removes a named file, whatever fails.
  PendingFile file(calls, directory, std::move(opened.fd), std::move(temporary));
  if (const int error = write_whole(calls, file.file_.get(), first, second); error != 0)
    return {.error = error};
  // Where the directory has not seen to it, and whatever the umask: one that the others cannot read
  // they would take for damage and replace. An entry that only its maker believes is of use, too.
  if (group && (calls.fchown(file.file_.get(), static_cast<uid_t>(-1), *group) != 0 ||
                calls.fchmod(file.file_.get(), kEntryMode) != 0))
    errno = 0;
  if (durability == Durability::durable && calls.fsync(file.file_.get()) != 0)
    return {.error = errno};
  return {.file = std::move(file)};
}

PendingFile::Published PendingFile::publish_as(const std::string& leaf) {
  return temporary_.empty() ? publish_anonymous(leaf) : publish_named(leaf);
}

PendingFile::Published PendingFile::publish_anonymous(const std::string& leaf) {
  const std::string self = "/proc/self/fd/" + std::to_string(file_.get());
  if (calls_->linkat(AT_FDCWD, self.c_str(), directory_, leaf.c_str(), AT_SYMLINK_FOLLOW) == 0)
    return {};
  int error = errno;
  if (error == ENOENT && !is_removed(*calls_, directory_)) {
    // No /proc here. This form wants a capability on older kernels, hence second.
    if (calls_->linkat(file_.get(), "", directory_, leaf.c_str(), AT_EMPTY_PATH) == 0) return {};
    if (errno != EEXIST) return {.error = errno, .form_refused = true};
    error = EEXIST;
  }
  // The directory took the file, so that this is said of links, as SELinux and AppArmor may.
  return {.error = error, .form_refused = error == EACCES || !is_final(error)};
}

PendingFile::Published PendingFile::publish_named(const std::string& leaf) {
  // Network file systems report a full disk as late as this.
  if (const int raw = file_.release(); raw >= 0 && calls_->close(raw) != 0 && errno != EINTR)
    return {.error = errno};
  if (calls_->renameat2(directory_, temporary_.c_str(), directory_, leaf.c_str(),
                        RENAME_NOREPLACE) == 0) {
    temporary_.clear();
    return {};
  }
  if (is_final(errno)) return {.error = errno};
  // A file system that cannot refuse to replace. The caller has looked: at worst this replaces a
  // good entry that appeared since by another good one.
  if (calls_->renameat2(directory_, temporary_.c_str(), directory_, leaf.c_str(), 0) == 0) {
    temporary_.clear();
    return {};
  }
  const bool directory_in_the_way = errno == EISDIR || errno == ENOTEMPTY;
  return {.error = directory_in_the_way ? EEXIST : errno};
}

}  // namespace kiln::cache
