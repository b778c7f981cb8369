// A file that is written but has no name yet: it is published whole under a name that nobody has,
// or it disappears. Failures are errno values; 0 is success.
//
// Lifetime: `calls` and the directory outlive it. Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/system_calls.hpp"

namespace kiln::cache {

class PendingFile {
 public:
  enum class Form : unsigned char {
    anonymous,  ///< O_TMPFILE: leaves nothing behind, whenever its writer is killed
    named,      ///< a dot name in the same directory, where the file system knows no O_TMPFILE
  };
  struct Created;

  /// Writes `first` and then `second` to a new read-only file of `directory`, which `group` gets.
  static Created create(const SystemCalls& calls, int directory, Form form,
                        std::span<const std::byte> first, std::span<const std::byte> second,
                        Durability durability, std::optional<gid_t> group);
  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();

  /// Gives the file the name `leaf`. EEXIST when the name is taken; ENOENT when the directory was
  /// removed; `form_refused` when the other form has to be tried.
  struct Published {
    int error = 0;
    bool form_refused = false;
  };
  Published publish_as(const std::string& leaf);

 private:
  PendingFile(const SystemCalls& calls, int directory, Fd file, std::string temporary) noexcept;
  Published publish_anonymous(const std::string& leaf);
  Published publish_named(const std::string& leaf);

  const SystemCalls* calls_;
  int directory_;
  Fd file_;
  std::string temporary_;  // its dot name; empty when anonymous
};

struct PendingFile::Created {
  std::optional<PendingFile> file{};
  int error = 0;
  bool form_refused = false;
};

}  // namespace kiln::cache
