// Kimi-K3 MLA on the device whatever its plan, its cache and its steps look like: every number of
// splits, plans of other machines and for other lengths, pages behind 4 GiB, prefixes that requests
// share. Against the reference on the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/gpu/kimi_k3_mla_with_reference.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

class KimiK3MlaPlansGpu : public KimiK3MlaWithReference {
 protected:
  /// A weight of one E4M3 term shows where few keys count: 0.02 rather than 0.01.
  static double absolute_for(u32 heads, std::int32_t query) {
    const u32 rows = heads * static_cast<u32>(query);
    return rows <= 32 ? 0.01 : 0.02;
  }
};

// More splits than there are tiles, too: the first ones, those in the middle or the last see no
// key.
TEST_F(KimiK3MlaPlansGpu, AreRightInEveryNumberOfSplitsWithManyOfThemEmpty) {
  struct Case {
    u32 heads;
    std::vector<std::int32_t> queries;
    std::size_t spare_entries;  // 70: room for more than 8192 keys
  };
  for (const auto& [heads, queries, spare_entries] :
       {Case{12, {1, 1, 1, 1, 1, 1}, 3}, Case{12, {1, 4, 0, 2, 3, 1}, 3},
        Case{96, {1, 1, 1, 1, 1, 1}, 3}, Case{96, {1, 2, 1, 1, 2, 2}, 3},
        Case{96, {1, 2, 1, 1, 2, 2}, 70}})
    for (const u32 split : {1u, 2u, 3u, 7u, 31u, 32u, 33u, 256u}) {
      SCOPED_TRACE(std::to_string(heads) + " heads, " + std::to_string(split) + " splits");
      HostCall host = make_call({.heads = heads,
                                 .lengths = {0, 1, 63, 64, 65, 4097},
                                 .queries = queries,
                                 .key_scale = 0.5f,
                                 .spare_entries = spare_entries,
                                 .split = split},
                                50);
      expect_contract(
          errors_of(*programmed_, host, kSoftmaxScale,
                    absolute_for(heads, *std::max_element(queries.begin(), queries.end()))),
          0.025);
    }
}

TEST_F(KimiK3MlaPlansGpu, AreRightForMachinesOfEverySize) {
  const auto codes = random_codes(kCodes, -kUnit, kUnit, 51);
  for (const LongRow& row : {LongRow{"h12", 12, 2, 1, 131072}, LongRow{"h96", 96, 2, 1, 131072},
                             LongRow{"h96_q2", 96, 2, 2, 131072}}) {
    LongCache cache(*driver_, std::vector<LongRow>{row}, codes);
    for (const u32 sm_count : {7u, 48u, 66u, 76u, 114u, 132u, 148u}) {
      SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(sm_count) + " SMs");
      const auto made = DeviceRow::make(*driver_, cache, row, codes, sm_count);
      ASSERT_TRUE(made) << message_of(made);
      launch(*programmed_, made->arguments, made->plan);
      expect_contract(errors_in(made->call, every(row.rows(), 1)), most_l2(made->plan.row_tile));
    }
  }
}

// A plan is for the largest length; a captured one replays at every other one.
TEST_F(KimiK3MlaPlansGpu, ReplayFarFromTheLengthThatTheyWereMadeFor) {
  const auto codes = random_codes(kCodes, -kUnit, kUnit, 52);
  auto stream = driver_->stream();
  for (const LongRow& row : {LongRow{"h12", 12, 2, 1, 131072}, LongRow{"h96", 96, 2, 1, 131072},
                             LongRow{"h96_q2", 96, 2, 2, 131072}}) {
    LongCache cache(*driver_, std::vector<LongRow>{row}, codes);
    auto made = DeviceRow::make(*driver_, cache, row, codes, kSmCount);
    ASSERT_TRUE(made) << message_of(made);
    for (const u64 planned : {u64{1}, u64{131072}}) {
      made->arguments.max_keys = planned;
      const auto call = check(made->arguments);
      ASSERT_TRUE(call) << message_of(call);
      const auto plan = kimi_k3_mla::plan(call->problem(), kSmCount, kH200);
      ASSERT_TRUE(plan) << message_of(plan);
      EXPECT_EQ(plan->num_split == 1, planned == 1);
      auto launches = programmed_->attention->prepare(made->arguments, *plan);
      ASSERT_TRUE(launches) << message_of(launches);
      ASSERT_TRUE(launches->launch(stream.handle()));
      const auto graph =
          driver_->capture(stream, [&] { ASSERT_TRUE(launches->launch(stream.handle())); });
      for (const std::int32_t length : {1, 131072, 20000, 0}) {
        SCOPED_TRACE(std::string(row.name) + ", planned for " + std::to_string(planned) +
                     " keys, at " + std::to_string(length));
        made->on_device_lengths.assign(std::vector<std::int32_t>(row.batch, length));
        made->output.fill(0xff);
        graph.launch(stream);
        stream.synchronize();
        expect_contract(errors_in(*call, every(row.rows(), 1)), 0.025);
      }
    }
  }
}

/// `host`'s pages in a cache of which a page is `page_stride` bytes from the next: some around
/// 2^31 bytes, the others around 2^32. All else there is NaN.
struct FarPages {
  FarPages(const CudaDriver& driver, const HostCall& host, u64 page_stride)
      : pages((u64{1} << 32) / page_stride + host.pages),
        memory(driver.buffer(pages * page_stride)) {
    memory.fill(0xff);
    for (u64 page = 0; page < host.pages; ++page) {
      const u64 end = page % 2 == 0 ? u64{1} << 31 : u64{1} << 32;
      places.push_back(static_cast<std::int32_t>(end / page_stride - host.pages / 2 + page));
      memory.write(static_cast<u64>(places.back()) * page_stride,
                   host.cache.data() + page * host.page_stride, kPageKeys * kKeyDim);
    }
  }
  u64 pages;
  DeviceBuffer memory;
  std::vector<std::int32_t> places{};  // of each page
};

// As if 61 layers shared each page.
TEST_F(KimiK3MlaPlansGpu, FindPagesOnBothSidesOf2And4Gigabytes) {
  constexpr u64 page_stride = u64{61} * kPageKeys * kKeyDim;
  for (const u32 heads : {12u, 96u}) {
    SCOPED_TRACE(heads);
    HostCall host = make_call({.heads = heads, .lengths = {700, 2000}}, 53);
    const auto checked = check(host.arguments());
    ASSERT_TRUE(checked) << message_of(checked);
    const auto plan = kimi_k3_mla::plan(checked->problem(), kSmCount, kH200);
    ASSERT_TRUE(plan) << message_of(plan);
    DeviceCall near(*driver_, host, workspace_bytes(*plan));
    launch(*programmed_, near.arguments, *plan);

    FarPages far(*driver_, host, page_stride);
    HostCall moved = host;
    for (std::size_t request = 0; request < host.batch(); ++request)
      for (std::size_t i = 0; i < detail::pages_of(host.lengths[request]); ++i) {
        std::int32_t& page = moved.tables[request * host.table_stride + i];
        page = far.places[static_cast<std::size_t>(page)];
      }
    DeviceCall call(*driver_, moved, workspace_bytes(*plan));
    call.arguments.cache =
        Tensor::dense(far.memory.pointer(), DataType::e4m3, {far.pages, kPageKeys, kKeyDim});
    call.arguments.cache.strides = {page_stride, kKeyDim, 1};
    launch(*programmed_, call.arguments, *plan);
    EXPECT_EQ(call.bytes(), near.bytes());
  }
}

// Prefill that goes on from cached prefixes, of which one is shared.
TEST_F(KimiK3MlaPlansGpu, PrefillOnTopOfAPrefixThatRequestsShare) {
  for (const u32 heads : {12u, 96u})
    for (const std::size_t spare_entries : {3u, 70u}) {  // below 8192 keys, and above
      SCOPED_TRACE(std::to_string(heads) + " heads, " + std::to_string(spare_entries));
      HostCall host = make_call({.heads = heads,
                                 .lengths = {4096 + 384, 1000 + 97},
                                 .queries = {384, 97},
                                 .key_scale = 0.5f,
                                 .spare_entries = spare_entries},
                                54);
      std::copy_n(host.tables.begin(), 1000 / kPageKeys,
                  host.tables.begin() + static_cast<std::ptrdiff_t>(host.table_stride));
      expect_contract(errors_of(*programmed_, host, kSoftmaxScale), 0.025);
    }
}

// R10: a key some 150 octaves above all others, which even heads ask for, at the start of long
// rows.
TEST_F(KimiK3MlaPlansGpu, FollowASinkInOneSplitAsInMany) {
  const auto codes = random_codes(kCodes, -kUnit, kUnit, 55);
  const std::vector<u8> sink(kKeyDim, static_cast<u8>(e4m3_of_float(2)));
  for (const LongRow& row : {LongRow{"h12_b1", 12, 1, 1, 76800}, LongRow{"h12_b8", 12, 8, 1, 896},
                             LongRow{"h96_b2", 96, 2, 1, 2000}, LongRow{"h96_b1", 96, 1, 1, 76800},
                             LongRow{"h96_b1_q2", 96, 1, 2, 76800}})
    for (const u32 split : {0u, 1u}) {
      SCOPED_TRACE(std::string(row.name) + ", split " + std::to_string(split));
      LongCache cache(*driver_, std::vector<LongRow>{row}, codes);
      auto made = DeviceRow::make(*driver_, cache, row, codes, kSmCount, split);
      ASSERT_TRUE(made) << message_of(made);
      for (u64 request = 0; request < row.batch; ++request)
        made->write_key(cache, request, 0, sink.data());
      for (u64 packed = 0; packed < row.rows(); packed += 2)
        std::fill_n(made->query.begin() + static_cast<std::ptrdiff_t>(packed * kKeyDim), kKeyDim,
                    static_cast<u8>(e4m3_of_float(1.25f)));
      made->on_device_query.assign(made->query);
      launch(*programmed_, made->arguments, made->plan);
      const Errors errors = errors_in(made->call, every(row.rows(), 1), 0.1, 0.1);
      expect_contract(errors, 0.05);
    }
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
