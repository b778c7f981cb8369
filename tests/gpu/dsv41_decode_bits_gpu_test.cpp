// What must not change a single bit of a decode program's output: how it is launched, a token's
// company, strides and distances, and memory that no list names. And what it must not touch.
#include <limits>

#include "support/late_copy.hpp"
#include "tests/gpu/dsv41_decode_changes.hpp"
#include "tests/gpu/dsv41_decode_device.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

class DecodeBits : public DecodeGpu {
 protected:
  void SetUp() override {
    DecodeGpu::SetUp();
    mega_blocks_ = 5;  // any fixed number: a token's bits depend on it
  }
};

const Key kFp8{.heads = 16, .page_slots = 128};
const Key kNvfp4{.heads = 32, .record = Record::nvfp4};

TEST_F(DecodeBits, WrittenAreLiveGroupsOnly) {
  warm_up({kFp8, kNvfp4});
  for (const Key& key : {kFp8, kNvfp4})
    for (const BackEnd back_end : kBackEnds) {
      const Choices choices{.key = key,
                            .tokens = 6,
                            .bad_positions = true,
                            .output_gap_bytes = 48,
                            .scale_gap_words = 3};
      SCOPED_TRACE(text_of(choices, back_end));
      HostCall host = make_call(choices, 1);
      const Bytes got = run(back_end, host);
      expect_nothing_else_written(host, got);
      const Bytes written = written_of(host, got);
      EXPECT_EQ(written.scales.size(), 4 * key.heads * 16) << "two tokens are not written";
      for (const u8 scale : written.scales) ASSERT_NE(scale, kOutputPattern);
      EXPECT_LT(std::count(written.data.begin(), written.data.end(), kOutputPattern),
                static_cast<std::ptrdiff_t>(written.data.size() / 20));
    }
}

TEST_F(DecodeBits, WhatNoListNamesIsNeverLookedAt) {
  warm_up({kFp8, kNvfp4});
  for (const Key& key : {kFp8, kNvfp4})
    for (const Holes holes :
         {Holes::front, Holes::middle, Holes::end, Holes::tiles, Holes::scattered, Holes::all})
      for (const Lengths lengths : {Lengths::full, Lengths::partial}) {
        Choices choices{.key = key,
                        .tokens = 3,
                        .lengths = lengths,
                        .holes = holes,
                        .row_gap_bytes = 16,
                        .page_gap_bytes = 48,
                        .unlisted = 0xff,
                        .dead_heads = 0x7fc0};
        HostCall poisoned = make_call(choices, 2);
        choices.unlisted = 0;
        choices.dead_heads = 0;
        HostCall clean = make_call(choices, 2);
        ASSERT_NE(poisoned.swa.cache, clean.swa.cache);
        for (const BackEnd back_end : kBackEnds) {
          SCOPED_TRACE(text_of(choices, back_end));
          EXPECT_EQ(run(back_end, poisoned), run(back_end, clean));
        }
      }
}

TEST_F(DecodeBits, EagerAndReplayedLaunchesFollowInputsThatChangeInPlace) {
  std::vector<Choices> cases;
  for (const u32 heads : {16u, 32u})
    for (const Record record : {Record::fp8, Record::nvfp4})
      for (const std::size_t tokens : {1u, 5u, 16u})
        cases.push_back({.key = {.heads = heads, .record = record}, .tokens = tokens});
  std::vector<Key> keys;
  for (const Choices& choices : cases) keys.push_back(choices.key);
  warm_up(keys);
  auto stream = driver_->stream();
  for (Choices choices : cases) {
    HostCall first = make_call(choices, 3);
    choices.lengths = Lengths::partial;
    choices.holes = Holes::middle;
    HostCall second = make_call(choices, 4);
    for (const BackEnd back_end : kBackEnds) {
      SCOPED_TRACE(text_of(choices, back_end));
      const Bytes of_first = run(back_end, first);
      const Bytes of_second = run(back_end, second);
      ASSERT_NE(of_first, of_second);
      DeviceCall call(*driver_, first);
      auto prepared = prepare(back_end, first.key, call.arguments, Overlap::yes);
      ASSERT_TRUE(prepared) << message_of(prepared);
      // Two in a row, the second of which starts while the first still writes.
      const auto graph = driver_->capture(stream, [&] {
        ASSERT_TRUE(prepared->launch(stream.handle()));
        ASSERT_TRUE(prepared->launch(stream.handle()));
      });
      for (unsigned round = 0; round < 6; ++round) {
        const bool is_second = round % 3 == 1;
        call.assign(is_second ? second : first);
        call.clear();
        if (round < 4) {
          graph.launch(stream);
        } else {
          ASSERT_TRUE(prepared->launch(stream.handle()));
        }
        stream.synchronize();
        ASSERT_EQ(call.bytes(), is_second ? of_second : of_first) << "round " << round;
      }
    }
  }
}

TEST_F(DecodeBits, OverlappedLaunchesWaitForWhatTheyRead) {
  warm_up({kFp8});
  ASSERT_TRUE(runtime_->add_source("late_copy.cu", kiln::test::kLateCopySource));
  const auto late_copy = runtime_->add({.name = "late_copy", .source = "late_copy.cu"});
  ASSERT_TRUE(late_copy) << message_of(late_copy);
  const auto copy_kernel = runtime_->get(*late_copy);
  ASSERT_TRUE(copy_kernel) << message_of(copy_kernel);
  HostCall host = make_call({.key = kFp8, .tokens = 4}, 5);
  for (const BackEnd back_end : kBackEnds) {
    const Bytes want = run(back_end, host);
    DeviceCall call(*driver_, host);
    auto stream = driver_->stream();
    for (DeviceBuffer* input :
         {&call.query, &call.swa_cache, &call.compressed_slots, &call.swa_lengths, &call.swa_slots,
          &call.compressed_cache, &call.compressed_lengths, &call.positions, &call.cos_sin,
          &call.sinks}) {
      const auto staged = driver_->upload(input->download<u8>());
      auto copy = runtime_->launches().prepare(
          *copy_kernel,
          {.grid_blocks = {8}, .block_threads = {256}, .overlap_previous = Overlap::yes},
          staged.address(), input->address(), static_cast<unsigned>(input->bytes() / 4));
      ASSERT_TRUE(copy) << message_of(copy);
      auto decode = prepare(back_end, kFp8, call.arguments, Overlap::yes);
      ASSERT_TRUE(decode) << message_of(decode);
      input->fill(0);
      call.clear();
      ASSERT_TRUE(copy->launch(stream.handle()));
      ASSERT_TRUE(decode->launch(stream.handle()));
      stream.synchronize();
      EXPECT_EQ(call.bytes(), want) << "input of " << input->bytes() << " bytes";
    }
  }
}

// Among steps that swap-AB shares out alike: up to 7 tokens, up to 15, and more.
TEST_F(DecodeBits, ATokenAloneIsTheTokenInABatch) {
  struct Step {
    std::size_t tokens, count, next;
  };
  warm_up({kFp8, kNvfp4});
  for (const Key& key : {kFp8, kNvfp4})
    for (const BackEnd back_end : kBackEnds)
      for (const auto& [tokens, count, next] :
           {Step{7, 1, 1}, Step{7, 3, 2}, Step{15, 8, 7}, Step{40, 16, 12}}) {
        const Choices choices{.key = key, .tokens = tokens, .lengths = Lengths::partial};
        SCOPED_TRACE(text_of(choices, back_end));
        HostCall host = make_call(choices, 6);
        DeviceCall call(*driver_, host);
        const Bytes batch = run(back_end, key, call);
        const Arguments whole = call.arguments;
        call.clear();
        // The same memory, `count` tokens at a time, from `next` to the next.
        for (std::size_t first = 0; first + count <= tokens; first += next) {
          Arguments part = whole;
          part.tokens = count;
          part.query = call.query.pointer(first * 65536);
          part.positions += first;
          part.swa_slots += first * key.swa_slots;
          part.swa_lengths += first;
          part.compressed_slots += first * key.compressed_slots;
          part.compressed_lengths += first;
          part.output = call.output.pointer(first * host.output_stride);
          part.output_scales = call.output_scales.pointer(first * 4);
          launch(back_end, key, part);
        }
        EXPECT_EQ(call.bytes(), batch) << count << " tokens at a time";
      }
}

TEST_F(DecodeBits, GapsBehindRowsPagesAndOutputsChangeNothing) {
  warm_up({kFp8, kNvfp4});
  for (const Key& key : {kFp8, kNvfp4})
    for (const BackEnd back_end : kBackEnds) {
      Choices choices{.key = key, .tokens = 5};
      SCOPED_TRACE(text_of(choices, back_end));
      HostCall compact = make_call(choices, 7);
      const Bytes want = written_of(compact, run(back_end, compact));
      for (const std::size_t gap : {16u, 336u, 4096u}) {
        choices.row_gap_bytes = gap;
        choices.page_gap_bytes = 2 * gap + 16;
        choices.output_gap_bytes = gap;
        choices.scale_gap_words = gap / 16;
        HostCall padded = make_call(choices, 7);
        const Bytes got = run(back_end, padded);
        EXPECT_EQ(written_of(padded, got), want) << gap;
        expect_nothing_else_written(padded, got);
      }
      EXPECT_EQ(written_of(compact, run(back_end, compact)), want) << "and again";
    }
}

TEST_F(DecodeBits, NoSinksAreSinksOfMinusInfinity) {
  warm_up({kFp8, kNvfp4});
  for (const Key& key : {kFp8, kNvfp4})
    for (const Lengths lengths : {Lengths::full, Lengths::only_swa, Lengths::none})
      for (const BackEnd back_end : kBackEnds) {
        Choices choices{.key = key, .tokens = 3, .lengths = lengths, .sinks = Sinks::none};
        SCOPED_TRACE(text_of(choices, back_end));
        HostCall none = make_call(choices, 8);
        choices.sinks = Sinks::null;
        HostCall null = make_call(choices, 8);
        ASSERT_EQ(none.query, null.query);
        EXPECT_EQ(run(back_end, none), run(back_end, null));
      }
}

/// Through the class itself, whose launches change their grid, and a mega program's their cluster.
template <class Decode>
void expect_launches_to_be_pointed_elsewhere(const CudaDriver& driver, const Decode& decode,
                                             const Bytes& of_many, const Bytes& of_few,
                                             HostCall& many, HostCall& few) {
  DeviceCall call_many(driver, many);
  DeviceCall call_few(driver, few);
  auto stream = driver.stream();
  auto launch = decode.prepare(call_many.arguments);
  ASSERT_TRUE(launch) << message_of(launch);
  const auto graph = driver.capture(stream, [&] { ASSERT_TRUE(launch->launch(stream.handle())); });
  graph.launch(stream);
  ASSERT_TRUE(launch->launch(stream.handle()));
  for (unsigned round = 0; round < 20; ++round) {
    ASSERT_TRUE(decode.update(*launch, call_few.arguments));
    ASSERT_TRUE(launch->launch(stream.handle()));
    ASSERT_TRUE(decode.update(*launch, call_many.arguments));
    ASSERT_TRUE(launch->launch(stream.handle()));
    graph.launch(stream);
  }
  stream.synchronize();
  EXPECT_EQ(call_many.bytes(), of_many);
  EXPECT_EQ(call_few.bytes(), of_few);

  Arguments nothing = call_many.arguments;
  nothing.tokens = 0;
  EXPECT_EQ(decode.update(*launch, nothing).code(), ErrorCode::invalid_argument);
  call_many.clear();
  EXPECT_TRUE(decode.launch(nothing, stream.handle()));
  stream.synchronize();
  const Bytes untouched = call_many.bytes();
  EXPECT_EQ(std::count(untouched.data.begin(), untouched.data.end(), kOutputPattern),
            static_cast<std::ptrdiff_t>(untouched.data.size()));
}

TEST_F(DecodeBits, LaunchesMayBePointedElsewhere) {
  warm_up({kFp8});
  mega_blocks_ = 0;
  HostCall many = make_call({.key = kFp8, .tokens = 40}, 9);
  HostCall few = make_call({.key = kFp8, .tokens = 3, .row_gap_bytes = 32}, 10);
  const auto swapab = SwapabDecode::create(*runtime_, kFp8);
  ASSERT_TRUE(swapab) << message_of(swapab);
  expect_launches_to_be_pointed_elsewhere(*driver_, *swapab, run(BackEnd::own, many),
                                          run(BackEnd::own, few), many, few);
  const auto mega = MegaDecode::create(*runtime_, kFp8);
  ASSERT_TRUE(mega) << message_of(mega);
  expect_launches_to_be_pointed_elsewhere(*driver_, *mega, run(BackEnd::mega, many),
                                          run(BackEnd::mega, few), many, few);
}

// What the tests above would see of a merge whose order changes from run to run.
TEST_F(DecodeBits, NeedAFixedOrderOfTheMerge) {
  Runtime mutated = open_runtime();
  const Status added = add_changed_sources(mutated, kMergeInAnyOrder.edits);
  ASSERT_TRUE(added) << message_of(added);
  const auto decode = SwapabDecode::create(mutated, kMergeInAnyOrder.key);
  ASSERT_TRUE(decode) << message_of(decode);
  // The sums differ in their last bits, which show in one byte of a million.
  HostCall host = make_call({.key = kMergeInAnyOrder.key, .tokens = 256}, 13);
  DeviceCall call(*driver_, host);
  const auto bytes = [&] {
    call.clear();
    EXPECT_TRUE(decode->launch(call.arguments, nullptr));
    return call.bytes();
  };
  const Bytes first = bytes();
  bool differs = false;
  for (unsigned round = 0; round < 20; ++round) differs |= bytes() != first;
  EXPECT_TRUE(differs);
}

// Offsets pass 2^31 and 2^32: a product of 32 bits would read NaN, or write, 2 or 4 GiB below.
class DecodeFarAddresses : public DecodeGpu {
 protected:
  static constexpr std::size_t kMebibyte = std::size_t{1} << 20;

  /// `bytes` of 0xff, which is NaN in either record.
  static std::optional<DeviceBuffer> far_memory(std::size_t bytes) {
    if (driver_->free_bytes() < bytes + 512 * kMebibyte) return {};
    auto memory = driver_->buffer(bytes);
    memory.fill(0xff);
    return memory;
  }
  static void spread(const HostList& list, DeviceBuffer& to, std::size_t page, std::size_t row) {
    const std::size_t record = dsv41::record_bytes(list.record);
    for (std::size_t p = 0; p < list.pages; ++p)
      for (std::size_t i = 0; i < list.page_slots; ++i)
        to.write(p * page + i * row, list.cache.data() + p * list.page_stride + i * list.row_stride,
                 record);
  }
};

TEST_F(DecodeFarAddresses, OfRecordsAreExact) {
  warm_up({kFp8, kNvfp4});
  constexpr std::size_t far = std::size_t{5} << 30;
  for (const Key& key : {kFp8, kNvfp4})
    for (const bool in_swa : {false, true})
      for (const bool far_rows : {false, true}) {
        SCOPED_TRACE(text_of({.key = key}) + (in_swa ? ", far swa" : ", far compressed") +
                     (far_rows ? " rows" : " pages"));
        HostCall host = make_call({.key = key, .tokens = 3}, 11);
        DeviceCall call(*driver_, host);
        const Bytes want[] = {run(BackEnd::own, key, call), run(BackEnd::mega, key, call)};
        const HostList& list = in_swa ? host.swa : host.compressed;
        std::size_t row = dsv41::record_bytes(list.record);
        if (far_rows) row = (far / (list.pages * list.page_slots) / 16 + 1) * 16;
        std::size_t page = list.page_slots * row;
        if (!far_rows) page = (far / (list.pages - 1) / 16 + 1) * 16;
        auto memory = far_memory(list.pages * page);
        if (!memory) GTEST_SKIP() << "needs " << list.pages * page / kMebibyte << " MiB";
        spread(list, *memory, page, row);
        Arguments& arguments = call.arguments;
        (in_swa ? arguments.swa_cache : arguments.compressed_cache) = memory->pointer();
        (in_swa ? arguments.swa_page_stride_bytes : arguments.compressed_page_stride_bytes) = page;
        (in_swa ? arguments.swa_row_stride_bytes : arguments.compressed_row_stride_bytes) = row;
        EXPECT_EQ(run(BackEnd::own, key, call), want[0]);
        EXPECT_EQ(run(BackEnd::mega, key, call), want[1]);
      }
}

TEST_F(DecodeFarAddresses, OfOutputsAreExact) {
  warm_up({kNvfp4});
  constexpr std::size_t kTokens = 11;
  constexpr std::size_t kStride = 512 * kMebibyte;      // 10 of them are 5 GiB
  constexpr std::size_t kGroupWords = 448 * kMebibyte;  // 3 are 5.25 GiB
  constexpr std::size_t kColumnWords = 12;
  HostCall host = make_call({.key = kNvfp4, .tokens = kTokens}, 12);
  DeviceCall call(*driver_, host);
  const Bytes want = run(BackEnd::own, kNvfp4, call);
  auto memory = far_memory((kTokens - 1) * kStride + 2 * 32768 * kTokens);
  if (!memory) GTEST_SKIP() << "needs 5.3 GiB of free device memory";
  call.arguments.output = memory->pointer();
  call.arguments.output_stride_bytes = kStride;
  launch(BackEnd::own, kNvfp4, call.arguments);
  for (std::size_t token = 0; token < kTokens; ++token) {
    const auto got = memory->download<u8>(token * kStride, 32 * 512);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.data.data() + token * host.output_stride))
        << token;
  }
  call.clear();
  call.arguments.output = call.output.pointer();
  call.arguments.output_stride_bytes = host.output_stride;
  memory.reset();
  memory = far_memory(3 * kGroupWords * 4 + 32 * kColumnWords * 4);
  if (!memory) GTEST_SKIP() << "needs 5.3 GiB of free device memory";
  call.arguments.output_scales = memory->pointer();
  call.arguments.scale_group_stride_words = kGroupWords;
  call.arguments.scale_column_stride_words = kColumnWords;
  launch(BackEnd::own, kNvfp4, call.arguments);
  EXPECT_EQ(call.bytes().data, want.data);
  for (std::size_t group = 0; group < 4; ++group)
    for (std::size_t column = 0; column < 32; ++column) {
      const auto got =
          memory->download<u8>((group * kGroupWords + column * kColumnWords) * 4, 4 * kTokens);
      const auto* at = want.scales.data() +
                       (group * host.scale_group_stride + column * host.scale_column_stride) * 4;
      EXPECT_TRUE(std::equal(got.begin(), got.end(), at)) << group << ", " << column;
    }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
