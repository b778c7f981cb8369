#include "cache/tree.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::cache {
namespace {

std::string explain_unreadable(const Root& root, int error) {
  if (error == ENOTDIR) return "it or what it lies in is not a directory; remove what is";
  if (error == ELOOP)
    return "it is reached through a link, and none is followed below the cache directory; put a "
           "directory in its place";
  const std::string another =
      "name another cache directory (option cache directory, or KILN_CACHE_DIR)";
  if (error == EACCES || error == EPERM)
    return describe_error(error) + "; become the user that it belongs to, or " + another;
  if (error == kRefused) return root.explain(error) + ", or " + another;
  return describe_error(error) + "; try again, or " + another;
}

}  // namespace

Examined Tree::look_up(const Place& place, const Digest& name,
                       std::optional<std::string_view> key_text, bool is_use) const {
  const Opened base = root_.open();
  if (!base.fd) return {.error = has_vanished(base.error) ? 0 : base.error};
  const Examination how{
      .calls = root_.calls(), .trust = root_.trust(), .stamps = is_use ? &stamps_ : nullptr};
  return examine(how, base.fd.get(), place.path(), name, key_text);
}

int Tree::list_files(int base, const std::string& parent, const std::string& digits,
                     std::vector<EntryInfo>& found) const {
  const SystemCalls& calls = root_.calls();
  const Listing listing = names_in(calls, base, parent);
  for (const auto& leaf : listing.names) {
    const auto name = Digest::from_hex(digits + leaf);
    if (!name) continue;
    struct stat status {};
    if (calls.fstatat(listing.directory.get(), leaf.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      found.push_back({.name = *name,
                       .file_bytes = static_cast<std::uint64_t>(status.st_size),
                       .used_seconds = status.st_mtim.tv_sec});
    else if (!has_vanished(errno))
      return errno;
  }
  return listing.error;
}

Result<std::vector<EntryInfo>> Tree::list() const {
  std::vector<EntryInfo> entries;
  const Opened base = root_.open();
  if (!base.fd) {
    if (has_vanished(base.error)) return entries;
    return failed_to_read({}, base.error);
  }
  const Listing shards = names_in(root_.calls(), base.fd.get(), kEntries);
  if (shards.error != 0) return failed_to_read(kEntries, shards.error);
  for (const auto& shard : shards.names) {
    if (!is_shard(shard)) continue;
    const std::string directory = std::string(kEntries) + '/' + shard;
    if (const int error = list_files(base.fd.get(), directory, shard, entries); error != 0)
      return failed_to_read(directory, error);
  }
  return entries;
}

Result<std::vector<EntryInfo>> Tree::list_records() const {
  std::vector<EntryInfo> found;
  const Opened base = root_.open();
  if (!base.fd) {
    if (has_vanished(base.error)) return found;
    return failed_to_read({}, base.error);
  }
  const Listing kinds = names_in(root_.calls(), base.fd.get(), kRecords);
  if (kinds.error != 0) return failed_to_read(kRecords, kinds.error);
  for (const auto& kind : kinds.names) {
    if (!is_kind(kind)) continue;
    const auto first = static_cast<std::ptrdiff_t>(found.size());
    const std::string parent = std::string(kRecords) + '/' + kind;
    if (const int error = list_files(base.fd.get(), parent, {}, found); error != 0)
      return failed_to_read(parent, error);
    std::for_each(found.begin() + first, found.end(),
                  [&](EntryInfo& info) { info.record_kind = kind; });
  }
  return found;
}

void Tree::for_each_record(
    std::string_view kind,
    const std::function<void(const Place&, const Digest&, Examined&&)>& see) const {
  const Opened base = root_.open();
  if (!is_kind(kind) || !base.fd) return;
  const std::string directory = std::string(kRecords) + '/' + std::string(kind);
  // Records are an aid: ones that cannot be listed are as good as none.
  for (const auto& leaf : names_in(root_.calls(), base.fd.get(), directory).names) {
    const auto name = Digest::from_hex(leaf);
    if (!name) continue;
    const Place place = record_place(kind, *name);
    see(place, *name, look_up(place, *name, std::nullopt));
  }
}

Error Tree::failed_to_read(const std::string& relative, int error) const {
  return Error(ErrorCode::io_failed, "cannot read the cache " + root_.path() +
                                         (relative.empty() ? "" : '/' + relative) + ": " +
                                         explain_unreadable(root_, error));
}

}  // namespace kiln::cache
