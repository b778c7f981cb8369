// What tests of files and processes share: a directory that goes away, whole files as strings,
// and work done in a child process.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kiln::test {

/// From here on they lie where many small files cost little, unless TMPDIR says where: for tests
/// that try the store a thousand times, and not the disk.
inline void use_memory_for_temporary_files() {
  std::error_code ignored;
  if (std::filesystem::is_directory("/dev/shm", ignored)) ::setenv("TMPDIR", "/dev/shm", 0);
}

/// A fresh directory that any user may use, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::error_code ignored;
    std::string name =
        (std::filesystem::temp_directory_path(ignored) / "kiln_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    ::chmod(name.c_str(), 0777);
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Replaces the file, so that a read-only one can be written as well.
inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Names below `root` that start with a dot: what a publish left behind.
inline std::vector<std::string> dot_names_below(const std::filesystem::path& root) {
  std::vector<std::string> names;
  std::error_code failure;
  for (std::filesystem::recursive_directory_iterator at(root, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (name.front() == '.') names.push_back(name);
  }
  return names;
}

/// Starts a child that runs `work` and exits with what it returns.
template <class Work>
pid_t start_child(Work&& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(std::forward<Work>(work)());
  return child;
}

/// The exit status of `child`, or 128 and the number of the signal that ended it.
inline int wait_for(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <class Work>
int in_child(Work&& work) {
  return wait_for(start_child(std::forward<Work>(work)));
}

}  // namespace kiln::test
