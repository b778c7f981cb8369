// What the tests of bundles share: a store to pack from, and what keeps a changed file from use.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kiln/cache/bundle.hpp"
#include "kiln/cache/signing.hpp"
#include "tests/cache/store_fixture.hpp"

namespace kiln::cache {

inline SecretKey secret_key_of(unsigned char first) {
  std::array<std::byte, 32> seed{};
  seed[0] = std::byte{first};
  return *SecretKey::from_seed(seed);
}

template <class Integer>
std::string with(std::string bytes, std::size_t offset, Integer value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

class Bundles : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef KILN_EMULATED
    GTEST_SKIP() << "no libsodium for the emulated processor";
#endif
  }

  fs::path file() const {
    return fixture_.directory / "kernels.kiln";
  }
  Signers accepted() const {
    return {.keys = {secret_key_of(1).public_key()}};
  }

  /// Writes `keys` to file(), signed unless `signer` is null, and gives its bytes.
  std::string pack(const std::vector<std::string>& keys, const SecretKey* signer) {
    std::vector<BundleSource> sources;
    for (const auto& key : keys) {
      EXPECT_TRUE(fixture_.store.publish(key, "{}", bytes_of("payload of " + key)));
      sources.push_back({digest_of(key), "sm_90a", "nvrtc 13.0"});
    }
    const auto status = write_bundle(fixture_.store, std::move(sources), signer, file());
    EXPECT_TRUE(status) << status.error().message();
    return test::read_file(file());
  }
  std::string pack(const std::vector<std::string>& keys) {
    const auto signer = secret_key_of(1);
    return pack(keys, &signer);
  }

  /// Why a file of `bytes` cannot be used: at its opening, or at the reading of its entries.
  std::string trouble_with(const std::string& bytes, const Signers& signers) const {
    const auto path = fixture_.directory / "changed.kiln";
    test::write_file(path, bytes);
    const auto bundle = Bundle::open(path, signers);
    if (!bundle) {
      EXPECT_EQ(bundle.error().code(), ErrorCode::io_failed);
      EXPECT_NE(bundle.error().message().find(path.string()), std::string::npos);
      return bundle.error().message();
    }
    for (const auto& entry : bundle->entries()) {
      const auto found = bundle->find(entry.name);
      if (!found) return found.error().message();
      if (!found->entry) return found->damage;
    }
    return {};
  }
  std::string trouble_with(const std::string& bytes) const {
    return trouble_with(bytes, accepted());
  }

  Fixture fixture_;
};

}  // namespace kiln::cache
