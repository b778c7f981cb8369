// The floor of a publish: the three calls that it cannot do without, on plain files that lie as the
// entries of a store do. What this costs more among more files, the file system takes by itself.
//
// Threads: one.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "bench/report.hpp"
#include "kiln/cache/digest.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::bench {

/// 256 directories that are kept open, with some empty files in them.
class BareDirectory {
 public:
  explicit BareDirectory(std::size_t files) {
    for (int& shard : shards_) {
      const std::string path = (directory_ / std::to_string(&shard - shards_)).string();
      ::mkdir(path.c_str(), 0777);
      shard = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    for (std::size_t i = 0; i < files; ++i) publish({});
  }
  BareDirectory(const BareDirectory&) = delete;
  ~BareDirectory() {
    for (const int shard : shards_) ::close(shard);
  }

  void publish(const std::string& payload) {
    const cache::Digest name = cache::digest_of(std::to_string(number_++));
    const int shard = shards_[name.high >> 56];
    const int fd = ::openat(shard, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0444);
    const ssize_t written = ::write(fd, payload.data(), payload.size());
    const std::string self = "/proc/self/fd/" + std::to_string(fd);
    const std::string leaf = name.hex().substr(2);
    if (written != static_cast<ssize_t>(payload.size()) ||
        ::linkat(AT_FDCWD, self.c_str(), shard, leaf.c_str(), AT_SYMLINK_FOLLOW) != 0)
      fail("a bare file was not published");
    ::close(fd);
  }

 private:
  test::TemporaryDirectory directory_;
  int shards_[256] = {};
  std::size_t number_ = 0;
};

}  // namespace kiln::bench
