#include "kiln/explain.hpp"

#include <utility>

#include "runtime/compile_service.hpp"
#include "runtime/runtime_state.hpp"
#include "runtime/stored_artifact.hpp"

namespace kiln {
namespace {

// How far an entry is from a request. Another kernel is no answer while there is an entry of the
// same one, and of two that are equally near the one for the same architecture tells more.
std::size_t distance_of(const std::vector<KeyDifference>& differences) {
  constexpr std::size_t kOtherKernel = std::size_t{1} << 32;
  std::size_t distance = 0;
  for (const auto& difference : differences)
    distance += difference.aspect == "kernel"         ? kOtherKernel
                : difference.aspect == "architecture" ? 2
                                                      : 1;
  return distance;
}

}  // namespace

Result<Explanation> CompileService::explain(CompileRequest& request) {
  if (auto status = make_keys(request); !status) return status.error();
  Explanation explanation{.key = request.keys_.front().name,
                          .key_text = request.keys_.front().text,
                          .toolchain = request.toolchains_.front().to_text()};
  const auto& closure = request.program_->closure;
  if (!closure.cacheable) explanation.never = closure.why_not;
  if (store_ == nullptr) explanation.never = "no cache is in force";
  if (!explanation.never.empty()) return explanation;

  for (std::size_t which = 0; which < request.keys_.size(); ++which) {
    const auto& key = request.keys_[which];
    KILN_TRY(auto there, store_->look_at(key.name));
    // In the tiers below; in the writable one find() would note a use.
    if (!there.entry && there.damage.empty()) there = store_->find(key.name, key.text);
    std::string refusal = std::move(there.damage);
    if (there.entry && there.entry->key_text() != key.text) refusal = "key text differs";
    if (there.entry && refusal.empty() &&
        artifact_of(*std::move(there.entry), key.name, request.architecture_, refusal))
      explanation.found = true;
    if (!explanation.found && refusal.empty()) continue;
    explanation.key = key.name;
    explanation.key_text = key.text;
    explanation.toolchain = request.toolchains_[which].to_text();
    explanation.refusal = std::move(refusal);
    if (explanation.found) break;
  }

  KILN_TRY(const auto names, store_->names());
  std::size_t least = SIZE_MAX;
  for (const auto& name : names) {
    const auto entry = store_->read(name);
    if (!entry) continue;  // damaged, or deleted meanwhile
    ++explanation.entries;
    if (explanation.found || !explanation.refusal.empty()) continue;
    auto differences = key_differences(explanation.key_text, entry->key_text());
    const auto distance = distance_of(differences);
    if (distance >= least) continue;
    least = distance;
    explanation.nearest = NearestEntry{name, std::move(differences)};
  }
  return explanation;
}

Result<Explanation> Runtime::explain(KernelId id, std::string_view architecture) {
  KILN_TRY(auto wish, state_->request(id, architecture));
  return state_->service.explain(wish);
}

}  // namespace kiln
