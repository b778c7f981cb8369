// The registered kernels of a Runtime, and what is loaded of each, device by device.
//
// Threads: at() and Registered::find() are lock-free reads; everything else takes a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kiln/kernel_spec.hpp"
#include "kiln/runtime.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln {

struct Program;

/// The program of a spec's own root file, as long as the sources are those of that generation. Null
/// where files on disk have a say, which may change at any time.
struct KnownProgram {
  std::shared_ptr<const Program> program{};
  std::uint64_t generation = 0;
};

class Registered {
 public:
  static constexpr int kMaxDevices = 64;

  Registered(KernelSpec spec, KnownProgram known)
      : spec_(std::move(spec)), known_(std::move(known)) {}

  const KernelSpec& spec() const noexcept { return spec_; }
  /// What it was when it was registered; see KnownProgram.
  const KnownProgram& known() const noexcept { return known_; }
  /// Null until loaded on that device.
  const LoadedKernel* find(int ordinal) const noexcept {
    return loaded_[static_cast<std::size_t>(ordinal)].load(std::memory_order_acquire);
  }
  /// Loads `artifact` on `ordinal`, once; `loads` counts the modules that reach the driver.
  Result<const LoadedKernel*> load(const std::shared_ptr<const DriverApi>& driver,
                                   const Artifact& artifact, int ordinal,
                                   const std::weak_ptr<const LogSink>& log,
                                   std::atomic<std::uint64_t>& loads);

 private:
  const KernelSpec spec_;
  const KnownProgram known_;
  std::array<std::atomic<const LoadedKernel*>, kMaxDevices> loaded_{};
  // No ForkMutex: it is held for as long as the driver loads a module, and no child of a process
  // whose driver is open gets here.
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Library>> libraries_;  // by architecture
  std::vector<std::shared_ptr<const LoadedKernel>> owned_;
};

class Registry {
 public:
  /// An equal spec gives the id that it has. Errors  unsupported when the table is full.
  Result<KernelId> add(const KernelSpec& spec, KnownProgram known = {});
  /// Null for an id that is not of this registry.
  Registered* at(KernelId id) const noexcept {
    const bool own = id.runtime == number_ || id.runtime == 0;
    return own && id.index < size_.load(std::memory_order_acquire)
               ? chunks_[id.index / kChunk][id.index % kChunk].get()
               : nullptr;
  }
  /// Of the kernel at a place below size().
  KernelId id_of(std::uint32_t index) const noexcept { return {index, number_}; }
  std::uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

 private:
  static constexpr std::uint32_t kChunk = 256;
  static constexpr std::uint32_t kChunks = 256;

  struct Hash {
    std::size_t operator()(const KernelSpec* spec) const noexcept;
  };
  struct Equal {
    bool operator()(const KernelSpec* a, const KernelSpec* b) const noexcept { return *a == *b; }
  };

  static std::uint32_t next_number() noexcept;

  const std::uint32_t number_ = next_number();
  ForkMutex mutex_;
  /// The spec of each slot, to find an equal one among thousands.
  std::unordered_map<const KernelSpec*, std::uint32_t, Hash, Equal> known_;
  std::atomic<std::uint32_t> size_{0};
  // Chunks never move and a slot is written before size_ passes it, so readers need no lock.
  std::array<std::unique_ptr<std::unique_ptr<Registered>[]>, kChunks> chunks_ {};
};

}  // namespace kiln
