// The cache writer on a device: exact bytes against its host model, and nothing else touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernel_src/dsv41_kv_insert/reference.hpp"
#include "kernel_src/kernels.hpp"
#include "kernel_src/shared/e2m1.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "kernel_src/shared/nvfp4.hpp"
#include "kernel_src/shared/ue8m0.hpp"
#include "support/cuda_driver.hpp"
#include "support/kernels.hpp"
#include "support/late_copy.hpp"
#include "tests/kernel_src/dsv41_kv_insert_inputs.hpp"

namespace kiln::kernels::dsv41_kv_insert::test {
namespace {

using kiln::test::CudaDriver;
using kiln::test::DeviceBuffer;
using kiln::test::message_of;

constexpr std::size_t kCanaryBytes = 4096;
constexpr u8 kCanary = 0xc3;

/// A buffer between two stretches of canaries.
struct Guarded {
  Guarded(const CudaDriver& driver, const std::vector<u8>& bytes)
      : buffer(driver.buffer(bytes.size() + 2 * kCanaryBytes)), bytes_inside(bytes.size()) {
    buffer.fill(kCanary);
    buffer.write(kCanaryBytes, bytes.data(), bytes.size());
  }
  void* inside() const { return buffer.pointer(kCanaryBytes); }
  void expect(const std::vector<u8>& want, const char* what) const {
    const auto all = buffer.download<u8>();
    const auto begin = all.begin() + kCanaryBytes;
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_inside);
    const auto differs = std::mismatch(begin, end, want.begin());
    EXPECT_EQ(differs.first, end) << what << " differs first at byte " << differs.first - begin
                                  << ": " << +*differs.first << " for " << +*differs.second;
    const auto intact = [](u8 byte) { return byte == kCanary; };
    EXPECT_TRUE(std::all_of(all.begin(), begin, intact)) << "before " << what;
    EXPECT_TRUE(std::all_of(end, all.end(), intact)) << "behind " << what;
  }
  DeviceBuffer buffer;
  std::size_t bytes_inside;
};

/// A HostCall with everything on the device.
struct DeviceCall {
  DeviceCall(const CudaDriver& driver, HostCall& host)
      : query(driver.upload(host.query)),
        rows(driver.upload(host.rows)),
        positions(driver.upload(host.positions)),
        slots(driver.upload(host.slots)),
        cos_sin(driver.upload(host.cos_sin)),
        cache(driver, host.cache),
        padded_query(driver, host.padded_query),
        arguments(host.arguments()) {
    const bool with_query = host.key.heads != 0;
    arguments.query = with_query ? query.pointer() : nullptr;
    arguments.padded_query = with_query ? padded_query.inside() : nullptr;
    arguments.rows = rows.pointer();
    arguments.positions = positions.pointer<std::int64_t>();
    arguments.slots = slots.pointer<std::int64_t>();
    arguments.cos_sin = cos_sin.pointer<float>();
    arguments.cache = cache.inside();
  }
  void expect(const HostCall& host) const {
    cache.expect(host.cache, "cache");
    padded_query.expect(host.padded_query, "padded query");
  }
  DeviceBuffer query, rows, positions, slots, cos_sin;
  Guarded cache, padded_query;
  Arguments arguments;
};

class KvInsertGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRES_GPU();
    driver_.emplace(*std::move(CudaDriver::open()));
    auto runtime = Runtime::open({});
    ASSERT_TRUE(runtime) << message_of(runtime);
    runtime_.emplace(*std::move(runtime));
    ASSERT_TRUE(add_sources(*runtime_));
  }

  KvInsert writer(const Key& key) {
    auto made = KvInsert::create(*runtime_, {.heads = key.heads,
                                             .record = key.record,
                                             .page_slots = key.page_slots,
                                             .ratio = key.ratio});
    EXPECT_TRUE(made) << message_of(made);
    return *made;
  }

  std::optional<CudaDriver> driver_;
  std::optional<Runtime> runtime_;
};

TEST_F(KvInsertGpu, GivesTheModelsBytesForEveryKey) {
  unsigned seed = 0;
  for (const auto record : {Record::fp8, Record::nvfp4})
    for (const u32 page_slots : {64u, 128u})
      for (const u32 ratio : {1u, 2u})
        for (const u32 heads : {0u, 8u, 16u, 32u, 64u})
          // One, two and four pieces a thread; a last block that is not full; gaps and none.
          for (const std::size_t tokens : {1u, 63u, 101u, 203u}) {
            const Key key{heads, record, page_slots, ratio};
            Layout layout{.tokens = tokens, .pages = 5};
            if (tokens != 1)
              layout = {.tokens = tokens,
                        .pages = 5,
                        .row_gap_bytes = 16 * (seed % 3),
                        .page_gap_bytes = 32 * (seed % 5),
                        .input_gap_bytes = 16 * (seed % 4),
                        .query_gap_bytes = heads != 0 ? 48u : 0u};
            SCOPED_TRACE(std::string(to_string(record)) + " page " + std::to_string(page_slots) +
                         " ratio " + std::to_string(ratio) + " heads " + std::to_string(heads) +
                         " tokens " + std::to_string(tokens));
            HostCall host = make_call(key, layout, ++seed);
            const DeviceCall device(*driver_, host);
            ASSERT_TRUE(writer(key).launch(device.arguments, nullptr));
            model(key, host.arguments());
            device.expect(host);
            if (HasFailure()) return;
          }
}

TEST_F(KvInsertGpu, GivesTheModelsBytesForEveryProfileOnManyRows) {
  for (const auto record : {Record::fp8, Record::nvfp4}) {
    const Key key{.record = record, .page_slots = 128};
    for (unsigned seed = 0; seed < 4; ++seed) {
      HostCall host = make_call(key, {.tokens = 8000, .pages = 64}, seed);
      const DeviceCall device(*driver_, host);
      ASSERT_TRUE(writer(key).launch(device.arguments, nullptr));
      model(key, host.arguments());
      device.expect(host);
    }
  }
}

TEST_F(KvInsertGpu, ZeroTokensTouchNothing) {
  const Key key{.heads = 16};
  HostCall host = make_call(key, {.tokens = 3}, 1);
  DeviceCall device(*driver_, host);
  device.arguments.tokens = 0;
  EXPECT_TRUE(writer(key).launch(device.arguments, nullptr));
  EXPECT_EQ(writer(key).prepare(device.arguments).error().code(), ErrorCode::invalid_argument);
  device.expect(host);
}

TEST_F(KvInsertGpu, EagerAndReplayedLaunchesFollowChangedInputsInTwoContexts) {
  ASSERT_TRUE(runtime_->add_source("late_copy.cu", kiln::test::kLateCopySource));
  const auto late_copy = runtime_->add({.name = "late_copy", .source = "late_copy.cu"});
  ASSERT_TRUE(late_copy) << message_of(late_copy);
  for (const bool second : {false, true}) {
    std::optional<kiln::test::SecondContext> context;
    if (second) context.emplace(driver_->second_context());
    for (const auto record : {Record::fp8, Record::nvfp4})
      for (const auto overlap : {Overlap::no, Overlap::yes}) {
        SCOPED_TRACE(std::string(second ? "second" : "first") + " context, " +
                     std::string(to_string(record)) + (overlap == Overlap::yes ? ", PDL" : ""));
        const Key key{.heads = 16, .record = record, .page_slots = 64};
        const Layout layout{.tokens = 40, .pages = 3};
        HostCall host = make_call(key, layout, 3);
        DeviceCall device(*driver_, host);
        auto staged = driver_->upload(host.rows);
        const auto words = static_cast<unsigned>(host.rows.size() / 2);
        const auto copy_kernel = runtime_->get(*late_copy);
        ASSERT_TRUE(copy_kernel) << message_of(copy_kernel);
        auto copy = runtime_->launches().prepare(
            *copy_kernel, {.grid_blocks = {8}, .block_threads = {256}, .overlap_previous = overlap},
            staged.address(), device.rows.address(), words);
        ASSERT_TRUE(copy) << message_of(copy);
        auto insert = writer(key).prepare(device.arguments, overlap);
        ASSERT_TRUE(insert) << message_of(insert);
        auto stream = driver_->stream();
        const auto step = [&] {
          ASSERT_TRUE(copy->launch(stream.handle()));
          ASSERT_TRUE(insert->launch(stream.handle()));
        };
        auto graph = driver_->capture(stream, [&] {
          step();
          step();
        });
        for (unsigned replay = 0; replay < 4; ++replay) {
          const HostCall fresh = make_call(key, layout, 100 + replay);
          host.rows = fresh.rows;
          host.query = fresh.query;
          host.slots = fresh.slots;
          host.positions = fresh.positions;
          staged.assign(host.rows);
          device.query.assign(host.query);
          device.slots.assign(host.slots);
          device.positions.assign(host.positions);
          if (replay % 2 == 0) {
            step();
          } else {
            graph.launch(stream);
          }
          stream.synchronize();
          model(key, host.arguments());
          device.expect(host);
        }
        // The same prepared launch, pointed at fewer tokens.
        HostCall fewer = make_call(key, {.tokens = 5, .pages = 3}, 9);
        const DeviceCall small(*driver_, fewer);
        ASSERT_TRUE(writer(key).update(*insert, small.arguments));
        ASSERT_TRUE(insert->launch(stream.handle()));
        stream.synchronize();
        model(key, fewer.arguments());
        small.expect(fewer);
      }
  }
}

// Pages so far apart that offsets pass 2^31 and 2^32: a 32-bit product would land 2 or 4 GiB below.
TEST_F(KvInsertGpu, AddressesBeyondFourGibibytesAreExact) {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20;
  struct Row {
    u32 page_slots;
    std::size_t pages, page_stride, row_stride;
  };
  for (const auto& row :
       {Row{64, 40, 160 * kMebibyte + 16, 528}, Row{64, 1, 0, 100 * kMebibyte + 48}}) {
    const std::size_t page_stride =
        row.page_stride != 0 ? row.page_stride : row.page_slots * row.row_stride;
    const std::size_t bytes = row.pages * page_stride;
    if (driver_->free_bytes() < bytes + 64 * kMebibyte)
      GTEST_SKIP() << "needs " << bytes / kMebibyte << " MiB of free device memory";
    // The same call in a small cache says what each record holds.
    const Key key{.record = Record::fp8, .page_slots = row.page_slots};
    HostCall host = make_call(key, {.tokens = 64, .pages = row.pages}, 21);
    DeviceCall device(*driver_, host);
    model(key, host.arguments());
    auto far = driver_->buffer(bytes);
    far.fill(0xa5);
    device.arguments.cache = far.pointer();
    device.arguments.page_stride_bytes = page_stride;
    device.arguments.row_stride_bytes = row.row_stride;
    ASSERT_TRUE(writer(key).launch(device.arguments, nullptr));

    std::size_t farthest = 0;
    std::vector<std::pair<std::size_t, const u8*>> records;
    for (std::size_t slot = 0; slot < row.pages * row.page_slots; ++slot) {
      const std::size_t at =
          slot / row.page_slots * page_stride + slot % row.page_slots * row.row_stride;
      const u8* want = host.cache.data() + slot / row.page_slots * host.page_stride() +
                       slot % row.page_slots * host.row_stride();
      if (std::any_of(want, want + 528, [](u8 byte) { return byte != 0xa5; })) farthest = at;
      records.emplace_back(at, want);
    }
    EXPECT_GT(farthest, std::size_t{1} << 32);
    // The whole cache, piece by piece: the records where they belong and the pattern elsewhere.
    const std::size_t piece = 64 * kMebibyte;
    std::vector<u8> want(piece);
    for (std::size_t start = 0; start < bytes; start += piece) {
      const std::size_t count = std::min(piece, bytes - start);
      std::fill(want.begin(), want.end(), u8{0xa5});
      for (const auto& [at, record] : records)
        for (std::size_t i = 0; i < 528; ++i)
          if (at + i >= start && at + i < start + count) want[at + i - start] = record[i];
      const auto got = far.download<u8>(start, count);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), count), 0) << "in the piece at " << start;
    }
  }
}

// The number formats on the device, among them the conversion instruction, against the host's.
constexpr std::string_view kFormatsSource = R"(
#include "kernel_src/device/ptx_convert.cuh"
#include "kernel_src/shared/e2m1.hpp"
#include "kernel_src/shared/e4m3.hpp"
#include "kernel_src/shared/nvfp4.hpp"
#include "kernel_src/shared/ue8m0.hpp"
using namespace kiln::kernels;
extern "C" __global__ void entry(u32* out, u32 step, u32 count) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float value = float_of(i * step);
  const float scale = float_of_e4m3(1 + i % 126);
  out[4 * i] = kiln::device::e4m3x2_of_floats(value, -value);
  out[4 * i + 1] = e4m3_of_float(value) | (ue8m0_for_e4m3(value) << 8);
  out[4 * i + 2] = e2m1_of_quotient(value, scale, 1.0f / scale);
  out[4 * i + 3] = bits_of(nvfp4_scale(value));
}
)";

TEST_F(KvInsertGpu, NumberFormatsAreTheHostsBitForBit) {
  ASSERT_TRUE(runtime_->add_source("formats.cu", kFormatsSource));
  const auto id =
      runtime_->add({.name = "formats", .source = "formats.cu", .builtins = Builtins::minimal});
  ASSERT_TRUE(id) << message_of(id);
  const auto kernel = runtime_->get(*id);
  ASSERT_TRUE(kernel) << message_of(kernel);
  constexpr u32 kCount = 1u << 23;
  constexpr u32 kStep = 511;  // all bits up to the negative NaNs, which -value covers
  auto out = driver_->buffer(std::size_t{kCount} * 16);
  auto launch =
      runtime_->launches().prepare(*kernel, {.grid_blocks = {kCount / 256}, .block_threads = {256}},
                                   out.address(), kStep, kCount);
  ASSERT_TRUE(launch) << message_of(launch);
  ASSERT_TRUE(launch->launch(nullptr));
  const auto got = out.download<u32>();
  for (u32 i = 0; i < kCount; ++i) {
    const float value = float_of(i * kStep);
    ASSERT_EQ(got[4 * i], e4m3_of_float(value) | (e4m3_of_float(-value) << 8)) << value;
    const u32 magnitude = magnitude_bits(value);
    if (magnitude > kInfinityBits) continue;
    ASSERT_EQ(got[4 * i + 1], e4m3_of_float(value) | (ue8m0_for_e4m3(value) << 8)) << value;
    ASSERT_EQ(got[4 * i + 3], bits_of(nvfp4_scale(value))) << value;
    const float scale = float_of_e4m3(1 + i % 126);
    ASSERT_EQ(got[4 * i + 2], e2m1_of_quotient(value, scale, 1.0f / scale)) << value;
  }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_kv_insert::test
