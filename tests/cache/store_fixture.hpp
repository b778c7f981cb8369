// What the tests of the store share: one entry whose right content is known, and a store that
// keeps its warnings.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/file.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/store.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

inline constexpr std::string_view kKey = "k=1";
inline const std::string kPayload(10'000, 'p');

/// False on kernels before 5.6 and under QEMU: links below the root are then followed, except at a
/// path's last component.
inline bool kernel_has_openat2() {
  const Fd fd(kRealCalls.openat2(AT_FDCWD, ".", O_RDONLY | O_CLOEXEC, 0));
  return static_cast<bool>(fd) || errno != ENOSYS;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline fs::path path_of(const fs::path& root, std::string_view key) {
  const std::string hex = digest_of(key).hex();
  return root / "v1/e" / hex.substr(0, 2) / hex.substr(2);
}

inline Status publish(Store& store, std::string_view key) {
  return store.publish(key, "{}", bytes_of(kPayload + std::string(key)));
}

inline bool finds(const Store& store, std::string_view key) {
  const Found found = store.find(digest_of(key), key);
  return found.entry && text_of(found.entry->payload()) == kPayload + std::string(key) &&
         found.entry->key_text() == key && found.entry->facts() == "{}";
}

/// A store over a directory, and what it warned of.
struct Fixture {
  TemporaryDirectory directory;
  fs::path root = directory / "cache";
  std::vector<std::string> warnings;
  Store store = reopened();

  Store reopened(bool durable = false) {
    return *Store::open({.directory = root, .durable = durable, .log = sink()});
  }
  Store reopened(Trust trust) {
    return *Store::open({.directory = root, .log = sink(), .trust = std::move(trust)});
  }
  LogSink sink() {
    return [this](LogLevel level, std::string_view text) {
      EXPECT_EQ(level, LogLevel::warning);
      warnings.emplace_back(text);
    };
  }
};

inline constexpr uid_t kNobody = 65534;

/// Runs `work` in a child under another user, in its one group; its result is the exit status.
template <class Work>
int as_user(uid_t user, gid_t group, Work&& work) {
  return test::in_child([&] {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(group, group, group) != 0 ||
        ::setresuid(user, user, user) != 0)
      return 100;
    return work();
  });
}
template <class Work>
int as_nobody(Work&& work) {
  return as_user(kNobody, kNobody, std::forward<Work>(work));
}

/// A failure to store that tells its reader what to do.
inline void expect_useful(const Status& status, const fs::path& root) {
  ASSERT_EQ(status.code(), ErrorCode::io_failed);
  const std::string message = status.error().message();
  EXPECT_NE(message.find(root.string()), std::string::npos) << message;
  EXPECT_NE(message.find("KILN_CACHE_DIR"), std::string::npos) << message;
}

}  // namespace kiln::cache
