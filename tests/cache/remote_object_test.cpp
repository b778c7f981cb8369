#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cache/bundle_format.hpp"
#include "cache/entry_format.hpp"
#include "cache/remote/object.hpp"
#include "remote_fixture.hpp"

namespace kiln::cache {
namespace {

std::vector<std::byte> object_of(int number, const SecretKey* signer, std::size_t size = 6'000) {
  return *encode_object(key_text_of(number), "{}", as_bytes_of(payload_of_key(number, size)),
                        {.architecture = "sm_90a", .toolchain = "nvrtc"}, signer);
}

struct Asked {
  std::string text;
  Signers accepted;
  std::uint64_t most = std::uint64_t{64} << 20;

  DecodedObject decode(std::span<const std::byte> bytes) const {
    return decode_object(bytes, {.name = digest_of(text),
                                 .key_sha256 = *sha256_of(as_bytes_of(text)),
                                 .key_text = text,
                                 .accepted = accepted,
                                 .most_bytes = most});
  }
};

Asked asked_for(int number) {
  return {.text = key_text_of(number), .accepted = {.keys = {key_of_builder(1)->public_key()}}};
}

std::size_t entry_offset(std::span<const std::byte> object) {
  BundleHead head;
  EXPECT_EQ(decode_head_alone(object, head), "");
  return kBundleHeadBytes + static_cast<std::size_t>(head.index_bytes) + kBundleSealBytes;
}

TEST(RemoteObject, HoldsItsEntryCompressed) {
  const auto object = object_of(7, key_of_builder(1).get());
  EXPECT_LT(object.size(), 4'500u);
  const auto decoded = asked_for(7).decode(object);
  ASSERT_TRUE(decoded.entry) << decoded.why;
  EXPECT_TRUE(is_right(*decoded.entry, 7));
}

TEST(RemoteObject, IsABundleOfOneEntryOnceItsEntryIsDecompressed) {
  const auto object = object_of(7, key_of_builder(1).get());
  const std::size_t at = entry_offset(object);
  std::vector<std::byte> entry(20'000);
  entry.resize(ZSTD_decompress(entry.data(), entry.size(), object.data() + at, object.size() - at));
  std::vector<std::byte> bundle(object.begin(), object.begin() + static_cast<std::ptrdiff_t>(at));
  bundle.insert(bundle.end(), entry.begin(), entry.end());
  const test::TemporaryDirectory directory;
  test::write_file(directory / "one",
                   {reinterpret_cast<const char*>(bundle.data()), bundle.size()});
  const auto opened = Bundle::open(directory / "one", {.keys = {key_of_builder(1)->public_key()}});
  ASSERT_TRUE(opened) << opened.error().message();
  ASSERT_EQ(opened->entries().size(), 1u);
  EXPECT_EQ(opened->entries()[0].architecture, "sm_90a");
  EXPECT_TRUE(opened->find(digest_of(key_text_of(7)))->entry);
  // And the other way round: such a bundle is an object.
  EXPECT_TRUE(asked_for(7).decode(bundle).entry);
}

TEST(RemoteObject, IsRefusedByWhatIsWrongWithIt) {
  const auto ours = key_of_builder(1);
  const auto theirs = key_of_builder(2);
  const auto good = object_of(7, ours.get());
  const std::size_t at = entry_offset(good);
  const auto spliced = [&](const std::vector<std::byte>& head, std::vector<std::byte> entry) {
    auto object = std::vector(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(at));
    object.insert(object.end(), entry.begin(), entry.end());
    return object;
  };
  const auto compressed = [](std::size_t size) {
    const std::vector<std::byte> zeros(size);
    std::vector<std::byte> frame(ZSTD_compressBound(size));
    frame.resize(ZSTD_compress(frame.data(), frame.size(), zeros.data(), size, 1));
    return frame;
  };
  // The frame says how long it becomes, and lies.
  const auto lying = [&](std::uint32_t says) {
    constexpr std::uint32_t kReal = 40 << 20;
    auto frame = compressed(kReal);
    const auto* const bytes = reinterpret_cast<const std::byte*>(&kReal);
    const auto size = std::search(frame.begin(), frame.begin() + 18, bytes, bytes + sizeof kReal);
    EXPECT_NE(size, frame.begin() + 18);
    std::memcpy(&*size, &says, sizeof says);
    return frame;
  };
  const auto entry_bytes = check_front(good, {.name = digest_of(key_text_of(7)),
                                              .key_sha256 = *sha256_of(as_bytes_of(key_text_of(7))),
                                              .key_text = key_text_of(7),
                                              .accepted = asked_for(7).accepted,
                                              .most_bytes = 1 << 20})
                               .front->record.entry_bytes;
  auto followed = good;
  const auto more = compressed(100);
  followed.insert(followed.end(), more.begin(), more.end());
  auto grafted = object_of(7, ours.get());
  const auto other = object_of(8, ours.get());
  std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(at - kBundleSealBytes), kBundleSealBytes,
              grafted.begin() + static_cast<std::ptrdiff_t>(at - kBundleSealBytes));
  const std::vector<std::pair<RemoteFailure, std::vector<std::byte>>> cases = {
      {RemoteFailure::wrong_object, object_of(8, ours.get())},
      {RemoteFailure::bad_signature, grafted},
      {RemoteFailure::untrusted_signer, object_of(7, theirs.get())},
      {RemoteFailure::unsigned_object, object_of(7, nullptr)},
      {RemoteFailure::expands_too_far, spliced(good, compressed(std::size_t{40} << 20))},
      {RemoteFailure::expands_too_far, spliced(good, lying(UINT32_MAX))},
      {RemoteFailure::expands_too_far,
       spliced(good, lying(static_cast<std::uint32_t>(entry_bytes)))},
      {RemoteFailure::expands_too_far, spliced(good, lying(100))},
      {RemoteFailure::expands_too_far, followed},
      {RemoteFailure::too_large, spliced(good, std::vector<std::byte>(20'000))},
      {RemoteFailure::damaged_object, spliced(good, compressed(100))},
      {RemoteFailure::damaged_object, {}},
      {RemoteFailure::damaged_object, std::vector<std::byte>(500)},
  };
  for (const auto& [failure, object] : cases) {
    const auto decoded = asked_for(7).decode(object);
    EXPECT_FALSE(decoded.entry);
    EXPECT_EQ(to_string(decoded.failure), to_string(failure)) << decoded.why;
  }
  auto small = asked_for(7);
  small.most = 6'000;
  EXPECT_EQ(small.decode(good).failure, RemoteFailure::too_large);
}

// Some bits of a frame mean nothing; the entry that comes out of it is checked then.
TEST(RemoteObject, IsNeverTakenForAnotherWhenAByteIsChangedOrMissing) {
  const auto signer = key_of_builder(1);
  const auto good = object_of(7, signer.get(), 700);
  const auto asked = asked_for(7);
  ASSERT_TRUE(asked.decode(good).entry);
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto changed = good;
    changed[i] ^= std::byte{1};
    const auto decoded = asked.decode(changed);
    const bool is_checked_before = i < entry_offset(good);
    EXPECT_FALSE(is_checked_before && decoded.entry) << i;
    EXPECT_TRUE(!decoded.entry || is_right(*decoded.entry, 7, 700)) << i;
    EXPECT_FALSE(asked.decode(std::span(good).first(i)).entry) << i;
  }
}

TEST(RemoteObject, TakesAnyoneWhereThatIsAskedFor) {
  auto asked = asked_for(7);
  asked.accepted = {.anyone = true};
  EXPECT_TRUE(asked.decode(object_of(7, nullptr)).entry);
  EXPECT_TRUE(asked.decode(object_of(7, key_of_builder(2).get())).entry);
  auto unsigned_one = object_of(7, nullptr);
  unsigned_one[100] ^= std::byte{1};
  EXPECT_FALSE(asked.decode(unsigned_one).entry);
}

}  // namespace
}  // namespace kiln::cache
