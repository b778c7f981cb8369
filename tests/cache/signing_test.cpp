// The files of keys.
#include "kiln/cache/signing.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/cache/bundle_fixture.hpp"

namespace kiln::cache {
namespace {

using test::read_file;
using test::write_file;

class SigningKeys : public Bundles {};

TEST_F(SigningKeys, AreForTheirOwnersEyesAndAreNeverOverwritten) {
  const auto path = fixture_.directory / "kiln.key";
  const mode_t before = ::umask(0);
  const auto key = SecretKey::generate();
  ASSERT_TRUE(key);
  EXPECT_TRUE(key->write(path));
  EXPECT_TRUE(key->public_key().write(fixture_.directory / "kiln.key.pub"));
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);

  const auto again = SecretKey::read(path);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->public_key(), key->public_key());
  EXPECT_EQ(*PublicKey::read(fixture_.directory / "kiln.key.pub"), key->public_key());
  EXPECT_NE(SecretKey::generate()->public_key(), key->public_key());

  const auto bytes = read_file(path);
  const auto other = SecretKey::generate();
  EXPECT_NE(other->write(path).error().message().find("never overwritten"), std::string::npos);
  EXPECT_EQ(read_file(path), bytes);
  fs::create_symlink(fixture_.directory / "elsewhere", fixture_.directory / "link");
  EXPECT_FALSE(other->write(fixture_.directory / "link"));
  EXPECT_FALSE(fs::exists(fixture_.directory / "elsewhere"));

  for (const auto mode : {fs::perms::group_read, fs::perms::others_read, fs::perms::group_write}) {
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write | mode);
    const auto open = SecretKey::read(path);
    ASSERT_FALSE(open);
    EXPECT_NE(open.error().message().find("chmod 600"), std::string::npos);
  }
}

TEST_F(SigningKeys, InFilesThatHoldSomethingElseAreRefusedAndNotShown) {
  const auto path = fixture_.directory / "key";
  const auto secret = secret_key_of(7);
  ASSERT_TRUE(secret.write(path));
  const auto text = read_file(path);
  const auto as_public = PublicKey::read(path);
  ASSERT_FALSE(as_public);
  EXPECT_EQ(as_public.error().message().find(text.substr(16, 16)), std::string::npos);
  EXPECT_FALSE(PublicKey::from_text(text));
  EXPECT_EQ(PublicKey::from_text(text).error().message().find(text.substr(16, 16)),
            std::string::npos);
  for (const std::string& wrong : {std::string(), text + "x", text.substr(0, text.size() - 2),
                                   std::string(300, 'a'), secret.public_key().text()}) {
    write_file(path, wrong);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(SecretKey::read(path).status().code(), ErrorCode::invalid_argument) << wrong;
  }
  auto upper = secret.public_key().text();
  upper.back() = 'G';
  EXPECT_FALSE(PublicKey::from_text(upper));
  EXPECT_EQ(*PublicKey::from_text(secret.public_key().text()), secret.public_key());
}

}  // namespace
}  // namespace kiln::cache
