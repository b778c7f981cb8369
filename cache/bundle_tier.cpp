#include "cache/bundle_tier.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/bundle_with_calls.hpp"
#include "kiln/cache/bundle.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kCure =
    " (KILN_CACHE_SIGNERS lists the keys that are accepted, KILN_CACHE_READONLY the bundles)";

class BundleTier final : public Tier {
 public:
  BundleTier(const std::filesystem::path& path, std::vector<PublicKey> signers,
             const SystemCalls& calls)
      : path_(path.string()),
        bundle_(BundleWithCalls::open(path, {.keys = std::move(signers)}, &untrusted_, calls)) {}

  const std::string& where() const noexcept override { return path_; }

  TierAnswer find(const Digest& name, std::optional<std::string_view> key_text) const override {
    if (!bundle_)
      return {.trouble = bundle_.error().message() + std::string(kCure), .refused = untrusted_};
    auto found = bundle_->find(name, key_text);
    if (!found) return {.trouble = found.error().message() + std::string(kCure)};
    return {.entry = std::move(found->entry), .damage = std::move(found->damage)};
  }

  std::vector<Digest> names() const override {
    std::vector<Digest> names;
    if (!bundle_) return names;
    names.reserve(bundle_->entries().size());
    for (const auto& entry : bundle_->entries()) names.push_back(entry.name);
    return names;
  }

  /// The index holds the toolchains of the entries, and no other records.
  std::vector<std::string> records(std::string_view kind) const override {
    if (!bundle_ || kind != "toolchain") return {};
    std::set<std::string> texts;
    for (const auto& entry : bundle_->entries()) texts.insert(entry.toolchain);
    texts.erase("");
    return {texts.begin(), texts.end()};
  }

 private:
  const std::string path_;
  bool untrusted_ = false;  // written while bundle_ is made, hence before it
  const Result<Bundle> bundle_;
};

}  // namespace

std::unique_ptr<Tier> open_bundle_tier(const std::filesystem::path& path,
                                       std::vector<PublicKey> signers, const SystemCalls& calls) {
  return std::make_unique<BundleTier>(path, std::move(signers), calls);
}

}  // namespace kiln::cache
