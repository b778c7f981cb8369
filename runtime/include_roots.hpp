// Where angle includes are looked for: directories in order, and what one program found there.
//
// It probes as NVRTC does and keeps nothing beyond one program: a header that appears in an earlier
// root is seen by the next one.
// Threads: one object by one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/file_memo.hpp"

namespace kiln {

struct IncludeRoot {
  std::filesystem::path path{};
  bool toolkit = false;  ///< of the CUDA toolkit, whose files follow rules of their own
};

/// `path` without empty, "." and ".." parts; empty when it leads out at the top or to nothing.
std::optional<std::string> normal_path(std::string_view path);

/// The part of `path` before the last '/', with it; empty when there is none.
std::string_view directory_part(std::string_view path) noexcept;

/// A file below a root.
struct RootFile {
  std::size_t root = 0;
  std::string relative{};  ///< normal, unless `outside`
  std::string label{};     ///< such as "toolkit/0/cuda_fp16.h"; holds no path of the machine
  std::string path{};
  FileStamp stamp{};
  bool outside = false;  ///< reached by ".." across a link or beyond the root
};

class IncludeRoots {
 public:
  explicit IncludeRoots(std::span<const IncludeRoot> roots);

  std::size_t size() const noexcept { return roots_.size(); }
  bool is_toolkit(std::size_t root) const noexcept { return roots_[root].toolkit; }
  const std::string& path(std::size_t root) const noexcept { return roots_[root].path; }

  /// The regular file `relative` of one root; null when there is none. Valid as long as this.
  const RootFile* place(std::size_t root, const std::string& relative);
  /// The same in the first root that has it.
  const RootFile* locate(const std::string& spelling);

  /// io_failed once something could not be looked at that may be there, and counted as absent.
  const Status& trouble() const noexcept { return trouble_; }

  /// All files of one root, in order of name, other roots inside it excepted.
  /// Errors  io_failed.
  Result<std::vector<const RootFile*>> all_files(std::size_t root);

 private:
  struct Root {
    std::string path;
    std::string label;
    bool toolkit = false;
  };
  std::vector<Root> roots_;
  std::vector<std::unordered_map<std::string, std::optional<RootFile>>> placed_;
  std::unordered_map<std::string, const RootFile*> located_;
  Status trouble_{};
};

}  // namespace kiln
