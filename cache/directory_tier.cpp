#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cache/bundle_tier.hpp"
#include "cache/layout.hpp"
#include "cache/tier.hpp"
#include "cache/tree.hpp"

namespace kiln::cache {
namespace {

/// The tree of another store, such as a layer of an image.
class DirectoryTier final : public Tier {
 public:
  explicit DirectoryTier(Root root) : tree_(std::move(root), /*stamps=*/false) {}

  const std::string& where() const noexcept override { return tree_.root().path(); }

  TierAnswer find(const Digest& name, std::optional<std::string_view> key_text) const override {
    Examined there = tree_.look_up(entry_place(name), name, key_text);
    TierAnswer answer{.entry = std::move(there.entry), .damage = std::move(there.damage)};
    if (there.error == 0) return answer;
    answer.trouble = "the read-only cache " + where() +
                     " is not used: " + tree_.root().explain(there.error) +
                     "; mend it, or take it out of the list (KILN_CACHE_READONLY)";
    answer.refused = there.error == kRefused;
    return answer;
  }

  std::vector<Digest> names() const override {
    std::vector<Digest> names;
    const auto listed = tree_.list();
    if (!listed) return names;
    names.reserve(listed->size());
    for (const auto& info : *listed) names.push_back(info.name);
    return names;
  }

  std::vector<std::string> records(std::string_view kind) const override {
    std::vector<std::string> texts;
    tree_.for_each_record(kind, [&](const Place&, const Digest&, Examined&& there) {
      if (there.entry) texts.emplace_back(there.entry->key_text());
    });
    return texts;
  }

 private:
  Tree tree_;
};

}  // namespace

std::unique_ptr<Tier> open_tier(const std::filesystem::path& path, const Trust& trust,
                                const SystemCalls& calls) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored))
    return open_bundle_tier(path, trust.signers, calls);
  return std::make_unique<DirectoryTier>(Root(path.string(), trust, calls));
}

}  // namespace kiln::cache
