#include "cache/trust.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace kiln::cache {
namespace {

std::string octal(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode & 07777));
  return text.data();
}

}  // namespace

std::string distrust(const struct stat& status, const Trust& trust) {
  const bool shared = trust.group && status.st_gid == *trust.group;
  const uid_t us = ::geteuid();
  const auto& users = trust.users;
  // Only a member can give a file to the group, or make one in a directory of the group.
  const bool owner = status.st_uid == us || status.st_uid == 0 || shared ||
                     std::find(users.begin(), users.end(), status.st_uid) != users.end();
  if (!owner)
    return "belongs to user " + std::to_string(status.st_uid) + ", who is neither user " +
           std::to_string(us) +
           ", that you are, nor root nor trusted; take what is your own, or trust that user "
           "(KILN_CACHE_USERS)";
  // With an access control list the bits of the group hold all that any of its lines grants.
  if ((status.st_mode & S_IWOTH) != 0)
    return "may be written by everybody (mode " + octal(status.st_mode) + "); chmod go-w it";
  if ((status.st_mode & S_IWGRP) != 0 && !shared)
    return "may be written by group " + std::to_string(status.st_gid) + " (mode " +
           octal(status.st_mode) +
           "); chmod g-w it, or declare that the group shares it (KILN_CACHE_GROUP)";
  // The store sets neither, so somebody else was at it; and on kernels before 5.15 the second can
  // mean that a lock of another process keeps a reader waiting.
  if (S_ISREG(status.st_mode) && (status.st_mode & (S_ISUID | S_ISGID)) != 0)
    return "is marked to run as another user or group (mode " + octal(status.st_mode) +
           "); chmod ug-s it";
  return {};
}

}  // namespace kiln::cache
