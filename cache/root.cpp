#include "cache/root.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "cache/trust.hpp"

namespace kiln::cache {

Opened Root::believed(Opened opened) const {
  if (!opened.fd) return opened;
  struct stat status {};
  if (calls_->fstat(opened.fd.get(), &status) != 0) return {.error = errno};
  if (!distrust(status, trust_).empty()) return {.error = kRefused};
  return opened;
}

Opened Root::open() const {
  return believed(open_at(*calls_, AT_FDCWD, path_.c_str(), O_PATH | O_DIRECTORY));
}

Opened Root::open_for_writing(const std::string& relative, Durability durability) const {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY;
  Opened base = believed(open_at(*calls_, AT_FDCWD, path_.c_str(), kFlags));
  if (base.error == ENOENT) {
    if (const int error = make_with_parents(*calls_, AT_FDCWD, path_, durability, trust_.group);
        error != 0)
      return {.error = error};
    base = believed(open_at(*calls_, AT_FDCWD, path_.c_str(), kFlags));
  }
  if (!base.fd || relative.empty()) return base;

  Opened opened = open_beneath(*calls_, base.fd.get(), relative.c_str(), kFlags);
  if (opened.error != ENOENT) return opened;
  const int error = make_with_parents(*calls_, base.fd.get(), relative, durability, trust_.group);
  if (error != 0) return {.error = error};
  return open_beneath(*calls_, base.fd.get(), relative.c_str(), kFlags);
}

std::string Root::explain(int error) const {
  struct stat status {};
  if (error == kRefused) {
    std::string why;
    if (calls_->fstatat(AT_FDCWD, path_.c_str(), &status, 0) == 0) why = distrust(status, trust_);
    return "the directory " + (why.empty() ? "was not to be trusted" : why);
  }
  // "No such file or directory" puzzles whoever sees the link.
  const bool dangling =
      error == ENOENT &&
      calls_->fstatat(AT_FDCWD, path_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(status.st_mode) && calls_->fstatat(AT_FDCWD, path_.c_str(), &status, 0) != 0 &&
      errno == ENOENT;
  return dangling ? path_ + " is a link to a directory that does not exist" : describe_error(error);
}

}  // namespace kiln::cache
