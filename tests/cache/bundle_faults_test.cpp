// Writing and reading a bundle with every fault at every system call.
#ifndef KILN_EMULATED  // no libsodium for the emulated processor

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "cache/bundle_format.hpp"
#include "cache/bundle_with_calls.hpp"
#include "cache/store_with_calls.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/digest.hpp"
#include "kiln/cache/signing.hpp"
#include "kiln/cache/store.hpp"
#include "tests/cache/faulty_calls.hpp"
#include "tests/cache/store_fixture.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {
namespace {

using test::dot_names_below;
using test::in_child;
using test::write_file;

TEST(BundleFaults, ABundleIsWrittenWholeOrNotAtAll) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  const TemporaryDirectory directory;
  faults = {};
  Store store = *Store::open({.directory = directory / "cache"});
  ASSERT_TRUE(publish(store, kKey).ok());
  const fs::path file = directory / "file.bundle";
  const auto work = [&] {
    write_file(file, "what was there");
    const Status status =
        BundleWithCalls::write(store, {{.name = digest_of(kKey)}}, nullptr, file, calls);
    const bool reached = faults.calls > faults.first;
    EXPECT_TRUE(status.ok() || reached);
    if (status.ok()) {
      const auto bundle = Bundle::open(file, {.keys = {}, .anyone = true});
      EXPECT_TRUE(bundle && bundle->find(digest_of(kKey), kKey)->entry);
    } else {
      EXPECT_EQ(test::read_file(file), "what was there");
      EXPECT_NE(status.error().message().find(file.string()), std::string::npos);
    }
    // Where removing fails as well, a dot name stays.
    EXPECT_TRUE(faults.all_from_there || dot_names_below(directory.path()).empty());
    for (const auto& name : dot_names_below(directory.path())) fs::remove(directory / name);
    return reached;
  };
  for_every_fault({}, work);
  faults = {.short_transfers = true};
  work();
  EXPECT_TRUE(Bundle::open(file, {.keys = {}, .anyone = true}));
}

TEST(BundleFaults, ABundleAnswersRightOrNotAtAll) {
  test::use_memory_for_temporary_files();
  const SystemCalls calls = faulty_calls();
  const TemporaryDirectory directory;
  const fs::path file = directory / "file.bundle";
  faults = {};
  {
    Store store = *Store::open({.directory = directory / "cache"});
    ASSERT_TRUE(publish(store, kKey).ok());
    const SecretKey signer = *SecretKey::from_seed(std::array<std::byte, 32>{});
    ASSERT_TRUE(write_bundle(store, {{.name = digest_of(kKey)}}, &signer, file).ok());
  }
  Trust trust;
  trust.signers = {SecretKey::from_seed(std::array<std::byte, 32>{})->public_key()};
  for_every_fault({.short_transfers = true}, [&] {
    std::size_t warned = 0;
    const auto sink = [&](LogLevel, std::string_view text) {
      warned += text.find(file.string()) != std::string_view::npos ? 1 : 0;
    };
    Store store = *StoreWithCalls::open({.log = sink, .read_only = {file}, .trust = trust}, calls);
    const Found found = store.find(digest_of(kKey), kKey);
    const bool reached = faults.calls > faults.first;
    EXPECT_EQ(found.damage, "");
    if (found.entry) {
      EXPECT_EQ(text_of(found.entry->payload()), kPayload + std::string(kKey));
    } else {
      EXPECT_TRUE(reached);
      EXPECT_EQ(warned, 1u);
    }
    return reached;
  });
}

// A bundle that nobody signed may say that its index is as large as one may be.
TEST(BundleFaults, AnIndexThatMemoryHasNoRoomForIsRefused) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer's own memory is beyond any limit";
#endif
  const TemporaryDirectory directory;
  auto bytes = encode_index(PublicKey{}, {});
  for (std::size_t i = 0; i < 8; ++i)
    bytes[24 + i] = static_cast<std::byte>(kMaxIndexBytes >> (8 * i));
  const auto path = directory / "forged";
  write_file(path, text_of(bytes));
  fs::resize_file(path, kBundleHeadBytes + kMaxIndexBytes + kBundleSealBytes);
  EXPECT_EQ(in_child([&] {
              std::ifstream pages("/proc/self/statm");
              rlim_t size = 0;
              pages >> size;
              const rlim_t most = size * 4096 + kMaxIndexBytes / 2;
              const rlimit limit{.rlim_cur = most, .rlim_max = most};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
              const auto opened = Bundle::open(path, {.keys = {PublicKey{}}});
              if (opened) return 2;
              return opened.error().message().find("memory") != std::string::npos ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace kiln::cache

#endif
