// Files of include roots: their digests and what they include, read once as long as they stay the
// same file with the same size and times.
//
// Threads: any member from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>

#include "kiln/cache/digest.hpp"
#include "kiln/error.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/source_scan.hpp"

namespace kiln {

/// What must be equal for a file to count as unchanged.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

enum class FileKind : unsigned char {
  absent,
  file,
  other,      ///< a directory, a pipe, a device
  forbidden,  ///< can be opened by nobody here: for lack of rights, or by its name
  unknown,    ///< cannot be looked at, as where a disk or a server fails
};

struct FileProbe {
  FileKind kind = FileKind::absent;
  FileStamp stamp{};
  int error = 0;  ///< errno, for what is unknown
};

struct ScannedFile {
  FileStamp stamp{};  ///< before it was read
  cache::Digest digest{};
  SourceScan scan{};
};

/// Looks at `path`, through links.
FileProbe probe_file(const std::string& path) noexcept;

/// Reads a regular file whole; never waits on a pipe. `stamp`, if not null, gets its stamp.
/// Errors  io_failed with path and reason.
Result<std::string> read_whole_file(const std::string& path, FileStamp* stamp = nullptr);

class FileMemo {
 public:
  /// The digest and the scan of `path`, which probe_file() has just seen with `stamp`. What was
  /// read within two seconds of a change is not kept: another change may carry the same times.
  /// Errors  io_failed.
  Result<std::shared_ptr<const ScannedFile>> get(const std::string& path, const FileStamp& stamp);

 private:
  SharedForkMutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const ScannedFile>> known_;
};

}  // namespace kiln
