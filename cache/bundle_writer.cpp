#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/bundle_format.hpp"
#include "cache/bundle_seal.hpp"
#include "cache/bundle_with_calls.hpp"
#include "cache/directory.hpp"
#include "cache/entry_format.hpp"
#include "cache/file.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {
namespace {

constexpr mode_t kBundleMode = 0644;

Error failed_to_write(const std::filesystem::path& file, const std::string& why) {
  return Error(ErrorCode::io_failed, "cannot write the bundle " + file.string() + ": " + why);
}

/// The bytes of the file that a store keeps for `entry`.
std::vector<std::byte> bytes_of(const Entry& entry) {
  auto bytes = encode_head(entry.key_text(), entry.facts(), entry.payload());
  bytes.insert(bytes.end(), entry.payload().begin(), entry.payload().end());
  return bytes;
}

/// As Store::read; `went` is set where there is no such entry.
Result<Entry> read_listed(const Store& store, const Digest& name, bool& went) {
  auto entry = store.read(name);
  if (entry) return entry;
  auto now = store.look_at(name);
  if (now && now->entry) return *std::move(now->entry);  // it was made anew
  went = now && now->damage.empty();
  return entry;
}

Result<BundleEntry> describe(const Store& store, BundleSource source, bool& went) {
  if (source.architecture.size() > kMaxLabelBytes || source.toolchain.size() > kMaxLabelBytes)
    return Error(ErrorCode::invalid_argument,
                 "the architecture or the toolchain of entry " + source.name.hex() + " is over " +
                     std::to_string(kMaxLabelBytes) + " bytes; shorten it");
  KILN_TRY(const Entry entry, read_listed(store, source.name, went));
  const auto bytes = bytes_of(entry);
  BundleEntry described{.name = source.name,
                        .entry_bytes = bytes.size(),
                        .payload_bytes = entry.payload().size(),
                        .architecture = std::move(source.architecture),
                        .toolchain = std::move(source.toolchain)};
  KILN_TRY(described.key_sha256, sha256_of(std::as_bytes(std::span(entry.key_text()))));
  KILN_TRY(described.entry_sha256, sha256_of(bytes));
  return described;
}

/// A file beside the bundle that takes its place once it is whole. One without a name until then
/// goes with a process that is killed, whatever it holds; not every file system has such.
class Replacement {
 public:
  Replacement(const std::filesystem::path& file, std::uint64_t file_bytes, bool named,
              const SystemCalls& calls)
      : calls_(calls), file_(file), temporary_(file.parent_path() / dot_name("bundle")) {
    const auto folder = temporary_.has_parent_path() ? temporary_.parent_path() : ".";
    opened_ = named ? open_at(calls, AT_FDCWD, temporary_.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, kBundleMode)
                    : open_at(calls, AT_FDCWD, folder.c_str(), O_WRONLY | O_TMPFILE, kBundleMode);
    error_ = opened_.error;
    named_ = named && error_ == 0;
    needs_name_ = !named && error_ != 0;
    if (error_ == 0 && exceeds_file_size_limit(file_bytes)) error_ = EFBIG;
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement() {
    if (named_) calls_.unlinkat(AT_FDCWD, temporary_.c_str(), 0);
  }

  void write(std::span<const std::byte> bytes) {
    if (error_ == 0) error_ = write_whole(calls_, opened_.fd.get(), bytes, {});
  }
  Status finish() {
    if (error_ == 0 && calls_.fsync(opened_.fd.get()) != 0) error_ = errno;
    if (error_ == 0 && !named_) give_name();
    if (error_ == 0 &&
        calls_.renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, file_.c_str(), 0) != 0)
      error_ = errno;
    if (error_ != 0) return failed_to_write(file_, describe_error(error_));
    named_ = false;
    return {};
  }
  bool failed() const noexcept { return error_ != 0; }
  /// There is none without a name here.
  bool needs_name() const noexcept { return needs_name_; }

 private:
  void give_name() {
    const std::string self = "/proc/self/fd/" + std::to_string(opened_.fd.get());
    named_ =
        calls_.linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) == 0;
    if (named_) return;
    error_ = errno;
    needs_name_ = true;
  }

  const SystemCalls& calls_;
  const std::filesystem::path& file_;
  std::filesystem::path temporary_;
  Opened opened_;
  int error_ = 0;
  bool named_ = false;
  bool needs_name_ = false;
};

}  // namespace

Status write_bundle(const Store& store, std::vector<BundleSource> sources, const SecretKey* signer,
                    const std::filesystem::path& file, bool* went) {
  return BundleWithCalls::write(store, std::move(sources), signer, file, kRealCalls, went);
}

Status BundleWithCalls::write(const Store& store, std::vector<BundleSource> sources,
                              const SecretKey* signer, const std::filesystem::path& file,
                              const SystemCalls& calls, bool* went) {
  bool ignored = false;
  bool& gone = went != nullptr ? *went : ignored;
  gone = false;
  // Another file is replaced. A device, a pipe or a link is somebody's, and more than its content.
  struct stat there {};
  if (calls.fstatat(AT_FDCWD, file.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
      !S_ISREG(there.st_mode))
    return failed_to_write(file, "what is there is not a regular file; name another place");
  std::sort(sources.begin(), sources.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  sources.erase(std::unique(sources.begin(), sources.end(),
                            [](const auto& a, const auto& b) { return a.name == b.name; }),
                sources.end());
  // The index comes first in the file and needs every entry, so each is read twice.
  std::vector<BundleEntry> entries;
  for (auto& source : sources) {
    auto described = describe(store, std::move(source), gone);
    if (!described) return described.error();
    entries.push_back(*std::move(described));
  }
  const auto message =
      encode_index(signer != nullptr ? std::optional(signer->public_key()) : std::nullopt, entries);
  if (message.size() - kBundleHeadBytes > kMaxIndexBytes)
    return Error(ErrorCode::invalid_argument,
                 std::to_string(entries.size()) + " entries have an index of " +
                     std::to_string(message.size() - kBundleHeadBytes) + " bytes, over the limit " +
                     "of " + std::to_string(kMaxIndexBytes) + "; make several bundles");
  const auto seal = seal_of(message, signer);
  if (!seal) return seal.error();

  std::uint64_t file_bytes = message.size() + seal->size();
  for (const auto& entry : entries) file_bytes += entry.entry_bytes;
  const auto write_as = [&](Replacement& replacement) -> Status {
    replacement.write(message);
    replacement.write(*seal);
    for (const auto& entry : entries) {
      if (replacement.failed()) break;
      const auto again = read_listed(store, entry.name, gone);
      if (!again) return again.error();
      const auto bytes = bytes_of(*again);
      const auto sha256 = sha256_of(bytes);
      gone = sha256 && *sha256 != entry.entry_sha256;
      if (!sha256 || gone)
        return failed_to_write(file, "entry " + entry.name.hex() + " changed while it was read");
      replacement.write(bytes);
    }
    return replacement.finish();
  };
  for (bool named = false;; named = true) {
    Replacement replacement(file, file_bytes, named, calls);
    auto status = write_as(replacement);
    if (!replacement.needs_name()) return status;
  }
}

}  // namespace kiln::cache
