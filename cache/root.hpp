// The root directory of a tree: opened anew for each piece of work, so that it may be deleted or
// replaced at any time, and believed or refused each time.
//
// Failures are errno values, or kRefused; 0 is success. Threads: any.
#pragma once

#include <string>

#include "cache/directory.hpp"
#include "cache/file.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// In place of an errno value: the root is not to be trusted.
inline constexpr int kRefused = -1;

class Root {
 public:
  /// `calls` must outlive it.
  Root(std::string path, Trust trust, const SystemCalls& calls)
      : path_(std::move(path)), trust_(std::move(trust)), calls_(&calls) {}

  const std::string& path() const noexcept { return path_; }
  const Trust& trust() const noexcept { return trust_; }
  const SystemCalls& calls() const noexcept { return *calls_; }

  /// Opens the root to read below it. Links on the way to it are followed: the user chose them.
  Opened open() const;

  /// Opens `relative` below the root to write into it (empty: the root itself), and makes what is
  /// missing. ENOENT when somebody deletes the tree at the same time: try again.
  Opened open_for_writing(const std::string& relative, Durability durability) const;

  /// What `error` means here: what is behind it where that tells more.
  std::string explain(int error) const;

 private:
  Opened believed(Opened opened) const;

  std::string path_;
  Trust trust_;
  const SystemCalls* calls_;
};

}  // namespace kiln::cache
