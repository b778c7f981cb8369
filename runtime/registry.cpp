#include "runtime/registry.hpp"

#include <functional>
#include <utility>

namespace kiln {

Result<const LoadedKernel*> Registered::load(const std::shared_ptr<const DriverApi>& driver,
                                             const Artifact& artifact, int ordinal,
                                             const std::weak_ptr<const LogSink>& log,
                                             std::atomic<std::uint64_t>& loads) {
  const std::lock_guard lock(mutex_);
  if (const auto* loaded = find(ordinal)) return loaded;
  // A capture that cannot be seen (of a non-blocking stream, or by another thread) goes on
  // unharmed.
  const OutsideCapture outside(*driver);
  auto& library = libraries_[artifact.facts.architecture];
  if (library == nullptr) {
    KILN_TRY(library, Library::load(driver, artifact, log));
    loads.fetch_add(1, std::memory_order_relaxed);
  }
  KILN_TRY(auto loaded, LoadedKernel::prepare(library, ordinal));
  owned_.push_back(loaded);
  loaded_[static_cast<std::size_t>(ordinal)].store(loaded.get(), std::memory_order_release);
  return owned_.back().get();
}

// Of what tells the kernels of one engine apart; equality looks at the rest.
std::size_t Registry::Hash::operator()(const KernelSpec* spec) const noexcept {
  std::size_t hash = 0;
  const auto mix = [&hash](const std::string& text) {
    hash = hash * 31 + std::hash<std::string>()(text);
  };
  mix(spec->name);
  mix(spec->source);
  mix(spec->name_expression);
  for (const auto& field : spec->key) mix(field.value);
  for (const auto& option : spec->options) mix(option);
  return hash;
}

std::uint32_t Registry::next_number() noexcept {
  static std::atomic<std::uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Result<KernelId> Registry::add(const KernelSpec& spec, KnownProgram known) {
  const std::lock_guard lock(mutex_);
  const auto size = size_.load(std::memory_order_relaxed);
  if (const auto same = known_.find(&spec); same != known_.end()) return id_of(same->second);
  if (size == kChunk * kChunks)
    return Error(ErrorCode::unsupported, "kernel " + spec.name + ": a Runtime holds at most " +
                                             std::to_string(kChunk * kChunks) +
                                             " registered kernels; open another one");
  auto& chunk = chunks_[size / kChunk];
  if (chunk == nullptr) chunk = std::make_unique<std::unique_ptr<Registered>[]>(kChunk);
  auto& slot = chunk[size % kChunk];
  slot = std::make_unique<Registered>(spec, std::move(known));
  known_.emplace(&slot->spec(), size);
  size_.store(size + 1, std::memory_order_release);
  return id_of(size);
}

}  // namespace kiln
