// Device timing: graphs of calls between events, over a warm L2 cache or a cold one, and the memory
// that an arm needs.
//
// A graph holds `calls` calls of an arm, captured once. Nothing is subtracted.
//   warm  one replay that is not timed, then `replays` replays between two events; the sample is
//         that time / (calls * replays).
//   cold  inside the graph, before each call, more memory than the L2 cache holds is written and
//         then other memory is read, so that the cache holds none of the call's data and no line
//         that must be written back; each call lies between two events of its own and the sample is
//         the median of the calls. Such an interval holds the cost of the events, about 1.5 us.
//
// Threads: one at a time, the device's context being current (open() makes it so). Lifetime: a
// Buffer keeps what it needs alive; the Runtime must outlive the Device.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kiln/bench/compare.hpp"
#include "kiln/cuda_types.hpp"
#include "kiln/runtime.hpp"

namespace kiln::bench {

/// Device memory, aligned to 256 bytes.
class Buffer {
 public:
  struct State;  // private to the library

  Buffer() noexcept = default;
  /// Null of a default-constructed one.
  void* data() const noexcept;
  std::size_t bytes() const noexcept;
  /// The transfers are complete, and in order with the streams of the harness, when these return.
  /// Errors  invalid_argument for a range that does not fit; driver_failed
  Status write(std::span<const std::byte> bytes, std::size_t offset = 0) const;
  Status read(std::span<std::byte> bytes, std::size_t offset = 0) const;
  Status fill(std::byte value) const;

 private:
  friend class Device;
  explicit Buffer(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

class Device {
 public:
  struct State;  // private to the library

  /// Makes the primary context of device `ordinal` current. `runtime` compiles what flushes the
  /// cache, when that is first needed.
  /// Errors  no_device; driver_failed
  static Result<Device> open(Runtime& runtime, int ordinal = 0);

  /// Such as "NVIDIA H200".
  const std::string& name() const noexcept;
  std::size_t l2_bytes() const noexcept;
  /// Errors  driver_failed
  Result<Buffer> allocate(std::size_t bytes) const;
  /// A new Buffer with these contents. Errors  driver_failed
  Result<Buffer> upload(std::span<const std::byte> bytes) const;
  template <class T>
  Result<Buffer> upload(const std::vector<T>& values) const {
    return upload(std::as_bytes(std::span(values)));
  }
  const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  explicit Device(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// What the harness writes into all outputs of an arm before it has them checked.
inline constexpr std::byte kPoison{0xa5};

struct DeviceArm {
  std::string name{};
  /// Enqueues one call, capturing or not. The same call over and over must give the same outputs.
  std::function<Status(CUstream)> enqueue{};
  /// Says what is wrong with the outputs after the graph that is timed has run once and found them
  /// full of kPoison. The device is idle. Required: what is not checked is not timed.
  std::function<Status()> check{};
  /// All that a call writes. For parity they are compared in this order.
  std::vector<Buffer> outputs{};
};

enum class L2 : unsigned char { warm, cold };

struct DeviceTiming {
  L2 l2 = L2::warm;
  unsigned calls = 20;    ///< in a graph
  unsigned replays = 10;  ///< in a sample; cold: 1
};

/// Compares as compare() does; the arms' names become those of the comparison.
/// Errors  as compare(); invalid_argument for an arm that lacks enqueue, check or outputs and for
///         no calls; what an arm's enqueue() and the driver give
Result<Comparison> compare_device(const Device& device, const DeviceArm& baseline,
                                  const DeviceArm& candidate, const DeviceTiming& timing,
                                  const CompareOptions& options);

}  // namespace kiln::bench
