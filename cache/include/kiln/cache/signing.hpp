// SHA-256 digests, and the ed25519 keys that bundles are signed and checked with. Unlike Digest,
// these may decide whom to trust.
//
// libsodium does the work. It is opened at its first use, so that a program which signs and checks
// nothing needs none; where it is missing, what needs it says unsupported and names the cure.
// Threads: values and pure functions.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "kiln/cache/api.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

struct Sha256 {
  std::array<std::byte, 32> bytes{};

  auto operator<=>(const Sha256&) const = default;
  /// 64 lower-case hexadecimal digits, as sha256sum writes them.
  KILN_API std::string hex() const;
};

/// Errors  unsupported without libsodium.
KILN_API Result<Sha256> sha256_of(std::span<const std::byte> bytes);

/// Who signed, or who may have.
struct PublicKey {
  std::array<std::byte, 32> bytes{};

  auto operator<=>(const PublicKey&) const = default;
  /// "ed25519:" and 64 lower-case hexadecimal digits.
  KILN_API std::string text() const;
  /// The inverse of text(). Errors  invalid_argument.
  KILN_API static Result<PublicKey> from_text(std::string_view text);
  /// Reads a file that holds text() and at most a line end.
  /// Errors  io_failed; invalid_argument when it holds something else.
  KILN_API static Result<PublicKey> read(const std::filesystem::path& file);
  /// Makes `file`, which must not be there yet. Errors  io_failed.
  KILN_API Status write(const std::filesystem::path& file) const;
};

/// What signs. Its bytes are wiped when it is gone.
class KILN_API SecretKey {
 public:
  /// A new one, from the kernel's random numbers. Errors  unsupported without libsodium.
  static Result<SecretKey> generate();
  /// The one that the 32 bytes of `seed` stand for. Errors  as generate().
  static Result<SecretKey> from_seed(std::span<const std::byte, 32> seed);
  /// Reads what write() wrote.
  /// Errors  as generate(); io_failed, also for a file that others than its owner may open;
  ///         invalid_argument when it holds something else.
  static Result<SecretKey> read(const std::filesystem::path& file);
  SecretKey(SecretKey&& other) noexcept;
  SecretKey& operator=(SecretKey&&) = delete;
  ~SecretKey();

  PublicKey public_key() const noexcept;
  /// Makes `file`, which must not be there yet, for its owner's eyes only (mode 0600).
  /// Errors  io_failed; nothing is left behind then.
  Status write(const std::filesystem::path& file) const;
  std::array<std::byte, 64> sign(std::span<const std::byte> message) const noexcept;

 private:
  SecretKey() noexcept = default;
  std::array<std::byte, 64> bytes_{};  // the seed, then the public key
};

}  // namespace kiln::cache
