// What the device tests of sparse decode attention share: calls in device memory, the program with
// either back-end, and where the bytes lie that a call may write.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernel_src/dsv41_decode/launch.hpp"
#include "kernel_src/dsv41_decode/reference.hpp"
#include "kernel_src/kernels.hpp"
#include "support/cuda_driver.hpp"
#include "support/kernels.hpp"
#include "tests/kernel_src/dsv41_decode_inputs.hpp"

namespace kiln::kernels::dsv41_decode::test {

using kiln::test::CudaDriver;
using kiln::test::DeviceBuffer;
using kiln::test::message_of;

/// Which program, and whose matrix products: those of the device's own, or the ones for every
/// architecture.
enum class BackEnd : unsigned char { own, portable, mega, mega_portable };
inline constexpr BackEnd kBackEnds[] = {BackEnd::own, BackEnd::portable, BackEnd::mega,
                                        BackEnd::mega_portable};
inline constexpr BackEnd kMegaBackEnds[] = {BackEnd::mega, BackEnd::mega_portable};

constexpr bool is_mega(BackEnd back_end) {
  return back_end == BackEnd::mega || back_end == BackEnd::mega_portable;
}
constexpr bool is_portable(BackEnd back_end) {
  return back_end == BackEnd::portable || back_end == BackEnd::mega_portable;
}

inline std::string text_of(const Choices& choices, std::optional<BackEnd> back_end = {}) {
  const auto number = [](auto value) { return std::to_string(static_cast<unsigned>(value)); };
  const Key& key = choices.key;
  return number(key.heads) + " heads, " +
         (key.record == Record::fp8 ? "fp8, lists " : "nvfp4, lists ") + number(key.swa_slots) +
         " and " + number(key.compressed_slots) + ", pages " + number(key.swa_page_slots) +
         " and " + number(key.page_slots) + ", " + number(choices.tokens) + " tokens, profile " +
         number(choices.profile) + ", lengths " + number(choices.lengths) + ", holes " +
         number(choices.holes) + ", sinks " + number(choices.sinks) +
         (!back_end            ? ""
          : is_mega(*back_end) ? ", mega"
                               : ", swap-AB") +
         (back_end && is_portable(*back_end) ? ", portable back-end" : "");
}

/// Both output buffers, whole.
struct Bytes {
  std::vector<u8> data{}, scales{};
  bool operator==(const Bytes&) const = default;
};

/// Where the bytes are that a call writes, by the formulas of arguments.hpp: data in the order
/// [token, head, dim], scales [token, head, chunk of 32 dims]. Tokens outside the table have none.
struct Places {
  std::vector<std::size_t> data{}, scales{};
};

inline Places places_of(const HostCall& call) {
  Places places;
  for (std::size_t token = 0; token < call.tokens; ++token) {
    if (call.positions[token] < 0 ||
        call.positions[token] >= static_cast<std::int64_t>(call.rope_positions))
      continue;
    for (std::size_t head = 0; head < call.key.heads; ++head)
      for (std::size_t chunk = 0; chunk < 16; ++chunk) {
        const std::size_t group = head / 8;
        const std::size_t block = chunk * 8 + head % 8;
        for (std::size_t i = 0; i < 32; ++i)
          places.data.push_back(token * call.output_stride + group * 4096 + block * 32 + i);
        places.scales.push_back(
            (token + group * call.scale_group_stride + block / 4 * call.scale_column_stride) * 4 +
            block % 4);
      }
  }
  return places;
}

/// What a call wrote, without what lies between.
inline Bytes written_of(const HostCall& call, const Bytes& bytes) {
  const Places places = places_of(call);
  Bytes written;
  for (const std::size_t at : places.data) written.data.push_back(bytes.data[at]);
  for (const std::size_t at : places.scales) written.scales.push_back(bytes.scales[at]);
  return written;
}

/// Dead groups, tokens that are not written and all gaps must hold what was there before.
inline void expect_nothing_else_written(const HostCall& call, Bytes bytes) {
  const Places places = places_of(call);
  for (const std::size_t at : places.data) bytes.data[at] = kOutputPattern;
  for (const std::size_t at : places.scales) bytes.scales[at] = kOutputPattern;
  for (const auto* all : {&bytes.data, &bytes.scales}) {
    const auto other =
        std::find_if(all->begin(), all->end(), [](u8 byte) { return byte != kOutputPattern; });
    EXPECT_EQ(other, all->end()) << (all == &bytes.data ? "data" : "scale") << " byte "
                                 << other - all->begin() << " does not belong to the call";
  }
}

/// A HostCall with everything on the device, its outputs filled with the pattern.
struct DeviceCall {
  DeviceCall(const CudaDriver& driver, HostCall& host)
      : query(driver.upload(host.query)),
        positions(driver.upload(host.positions)),
        cos_sin(driver.upload(host.cos_sin)),
        sinks(driver.upload(host.sinks)),
        swa_cache(driver.upload(host.swa.cache)),
        swa_slots(driver.upload(host.swa.slots)),
        swa_lengths(driver.upload(host.swa.lengths)),
        compressed_cache(driver.upload(host.compressed.cache)),
        compressed_slots(driver.upload(host.compressed.slots)),
        compressed_lengths(driver.upload(host.compressed.lengths)),
        output(driver.upload(host.output)),
        output_scales(driver.upload(host.output_scales)),
        arguments(host.arguments()) {
    arguments.query = query.pointer();
    arguments.positions = positions.pointer<std::int64_t>();
    arguments.cos_sin = cos_sin.pointer<float>();
    if (arguments.sinks != nullptr) arguments.sinks = sinks.pointer<float>();
    arguments.swa_cache = swa_cache.pointer();
    arguments.swa_slots = swa_slots.pointer<std::int32_t>();
    arguments.swa_lengths = swa_lengths.pointer<std::int32_t>();
    arguments.compressed_cache = compressed_cache.pointer();
    arguments.compressed_slots = compressed_slots.pointer<std::int32_t>();
    arguments.compressed_lengths = compressed_lengths.pointer<std::int32_t>();
    arguments.output = output.pointer();
    arguments.output_scales = output_scales.pointer();
  }
  /// Puts the inputs of a call of the same sizes in the place of these.
  void assign(const HostCall& host) {
    query.assign(host.query);
    positions.assign(host.positions);
    cos_sin.assign(host.cos_sin);
    sinks.assign(host.sinks);
    swa_cache.assign(host.swa.cache);
    swa_slots.assign(host.swa.slots);
    swa_lengths.assign(host.swa.lengths);
    compressed_cache.assign(host.compressed.cache);
    compressed_slots.assign(host.compressed.slots);
    compressed_lengths.assign(host.compressed.lengths);
  }
  void clear() {
    output.fill(kOutputPattern);
    output_scales.fill(kOutputPattern);
  }
  Bytes bytes() const { return {output.download<u8>(), output_scales.download<u8>()}; }

  DeviceBuffer query, positions, cos_sin, sinks, swa_cache, swa_slots, swa_lengths,
      compressed_cache, compressed_slots, compressed_lengths, output, output_scales;
  Arguments arguments;
};

/// One driver and one runtime for all tests of a suite: instances take a second each to compile.
class DecodeGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto driver = CudaDriver::open();
    if (!driver) return;
    driver_.emplace(*std::move(driver));
    runtime_.emplace(open_runtime());
    EXPECT_TRUE(add_sources(*runtime_));
  }
  static void TearDownTestSuite() {
    runtime_.reset();
    driver_.reset();
  }
  void SetUp() override {
    KILN_REQUIRES_GPU();
    mega_blocks_ = 0;
  }

  static Runtime open_runtime() {
    auto runtime = Runtime::open({});
    EXPECT_TRUE(runtime) << message_of(runtime);
    return *std::move(runtime);
  }

  static KernelSpec spec_of(const Key& key, BackEnd back_end) {
    KernelSpec spec = is_mega(back_end) ? mega::spec_of(key) : swapab::spec_of(key);
    if (is_portable(back_end)) spec.variants.clear();
    return spec;
  }

  /// Compiles these programs of all keys, as many at a time as there are processors.
  static void warm_up(const std::vector<Key>& keys,
                      std::span<const BackEnd> back_ends = kBackEnds) {
    for (const Key& key : keys)
      for (const BackEnd back_end : back_ends) ASSERT_TRUE(runtime_->add(spec_of(key, back_end)));
    const auto report = runtime_->warmup();
    ASSERT_TRUE(report) << message_of(report);
    ASSERT_EQ(report->failed, 0u);
  }

  /// A mega program's blocks of a token are mega_blocks_.
  static Result<LaunchDescriptor> prepare(BackEnd back_end, const Key& key,
                                          const Arguments& arguments,
                                          Overlap overlap = Overlap::no) {
    if (back_end == BackEnd::own) {
      KILN_TRY(const auto decode, SwapabDecode::create(*runtime_, key));
      return decode.prepare(arguments, overlap);
    }
    const mega::Program program(key, mega_blocks_);
    if (back_end == BackEnd::mega) {
      KILN_TRY(const auto decode, MegaDecode::create(*runtime_, program));
      return decode.prepare(arguments, overlap);
    }
    if (const Status good = check(key, arguments); !good) return good.error();
    KILN_TRY(const KernelId id, runtime_->add(spec_of(key, back_end)));
    KILN_TRY(const Kernel kernel, runtime_->get(id));
    LaunchShape shape = is_mega(back_end) ? program.shape(arguments.tokens)
                                          : swapab::Program(key).shape(arguments.tokens);
    shape.overlap_previous = overlap;
    return runtime_->launches().prepare(kernel, shape, args_of(key, arguments));
  }

  /// Launches once, into outputs that hold the pattern.
  static void launch(BackEnd back_end, const Key& key, const Arguments& arguments) {
    auto prepared = prepare(back_end, key, arguments);
    ASSERT_TRUE(prepared) << message_of(prepared);
    ASSERT_TRUE(prepared->launch(nullptr));
  }
  static Bytes run(BackEnd back_end, const Key& key, DeviceCall& call) {
    call.clear();
    launch(back_end, key, call.arguments);
    return call.bytes();
  }
  static Bytes run(BackEnd back_end, HostCall& host) {
    DeviceCall call(*driver_, host);
    return run(back_end, host.key, call);
  }

  static inline std::optional<CudaDriver> driver_;
  static inline std::optional<Runtime> runtime_;
  static inline u32 mega_blocks_ = 0;  // as many as the tokens leave room for
};

}  // namespace kiln::kernels::dsv41_decode::test
