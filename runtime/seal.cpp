#include "runtime/seal.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/message_text.hpp"

namespace kiln {
namespace {

// "offset 5, there 4" for each field that differs.
std::vector<std::string> differences(const KernelSpec& asked, const KernelSpec& warm,
                                     const std::string& asked_architecture,
                                     const std::string& warm_architecture) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& name, const std::string& ours,
                           const std::string& theirs) {
    if (ours != theirs)
      found.push_back(name + " " + (ours.empty() ? "(none)" : ours) + ", there " +
                      (theirs.empty() ? "(none)" : theirs));
  };
  compare("kernel", asked.name, warm.name);
  compare("architecture", asked_architecture, warm_architecture);
  compare("source", asked.source, warm.source);
  compare("entry", asked.entry, warm.entry);
  compare("name expression", asked.name_expression, warm.name_expression);
  const auto value_in = [](const KernelSpec& spec, const std::string& name) {
    const auto field = std::find_if(spec.key.begin(), spec.key.end(),
                                    [&](const auto& f) { return f.name == name; });
    return field == spec.key.end() ? std::string() : field->value;
  };
  for (const auto& field : asked.key) compare(field.name, field.value, value_in(warm, field.name));
  for (const auto& field : warm.key)
    if (value_in(asked, field.name).empty()) compare(field.name, {}, field.value);
  compare("options", joined(asked.options, ", "), joined(warm.options, ", "));
  return found;
}

std::string text_of(const KernelSpec& spec, const std::string& architecture,
                    const cache::Digest& key) {
  std::string fields;
  for (const auto& field : spec.key) fields += ", " + field.name + " " + field.value;
  return spec.name + " for " + architecture + " [key " + key.hex() + fields + "]";
}

}  // namespace

void Seal::close(SealPolicy policy) {
  const std::lock_guard lock(mutex_);
  policy_ = std::make_shared<const SealPolicy>(std::move(policy));
  closed_.store(true, std::memory_order_release);
}

void Seal::warmed(const Subject& subject, const KernelSpec& spec, const cache::Digest& key) {
  const std::lock_guard lock(mutex_);
  warmed_[subject] = {&spec, key};
}

Error Seal::miss(const Subject& subject, const KernelSpec& spec, const cache::Digest& key) const {
  const std::lock_guard lock(mutex_);
  auto message = "kernel " + text_of(spec, subject.second, key) +
                 " is not warmed up and the Runtime is sealed; ";
  std::optional<std::pair<Subject, Warmed>> nearest;
  std::vector<std::string> least;
  for (const auto& [place, warm] : warmed_) {
    auto found = differences(spec, *warm.spec, subject.second, place.second);
    // Another kernel is further away than any key of the same one.
    const auto distance = [&](const KernelSpec& other, std::size_t fields) {
      return std::pair(other.name != spec.name, fields);
    };
    if (nearest &&
        distance(*warm.spec, found.size()) >= distance(*nearest->second.spec, least.size()))
      continue;
    nearest = {place, warm};
    least = std::move(found);
  }
  if (!nearest) {
    message += "nothing is";
  } else {
    message += "the nearest that is warmed up is " +
               text_of(*nearest->second.spec, nearest->first.second, nearest->second.key) +
               ", and what differs is " +
               (least.empty() ? std::string("the text of its files") : joined(least, "; "));
  }
  return Error(ErrorCode::sealed,
               message + ". Register it before the warmup, or fall back to another kernel");
}

OnMiss Seal::decide(const Error& miss) const {
  std::shared_ptr<const SealPolicy> policy;
  {
    const std::lock_guard lock(mutex_);
    policy = policy_;
  }
  return policy->ask ? policy->ask(miss) : policy->on_miss;
}

}  // namespace kiln
