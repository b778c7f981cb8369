#include "kiln/cache/signing.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cache/file.hpp"
#include "cache/sodium.hpp"
#include "cache/system_calls.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kPublicStart = "ed25519:";
constexpr std::string_view kSecretStart = "ed25519-secret:";
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kSeedBytes = 32;
constexpr mode_t kSecretMode = 0600;
constexpr mode_t kPublicMode = 0644;
// Longer than any key file, so that one byte more than a key shows.
constexpr std::size_t kMostFileBytes = 256;

static_assert(crypto_sign_ed25519_SEEDBYTES == kSeedBytes);
static_assert(crypto_sign_ed25519_SECRETKEYBYTES == 64 && crypto_sign_ed25519_BYTES == 64);
static_assert(crypto_sign_ed25519_PUBLICKEYBYTES == sizeof(PublicKey));
static_assert(crypto_hash_sha256_BYTES == sizeof(Sha256));

const unsigned char* raw(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes);
}

void wipe(void* bytes, std::size_t size) noexcept {
  ::explicit_bzero(bytes, size);
}

/// A text that holds a secret.
struct WipedText {
  std::string text{};
  ~WipedText() { wipe(text.data(), text.size()); }
};

void append_hex(std::string& text, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    text += kHexDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kHexDigits[std::to_integer<unsigned>(byte) & 0xF];
  }
}

bool from_hex(std::string_view text, std::span<std::byte> bytes) noexcept {
  if (text.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = kHexDigits.find(text[i]);
    if (digit == std::string_view::npos) return false;
    std::byte& byte = bytes[i / 2];
    byte = static_cast<std::byte>(digit) | (i % 2 == 0 ? std::byte{0} : byte << 4);
  }
  return true;
}

bool parse_key(std::string_view text, std::string_view start, std::span<std::byte> bytes) noexcept {
  return text.starts_with(start) && from_hex(text.substr(start.size()), bytes);
}

Error io_error(const std::string& what, const std::filesystem::path& file, const std::string& why) {
  return Error(ErrorCode::io_failed, "cannot " + what + ' ' + file.string() + ": " + why);
}

/// The text in `file`, without its line end. `secret`: nobody but its owner may have access.
Status read_text(const std::filesystem::path& file, bool secret, std::string& text) {
  // Without O_NONBLOCK a pipe in its place would keep us waiting.
  const Opened opened =
      open_at(kRealCalls, AT_FDCWD, file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!opened.fd) return io_error("read", file, describe_error(opened.error));
  struct stat status {};
  if (::fstat(opened.fd.get(), &status) != 0) return io_error("read", file, describe_error(errno));
  if (!S_ISREG(status.st_mode)) return io_error("read", file, "it is not a file");
  if (secret && (status.st_mode & 077) != 0)
    return io_error("use the secret key", file,
                    "others than its owner have access to it; run chmod 600 on it, and make a new "
                    "key if somebody may have read it");
  text.resize(kMostFileBytes);
  std::size_t got = 0;
  const int error =
      read_whole(kRealCalls, opened.fd.get(), std::as_writable_bytes(std::span(text)), got);
  if (error != 0) return io_error("read", file, describe_error(error));
  text.resize(got);
  if (text.ends_with('\n')) text.pop_back();
  return {};
}

Status write_new(const std::filesystem::path& file, mode_t mode, std::string_view text) {
  Opened opened =
      open_at(kRealCalls, AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  if (opened.error == EEXIST)
    return io_error("write", file, "it exists, and a key is never overwritten; name another file");
  if (!opened.fd) return io_error("write", file, describe_error(opened.error));
  int error = write_whole(kRealCalls, opened.fd.get(), std::as_bytes(std::span(text)), {});
  if (error == 0 && ::fsync(opened.fd.get()) != 0) error = errno;
  // Network file systems report a full disk as late as this.
  if (::close(opened.fd.release()) != 0 && error == 0 && errno != EINTR) error = errno;
  if (error == 0) return {};
  ::unlink(file.c_str());
  return io_error("write", file, describe_error(error));
}

}  // namespace

std::string Sha256::hex() const {
  std::string text;
  append_hex(text, bytes);
  return text;
}

Result<Sha256> sha256_of(std::span<const std::byte> bytes) {
  KILN_TRY(const Sodium* const library, sodium());
  Sha256 digest;
  library->sha256(raw(digest.bytes.data()), raw(bytes.data()), bytes.size());
  return digest;
}

std::string PublicKey::text() const {
  std::string text(kPublicStart);
  append_hex(text, bytes);
  return text;
}

Result<PublicKey> PublicKey::from_text(std::string_view text) {
  PublicKey key;
  if (parse_key(text, kPublicStart, key.bytes)) return key;
  // It is not shown: somebody may have put the secret key in its place.
  return Error(
      ErrorCode::invalid_argument,
      "a public key is ed25519: and 64 lower-case hexadecimal digits, the text of the .pub "
      "file that kiln keygen writes, and this is none");
}

Result<PublicKey> PublicKey::read(const std::filesystem::path& file) {
  std::string text;
  if (auto status = read_text(file, /*secret=*/false, text); !status) return status.error();
  PublicKey key;
  if (parse_key(text, kPublicStart, key.bytes)) return key;
  // What it holds is not shown: it may be the secret key.
  return Error(ErrorCode::invalid_argument,
               "the file " + file.string() +
                   " holds no public key: that is ed25519: and 64 "
                   "lower-case hexadecimal digits, as kiln keygen writes to its .pub file");
}

Status PublicKey::write(const std::filesystem::path& file) const {
  return write_new(file, kPublicMode, text() + '\n');
}

SecretKey::SecretKey(SecretKey&& other) noexcept : bytes_(other.bytes_) {
  wipe(other.bytes_.data(), other.bytes_.size());
}

SecretKey::~SecretKey() {
  wipe(bytes_.data(), bytes_.size());
}

Result<SecretKey> SecretKey::from_seed(std::span<const std::byte, 32> seed) {
  KILN_TRY(const Sodium* const library, sodium());
  SecretKey key;
  PublicKey ignored;
  library->key_pair(raw(ignored.bytes.data()), raw(key.bytes_.data()), raw(seed.data()));
  return key;
}

Result<SecretKey> SecretKey::generate() {
  KILN_TRY(const Sodium* const library, sodium());
  std::array<std::byte, kSeedBytes> seed;
  library->random_bytes(seed.data(), seed.size());
  auto key = from_seed(seed);
  wipe(seed.data(), seed.size());
  return key;
}

Result<SecretKey> SecretKey::read(const std::filesystem::path& file) {
  WipedText secret;
  if (auto status = read_text(file, /*secret=*/true, secret.text); !status) return status.error();
  std::array<std::byte, kSeedBytes> seed;
  const bool parsed = parse_key(secret.text, kSecretStart, seed);
  auto key = from_seed(seed);
  wipe(seed.data(), seed.size());
  if (parsed) return key;
  return Error(ErrorCode::invalid_argument,
               "the file " + file.string() + " holds no secret key; make one with kiln keygen");
}

PublicKey SecretKey::public_key() const noexcept {
  PublicKey key;
  std::copy(bytes_.begin() + kSeedBytes, bytes_.end(), key.bytes.begin());
  return key;
}

Status SecretKey::write(const std::filesystem::path& file) const {
  WipedText secret;
  // At once, so that growing leaves no copies behind.
  secret.text.reserve(kMostFileBytes);
  secret.text += kSecretStart;
  append_hex(secret.text, std::span(bytes_).first(kSeedBytes));
  secret.text += '\n';
  return write_new(file, kSecretMode, secret.text);
}

std::array<std::byte, 64> SecretKey::sign(std::span<const std::byte> message) const noexcept {
  std::array<std::byte, 64> signature{};
  // There is a key, so the library is loaded.
  if (const auto library = sodium())
    (*library)->sign(raw(signature.data()), nullptr, raw(message.data()), message.size(),
                     raw(bytes_.data()));
  return signature;
}

}  // namespace kiln::cache
