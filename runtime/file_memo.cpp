#include "runtime/file_memo.hpp"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>

#include "runtime/read_file.hpp"

namespace kiln {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
// File systems keep times as coarse as this.
constexpr std::int64_t kRacy = 2 * kNanosecondsPerSecond;

std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * kNanosecondsPerSecond + time.tv_nsec;
}

FileStamp stamp_of(const struct stat& facts) {
  return {.device = static_cast<std::uint64_t>(facts.st_dev),
          .inode = static_cast<std::uint64_t>(facts.st_ino),
          .bytes = static_cast<std::uint64_t>(facts.st_size),
          .modified_ns = nanoseconds(facts.st_mtim),
          .changed_ns = nanoseconds(facts.st_ctim)};
}

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now);
}

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const noexcept { return number_; }

 private:
  int number_;
};

Error cannot_read(const std::string& path, const std::string& reason) {
  return {ErrorCode::io_failed, "cannot read \"" + path + "\": " + reason};
}

std::string reason_of(int number) {
  return std::generic_category().message(number);
}

}  // namespace

FileProbe probe_file(const std::string& path) noexcept {
  struct stat facts {};
  int result = 0;
  do result = ::stat(path.c_str(), &facts);
  while (result != 0 && errno == EINTR);
  if (result == 0)
    return S_ISREG(facts.st_mode) ? FileProbe{.kind = FileKind::file, .stamp = stamp_of(facts)}
                                  : FileProbe{.kind = FileKind::other};
  switch (errno) {
    case ENOENT:
    case ENOTDIR:
      return {.kind = FileKind::absent};
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
      return {.kind = FileKind::forbidden};
    default:
      return {.kind = FileKind::unknown, .error = errno};
  }
}

Result<std::string> read_whole_file(const std::string& path, FileStamp* stamp) {
  const Descriptor file(open_to_read(path.c_str()));
  if (file.get() < 0) return cannot_read(path, reason_of(errno));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return cannot_read(path, reason_of(errno));
  if (!S_ISREG(facts.st_mode)) return cannot_read(path, "it is not a regular file");
  if (stamp != nullptr) *stamp = stamp_of(facts);
  std::string text(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t have = 0;
  for (;;) {
    if (have == text.size()) text.resize(text.size() + 4096);  // it may have grown meanwhile
    const auto count = ::read(file.get(), text.data() + have, text.size() - have);
    if (count == 0) break;
    if (count < 0) {
      if (errno == EINTR) continue;
      return cannot_read(path, reason_of(errno));
    }
    have += static_cast<std::size_t>(count);
  }
  text.resize(have);
  return text;
}

Result<std::shared_ptr<const ScannedFile>> FileMemo::get(const std::string& path,
                                                         const FileStamp& stamp) {
  {
    const std::shared_lock lock(mutex_);
    const auto found = known_.find(path);
    if (found != known_.end() && found->second->stamp == stamp) return found->second;
  }
  const auto started_ns = now_ns();
  FileStamp read_stamp;
  KILN_TRY(const auto text, read_whole_file(path, &read_stamp));
  auto file = std::make_shared<const ScannedFile>(ScannedFile{
      .stamp = read_stamp, .digest = cache::digest_of(text), .scan = scan_source(text)});
  const bool quiet = started_ns - read_stamp.changed_ns >= kRacy &&
                     probe_file(path).stamp == read_stamp && text.size() == read_stamp.bytes;
  const std::unique_lock lock(mutex_);
  if (quiet)
    known_.insert_or_assign(path, file);
  else
    known_.erase(path);
  return std::shared_ptr<const ScannedFile>(std::move(file));
}

}  // namespace kiln
