#include "kiln/cache/bundle.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/bundle_format.hpp"
#include "cache/bundle_seal.hpp"
#include "cache/bundle_with_calls.hpp"
#include "cache/entry_format.hpp"
#include "cache/file.hpp"
#include "cache/sodium.hpp"
#include "cache/system_calls.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/signing.hpp"

namespace kiln::cache {
namespace {

Error refused(const std::filesystem::path& file, const std::string& why) {
  return Error(ErrorCode::io_failed, "cannot use the bundle " + file.string() + ": " + why);
}

/// Fills `to` from `offset` on. Errno; ENODATA when the file ends first.
int read_at(const SystemCalls& calls, int fd, std::span<std::byte> to, std::uint64_t offset) {
  while (!to.empty()) {
    const ssize_t count = calls.pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return ENODATA;
    to = to.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return 0;
}

std::string describe_read(int error) {
  return error == ENODATA ? "it was cut short while it was read"
                          : "it cannot be read: " + describe_error(error);
}

}  // namespace

struct Bundle::State {
  std::filesystem::path file;
  Fd fd;
  std::uint64_t file_bytes = 0;
  std::optional<PublicKey> signer;
  std::vector<BundleEntry> entries;
  std::vector<std::uint64_t> offsets;  // in the file, one for each entry
  const Sodium* library = nullptr;
  const SystemCalls* calls = nullptr;
};

Bundle::Bundle(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Bundle::Bundle(Bundle&&) noexcept = default;
Bundle& Bundle::operator=(Bundle&&) noexcept = default;
Bundle::~Bundle() = default;

const std::filesystem::path& Bundle::file() const noexcept {
  return state_->file;
}
std::uint64_t Bundle::file_bytes() const noexcept {
  return state_->file_bytes;
}
const std::optional<PublicKey>& Bundle::signer() const noexcept {
  return state_->signer;
}
const std::vector<BundleEntry>& Bundle::entries() const noexcept {
  return state_->entries;
}

Result<Bundle> Bundle::open(const std::filesystem::path& file, const Signers& accepted,
                            bool* untrusted) {
  return BundleWithCalls::open(file, accepted, untrusted, kRealCalls);
}

Result<Bundle> BundleWithCalls::open(const std::filesystem::path& file, const Signers& accepted,
                                     bool* untrusted, const SystemCalls& calls) {
  const auto not_trusted = [&](const std::string& why) {
    if (untrusted != nullptr) *untrusted = true;
    return refused(file, why);
  };
  if (untrusted != nullptr) *untrusted = false;
  KILN_TRY(const Sodium* const library, sodium());
  // Without O_NONBLOCK a pipe in its place would keep us waiting.
  Opened opened = open_at(calls, AT_FDCWD, file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!opened.fd) return refused(file, describe_error(opened.error));
  const int fd = opened.fd.get();
  struct stat status {};
  if (calls.fstat(fd, &status) != 0) return refused(file, describe_error(errno));
  if (!S_ISREG(status.st_mode)) return refused(file, "it is not a file");
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);

  std::array<std::byte, kBundleHeadBytes> start{};
  const std::size_t there =
      static_cast<std::size_t>(std::min<std::uint64_t>(file_bytes, start.size()));
  if (const int error = read_at(calls, fd, std::span(start).first(there), 0); error != 0)
    return refused(file, describe_read(error));
  BundleHead head;
  if (auto why = decode_head(std::span(start).first(there), file_bytes, head); !why.empty())
    return refused(file, why);
  if (auto why = refusal_of(head.signer, accepted); !why.empty()) return not_trusted(why);

  // The file is as long as its head says, so this is no more than what is there.
  const std::size_t message_size = kBundleHeadBytes + static_cast<std::size_t>(head.index_bytes);
  const std::size_t before_entries = message_size + kBundleSealBytes;
  const std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[before_entries]);
  if (!memory) return refused(file, describe_read(ENOMEM));
  const std::span bytes(memory.get(), before_entries);
  std::copy(start.begin(), start.end(), bytes.begin());
  if (const int error = read_at(calls, fd, bytes.subspan(kBundleHeadBytes), kBundleHeadBytes);
      error != 0)
    return refused(file, describe_read(error));
  const auto message = bytes.first(message_size);
  const auto seal = bytes.subspan(message_size);
  if (auto why = seal_damage(*library, head.signer, message, seal); !why.empty())
    return not_trusted(why);

  auto state = std::make_unique<Bundle::State>();
  if (auto why = decode_index(head, message.subspan(kBundleHeadBytes), state->entries);
      !why.empty())
    return refused(file, why);
  std::uint64_t offset = before_entries;
  for (const auto& entry : state->entries) {
    state->offsets.push_back(offset);
    offset += entry.entry_bytes;
  }
  state->file = file;
  state->fd = std::move(opened.fd);
  state->file_bytes = file_bytes;
  state->signer = head.signer;
  state->library = library;
  state->calls = &calls;
  return Bundle(std::move(state));
}

Result<Found> Bundle::find(const Digest& name, std::optional<std::string_view> key_text) const {
  const auto& entries = state_->entries;
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const BundleEntry& entry, const Digest& wanted) { return entry.name < wanted; });
  if (found == entries.end() || found->name != name) return Found{};
  const auto damaged = [](std::string why) { return Found{.entry = {}, .damage = std::move(why)}; };

  const auto size = static_cast<std::size_t>(found->entry_bytes);
  std::shared_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (!bytes) return refused(state_->file, describe_read(ENOMEM));
  const auto offset = state_->offsets[static_cast<std::size_t>(found - entries.begin())];
  const int error = read_at(*state_->calls, state_->fd.get(), {bytes.get(), size}, offset);
  if (error == ENODATA) return damaged("the bundle was cut short after it was opened");
  if (error != 0) return refused(state_->file, describe_read(error));

  const auto sha256 = [&](const void* from, std::size_t count) {
    Sha256 digest;
    state_->library->sha256(reinterpret_cast<unsigned char*>(digest.bytes.data()),
                            static_cast<const unsigned char*>(from), count);
    return digest;
  };
  if (sha256(bytes.get(), size) != found->entry_sha256)
    return damaged("SHA-256 of the entry differs from that of the index");
  Found decoded = EntryDecoder::decode(std::move(bytes), size, name, key_text);
  if (!decoded.entry) return decoded;
  const auto key = decoded.entry->key_text();
  if (sha256(key.data(), key.size()) != found->key_sha256)
    return damaged("SHA-256 of the key text differs from that of the index");
  if (decoded.entry->payload().size() != found->payload_bytes)
    return damaged("the size of the payload differs from that of the index");
  return decoded;
}

}  // namespace kiln::cache
