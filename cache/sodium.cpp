#include "cache/sodium.hpp"

#include <dlfcn.h>

#include <string>

#include "cache/sha256_instructions.hpp"

namespace kiln::cache {
namespace {

// The library's two ABIs; in both, these functions are the same.
constexpr const char* kNames[] = {"libsodium.so.23", "libsodium.so.26"};

struct Loaded {
  Sodium functions{};
  std::string trouble{};
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Loaded load() {
  Loaded loaded;
  for (const char* name : kNames) {
    // It stays open: its functions are in use until the process ends.
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (loaded.trouble.empty()) loaded.trouble = ::dlerror();
      continue;
    }
    Sodium& functions = loaded.functions;
    const bool whole = find(library, "sodium_init", functions.init) &&
                       find(library, "randombytes_buf", functions.random_bytes) &&
                       find(library, "crypto_hash_sha256", functions.sha256) &&
                       find(library, "crypto_sign_ed25519_seed_keypair", functions.key_pair) &&
                       find(library, "crypto_sign_ed25519_detached", functions.sign) &&
                       find(library, "crypto_sign_ed25519_verify_detached", functions.verify);
    if (whole && functions.init() >= 0)
      loaded.trouble.clear();
    else
      loaded.trouble = std::string(name) + " lacks a function or cannot start";
    if (const auto faster = sha256_by_instructions()) functions.sha256 = faster;
    return loaded;
  }
  return loaded;
}

}  // namespace

Result<const Sodium*> sodium() {
  static const Loaded loaded = load();
  if (loaded.trouble.empty()) return &loaded.functions;
  return Error(ErrorCode::unsupported,
               "signatures and SHA-256 need libsodium, which cannot be loaded (" + loaded.trouble +
                   "); install it (on Debian: apt-get install libsodium23)");
}

}  // namespace kiln::cache
