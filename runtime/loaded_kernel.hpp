// A cubin in the driver: the library that holds it, and the kernel prepared for one device.
//
// Threads: immutable once made. Lifetime: a LoadedKernel keeps its Library, which keeps the driver
// table and the cubin's bytes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "kiln/artifact.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel.hpp"
#include "kiln/launch_shape.hpp"
#include "kiln/log.hpp"
#include "runtime/driver_api.hpp"

namespace kiln {

/// One artifact loaded into the driver, for all devices of its architecture.
class Library {
 public:
  /// `log` may go before it.
  /// Errors  unsupported, naming kernel, architecture, compiler and driver; driver_failed.
  static Result<std::shared_ptr<const Library>> load(std::shared_ptr<const DriverApi> driver,
                                                     Artifact artifact,
                                                     std::weak_ptr<const LogSink> log);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  const DriverApi& driver() const noexcept { return *driver_; }
  const Artifact& artifact() const noexcept { return artifact_; }
  CUkernel kernel() const noexcept { return kernel_; }
  const std::vector<KernelParameter>& parameters() const noexcept {
    return artifact_.facts.parameters;
  }
  unsigned generation() const noexcept { return generation_; }
  /// A driver's call that failed for this kernel: its name, and what to look at.
  Error failed(const char* call, CUresult result) const;

 private:
  Library(std::shared_ptr<const DriverApi> driver, Artifact artifact,
          std::weak_ptr<const LogSink> log);

  std::shared_ptr<const DriverApi> driver_;
  Artifact artifact_;
  std::weak_ptr<const LogSink> log_;
  unsigned generation_ = 0;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

/// A library's kernel with its attributes set on one device.
class LoadedKernel : public std::enable_shared_from_this<LoadedKernel> {
 public:
  /// Of this kernel on this device.
  struct Limits {
    unsigned threads_per_block = 0;
    unsigned static_shared_bytes = 0;
    unsigned dynamic_shared_bytes = 0;
    Extent block_threads{};                    ///< in each dimension
    Extent grid_blocks{};                      ///< in each dimension
    std::optional<Extent> compiled_cluster{};  ///< the only one, where one is compiled in
    std::size_t access_window_bytes = 0;       ///< at most
    unsigned sm_count = 0;
    bool clusters = false;     ///< the device has them
    bool cooperative = false;  ///< the device can launch so
  };

  /// Raises the kernel's dynamic shared memory limit to all that the device has left and allows
  /// clusters of any size, so that no launch ever has to, and loads the module into the current
  /// context where there is one, so that the first launch (which may be captured) does not.
  static Result<std::shared_ptr<const LoadedKernel>> prepare(std::shared_ptr<const Library> library,
                                                             int ordinal);

  /// Loads the module into the current context, which is one of this device, unless it is there.
  Status bring_into_context() const noexcept;
  /// The same, with nothing but a look at the current context where it is known to be there.
  /// Errors  capture_active where that is not known and a stream of the context is being captured
  Status be_in_context() const;

  const Library& library() const noexcept { return *library_; }
  int ordinal() const noexcept { return ordinal_; }
  const Limits& limits() const noexcept { return limits_; }
  Kernel handle() const { return Kernel(shared_from_this()); }

 private:
  LoadedKernel(std::shared_ptr<const Library> library, int ordinal) noexcept
      : library_(std::move(library)), ordinal_(ordinal) {}

  std::shared_ptr<const Library> library_;
  int ordinal_ = 0;
  Limits limits_{};
  // The contexts that the module was brought into, the latest few. Of one that is gone, a new one
  // may have the handle: then its first launch loads the module.
  mutable std::array<std::atomic<CUcontext>, 8> contexts_{};
  mutable std::atomic<unsigned> next_context_{0};
};

}  // namespace kiln
