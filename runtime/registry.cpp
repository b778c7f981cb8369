#include "runtime/registry.hpp"

namespace kiln {

Result<const LoadedKernel*> Registered::load(const std::shared_ptr<const DriverApi>& driver,
                                             const Artifact& artifact, int ordinal,
                                             const LogSink& log,
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

Result<KernelId> Registry::add(const KernelSpec& spec) {
  const std::lock_guard lock(mutex_);
  const auto size = size_.load(std::memory_order_relaxed);
  for (std::uint32_t index = 0; index < size; ++index)
    if (at({index})->spec() == spec) return KernelId{index};
  if (size == kChunk * kChunks)
    return Error(ErrorCode::unsupported, "kernel " + spec.name + ": a Runtime holds at most " +
                                             std::to_string(kChunk * kChunks) +
                                             " registered kernels; open another one");
  auto& chunk = chunks_[size / kChunk];
  if (chunk == nullptr) chunk = std::make_unique<std::unique_ptr<Registered>[]>(kChunk);
  chunk[size % kChunk] = std::make_unique<Registered>(spec);
  size_.store(size + 1, std::memory_order_release);
  return KernelId{size};
}

}  // namespace kiln
