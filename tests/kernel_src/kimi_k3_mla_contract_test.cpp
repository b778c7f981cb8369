// What a call of Kimi-K3 MLA must hold before anything is launched: each fault alone is refused and
// named.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kimi_k3_mla/contract.hpp"
#include "support/runtime_fixture.hpp"
#include "tests/kernel_src/kimi_k3_mla_calls.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

using kiln::test::message_of;

TEST(KimiK3MlaContract, TakesAGoodCallAndGivesItsNumbers) {
  const auto call = check(packed());
  ASSERT_TRUE(call) << message_of(call);
  EXPECT_EQ(call->heads, 12u);
  EXPECT_EQ(call->batch, 3u);
  EXPECT_EQ(call->tokens, 7u);
  EXPECT_EQ(call->max_query, 4u);
  EXPECT_EQ(call->max_keys, 512u);
  EXPECT_EQ(call->pages, 100u);
  EXPECT_EQ(call->row_stride_bytes, 576u);
  EXPECT_EQ(call->page_stride_bytes, 36864u);
  EXPECT_EQ(call->table_width, 8u);
  EXPECT_EQ(call->table_stride, 8u);
  EXPECT_EQ(call->query_starts, at<const std::int32_t>(kStarts));
  EXPECT_FLOAT_EQ(call->softmax_scale_log2, 0.07f * 1.442695f);
  const Problem problem = call->problem();
  EXPECT_EQ(problem.query, 4u);
  EXPECT_EQ(problem.keys, 512u);

  const auto other = check(uniform());
  ASSERT_TRUE(other) << message_of(other);
  EXPECT_EQ(other->tokens, 6u);
  EXPECT_EQ(other->max_query, 2u);
  EXPECT_EQ(other->query_starts, nullptr);
}

TEST(KimiK3MlaContract, TakesStridesThatKernelsCanFollow) {
  struct Case {
    const char* name;
    std::function<void(Arguments&)> change;
    u64 row_stride, page_stride, table_stride;
  };
  for (const auto& [name, change, row_stride, page_stride, table_stride] : {
           Case{"rows of 640 bytes",
                [](auto& a) {
                  a.cache.strides = {64 * 640, 640, 1};
                },
                640, 40960, 8},
           Case{"pages that two layers share",
                [](auto& a) {
                  a.cache.strides = {2 * 36864, 576, 1};
                },
                576, 73728, 8},
           Case{"a last key that ends with its page",
                [](auto& a) {
                  a.cache.strides = {63 * 640 + 576, 640, 1};
                },
                640, 40896, 8},
           Case{"a head dimension of one",
                [](auto& a) {
                  a.cache = Tensor::dense(at(kCache), DataType::e4m3, {100, 1, 64, 576});
                  a.cache.strides[1] = 12345;
                },
                576, 36864, 8},
           Case{"one page, whose stride says nothing",
                [](auto& a) {
                  a.cache.shape[0] = 1;
                  a.cache.strides[0] = 1;
                },
                576, 36864, 8},
           Case{"table rows further apart",
                [](auto& a) {
                  a.block_tables.strides = {100, 1};
                },
                576, 36864, 100},
       }) {
    Arguments arguments = packed();
    change(arguments);
    const auto call = check(arguments);
    ASSERT_TRUE(call) << name << ": " << message_of(call);
    EXPECT_EQ(call->row_stride_bytes, row_stride) << name;
    EXPECT_EQ(call->page_stride_bytes, page_stride) << name;
    EXPECT_EQ(call->table_stride, table_stride) << name;
  }
}

TEST(KimiK3MlaContract, NamesEachFaultOfTheDescription) {
  struct Case {
    std::function<void(Arguments&)> change;
    std::string_view says;
    bool of_uniform = false;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Case> cases = {
      // types, by name
      {[](auto& a) { a.query.type = DataType::bfloat16; },
       "query is bfloat16; it must be float8_e4m3fn"},
      {[](auto& a) { a.query.type = DataType::e5m2; }, "query is float8_e5m2; it must be"},
      {[](auto& a) { a.cache.type = DataType::float16; },
       "cache is float16; it must be float8_e4m3fn"},
      {[](auto& a) { a.output.type = DataType::float16; },
       "output is float16; it must be bfloat16"},
      {[](auto& a) { a.lengths.type = DataType::int64; }, "lengths is int64; it must be int32"},
      {[](auto& a) { a.block_tables.type = DataType::int64; },
       "block_tables is int64; it must be int32"},
      {[](auto& a) { a.query_starts.type = DataType::float32; },
       "query_starts is float32; it must be int32"},
      // shapes
      {[](auto& a) {
         a.query = {};
         a.query.type = DataType::e4m3;
       },
       "query is of shape []"},
      {[](auto& a) { a.query.rank = 7; }, "query is of shape [7, 12, 576, 0]; it must be [batch"},
      {[](auto& a) { a.query.shape[2] = 512; }, "query is of shape [7, 12, 512]; it must be"},
      {[](auto& a) { a.query.shape[1] = 0; }, "of 1 to 128 heads, its dimension 1"},
      {[](auto& a) { a.query.shape[2] = 129; }, "of 1 to 128 heads, its dimension 2", true},
      {[](auto& a) { a.query.shape[0] = u64{1} << 31; }, "of at most 2147483647 tokens"},
      {[](auto& a) { a.query.shape[0] = a.query.shape[1] = u64{1} << 20; },
       "of at most 2147483647 tokens", true},
      {[](auto& a) { a.cache.shape[1] = 32; },
       "cache is of shape [100, 32, 576]; it must be [pages, 64, 576] or [pages, 1, 64, 576]"},
      {[](auto& a) { a.cache.shape[2] = 512; }, "cache is of shape [100, 64, 512]"},
      {[](auto& a) {
         a.cache = Tensor::dense(at(kCache), DataType::e4m3, {100, 2, 64, 576});
       },
       "cache is of shape [100, 2, 64, 576]"},
      {[](auto& a) { a.cache.shape[0] = (u64{1} << 31) + 1; }, "of at most 2^31 pages"},
      {[](auto& a) { a.block_tables.rank = 1; }, "block_tables is of shape [3]; it must be [batch"},
      {[](auto& a) { a.block_tables.shape[0] = 2; }, "with the query's batch of 3", true},
      {[](auto& a) { a.block_tables.shape[0] = 65536; }, "of at most 65535 requests"},
      {[](auto& a) { a.block_tables.shape[1] = u64{1} << 26; },
       "of at most 33554429 pages a request"},
      {[](auto& a) { a.lengths.shape[0] = 2; },
       "lengths is of shape [2]; it must be [batch], here [3]"},
      {[](auto& a) { a.lengths.rank = 2; }, "lengths is of shape [3, 0]"},
      {[](auto& a) { a.query_starts.shape[0] = 3; },
       "query_starts is of shape [3]; it must be [batch + 1], here [4]"},
      {[](auto& a) { a.query_starts = {}; }, "query_starts is null; a packed query needs it"},
      {[](auto& a) { a.query_starts = packed().query_starts; },
       "query_starts is given; it goes with a packed query", true},
      {[](auto& a) { a.output.shape[2] = 576; },
       "output is of shape [7, 12, 576]; it must be the query's shape with 512 for 576, here [7, "
       "12, 512]"},
      {[](auto& a) { a.output.shape[0] = 8; }, "output is of shape [8, 12, 512]"},
      {[](auto& a) { a.output.rank = 4; }, "output is of shape [7, 12, 512, 0]"},
      // strides
      {[](auto& a) {
         a.query.strides = {576, 7 * 576, 1};
       },
       "query is of shape [7, 12, 576] with strides [576, 4032, 1]; it must have no gaps"},
      {[](auto& a) { a.query.strides[2] = 2; }, "query is of shape [7, 12, 576] with strides"},
      {[](auto& a) { a.output.strides[0] = 8192; }, "it must have no gaps"},
      {[](auto& a) { a.cache.strides[2] = 2; }, "its last dimension must have stride 1"},
      {[](auto& a) { a.cache.strides[1] = 584; },
       "stride from key to key is 584; it must be a multiple of 16 from 576"},
      {[](auto& a) { a.cache.strides[1] = 560; }, "stride from key to key is 560"},
      {[](auto& a) { a.cache.strides[0] = 36848; },
       "stride from page to page is 36848; it must be a multiple of 16 from 36864"},
      {[](auto& a) { a.cache.strides[0] = 36872; }, "stride from page to page is 36872"},
      {[](auto& a) { a.cache.strides[0] = u64{1} << 40; },
       "stride from page to page is 1099511627776"},
      {[](auto& a) { a.block_tables.strides[0] = 7; }, "its rows must not overlap"},
      {[](auto& a) { a.block_tables.strides[1] = 2; }, "its last dimension must have stride 1"},
      {[](auto& a) { a.lengths.strides[0] = 2; }, "its last dimension must have stride 1"},
      // numbers
      {[](auto& a) { a.max_query = 0; }, "max_query is 0; a packed query needs it"},
      {[](auto& a) { a.max_query = 3; }, "max_query is 3; it must be the query's q, 2", true},
      {[](auto& a) { a.max_query = u64{1} << 31; }, "max_query is 2147483648; it must be at most"},
      {[](auto& a) { a.max_keys = 513; },
       "max_keys is 513; it must be at most 512, what the block tables have room for"},
      {[](auto& a) { a.split = 257; }, "split is 257; it must be from 1 to 256"},
      {[](auto& a) { a.split = static_cast<u32>(-1); }, "split is 4294967295; it must be from 1"},
      {[](auto& a) { a.softmax_scale = 0; }, "softmax_scale is 0; it must be finite and"},
      {[](auto& a) { a.softmax_scale = -1; }, "softmax_scale is -1;"},
      {[](auto& a) { a.softmax_scale = std::nanf(""); }, "softmax_scale is nan"},
      {[infinity](auto& a) { a.softmax_scale = infinity; }, "softmax_scale is inf"},
      {[](auto& a) { a.softmax_scale = 3e38f; }, "times log2(e) it must fit fp32"},
      {[infinity](auto& a) { a.output_scale = infinity; },
       "output_scale is inf; it must be finite"},
      // memory
      {[](auto& a) { a.query.data = nullptr; }, "query is null; it must be a device pointer"},
      {[](auto& a) { a.query.data = at(kQuery + 8); },
       "query is 0x10000008; it must be a multiple"},
      {[](auto& a) { a.cache.data = nullptr; }, "cache is null"},
      {[](auto& a) { a.cache.data = at(kCache + 4); }, "cache is 0x20000004"},
      {[](auto& a) { a.block_tables.data = nullptr; }, "block_tables is null"},
      {[](auto& a) { a.lengths.data = nullptr; }, "lengths is null"},
      {[](auto& a) { a.lengths.data = at(kLengths + 2); }, "lengths is 0x31000002"},
      {[](auto& a) { a.query_starts.data = nullptr; }, "query_starts is null"},
      {[](auto& a) { a.output.data = nullptr; }, "output is null"},
      {[](auto& a) { a.output.data = at<void>(kQuery); }, "output is over query; what is written"},
      {[](auto& a) { a.output.data = at<void>(kCache + 100 * 36864 - 16); },
       "output is over cache"},
      {[](auto& a) { a.output.data = at<void>(kTables + 80); }, "output is over block_tables"},
      {[](auto& a) { a.output.data = at<void>(kLengths - 7 * 12 * 1024 + 16); },
       "output is over lengths"},
      {[](auto& a) { a.output.data = at<void>(kStarts); }, "output is over query_starts"},
      // devices
      {[](auto& a) {
         a.query.device = 0;
         a.cache.device = 1;
       },
       "cache is on device 1; it must be on device 0, where query is"},
      {[](auto& a) {
         a.cache.device = 1;
         a.lengths.device = 0;
       },
       "lengths is on device 0; it must be on device 1, where cache is"},
      {[](auto& a) {
         a.query.device = 2;
         a.output.device = 1;
       },
       "output is on device 1"},
  };
  for (const auto& [change, says, of_uniform] : cases) {
    Arguments arguments = of_uniform ? uniform() : packed();
    change(arguments);
    const auto call = check(arguments);
    ASSERT_FALSE(call) << says;
    EXPECT_EQ(call.error().code(), ErrorCode::invalid_argument) << message_of(call);
    EXPECT_NE(message_of(call).find("kimi_k3_mla: "), std::string::npos) << message_of(call);
    EXPECT_NE(message_of(call).find(says), std::string::npos) << says << "\n" << message_of(call);
  }
}

TEST(KimiK3MlaContract, TakesMemoryThatEndsWhereTheOutputBegins) {
  Arguments arguments = packed();
  arguments.output.data = at<void>(kCache + 100 * 36864);
  EXPECT_TRUE(check(arguments)) << message_of(check(arguments));
  arguments.output.data = at<void>(kLengths - 7 * 12 * 1024);
  EXPECT_TRUE(check(arguments)) << message_of(check(arguments));
}

TEST(KimiK3MlaContract, RefusesEachOptionThatNoKernelTakesByName) {
  struct Case {
    std::function<void(Arguments&)> change;
    std::string_view says;
  };
  static int something = 0;
  for (const auto& [change, says] : {
           Case{[](auto& a) { a.unsupported.sparse_top_k = 2048; }, "sparse_top_k is 2048"},
           Case{[](auto& a) { a.unsupported.sinks = &something; }, "sinks is given"},
           Case{[](auto& a) { a.unsupported.lse = &something; }, "lse is given"},
           Case{[](auto& a) { a.unsupported.dcp_ranks = 2; }, "dcp_ranks is 2"},
           Case{[](auto& a) { a.unsupported.skip_softmax_threshold = 0.5f; },
                "skip_softmax_threshold is 0.5"},
           Case{[](auto& a) { a.unsupported.skip_softmax_threshold = 1e-9f; },
                "skip_softmax_threshold is 1e-09"},
           Case{[](auto& a) { a.unsupported.fp16_softmax = true; }, "fp16_softmax is true"},
           Case{[](auto& a) { a.unsupported.enable_pdl = true; }, "enable_pdl is true"},
           Case{[](auto& a) { a.unsupported.multi_ctas_kv_counter_buffer = &something; },
                "multi_ctas_kv_counter_buffer is given"},
           Case{[](auto& a) { a.cache.type = DataType::nvfp4; }, "cache is nvfp4; NVFP4 caches"},
           Case{[](auto& a) { a.cache.type = DataType::uint8; }, "cache is uint8; NVFP4 caches"},
       }) {
    Arguments arguments = packed();
    change(arguments);
    const auto call = check(arguments);
    ASSERT_FALSE(call) << says;
    EXPECT_EQ(call.error().code(), ErrorCode::unsupported) << message_of(call);
    EXPECT_NE(message_of(call).find(says), std::string::npos) << message_of(call);
  }
}

TEST(KimiK3MlaContract, HasNothingToDoForEmptyCallsWhateverLiesBehindThem) {
  for (const bool no_batch : {true, false}) {
    const u64 batch = no_batch ? 0 : 3;
    Arguments arguments = packed();
    arguments.query = Tensor::dense(nullptr, DataType::e4m3, {0, 12, 576});
    arguments.output = OutputTensor::dense(nullptr, DataType::bfloat16, {0, 12, 512});
    arguments.block_tables = Tensor::dense(nullptr, DataType::int32, {batch, 8});
    arguments.lengths = Tensor::dense(nullptr, DataType::int32, {batch});
    arguments.query_starts = Tensor::dense(nullptr, DataType::int32, {batch + 1});
    arguments.max_query = 0;
    const auto call = check(arguments);
    ASSERT_TRUE(call) << message_of(call);
    EXPECT_EQ(call->tokens, 0u);
    const auto made = plan(call->problem(), 132, kH200);
    ASSERT_TRUE(made) << message_of(made);
    EXPECT_EQ(made->grid.x, 0u);
    EXPECT_TRUE(check_workspace(*call, *made));
    EXPECT_TRUE(check_tables(*call, {}));
  }
  // A query of no tokens each, and an empty batch of the other form.
  for (const auto& shape : {std::array<u64, 2>{3, 0}, std::array<u64, 2>{0, 2}}) {
    Arguments arguments = uniform();
    arguments.query = Tensor::dense(nullptr, DataType::e4m3, {shape[0], shape[1], 12, 576});
    arguments.output =
        OutputTensor::dense(nullptr, DataType::bfloat16, {shape[0], shape[1], 12, 512});
    arguments.block_tables.shape[0] = arguments.lengths.shape[0] = shape[0];
    const auto call = check(arguments);
    ASSERT_TRUE(call) << message_of(call);
    EXPECT_EQ(call->tokens, 0u);
  }
  // Tokens that no request owns.
  Arguments arguments = packed();
  arguments.block_tables.shape[0] = arguments.lengths.shape[0] = 0;
  arguments.query_starts.shape[0] = 1;
  const auto call = check(arguments);
  ASSERT_TRUE(call) << message_of(call);
  EXPECT_EQ(call->tokens, 0u);
  // Requests without keys need neither tables nor a cache.
  arguments = packed();
  arguments.block_tables = Tensor::dense(nullptr, DataType::int32, {3, 0});
  arguments.cache = Tensor::dense(nullptr, DataType::e4m3, {0, 64, 576});
  EXPECT_TRUE(check(arguments)) << message_of(check(arguments));
}

TEST(KimiK3MlaContract, WantsTheWorkspaceToTheByte) {
  Arguments arguments = packed();
  arguments.split = 4;
  const auto checked = check(arguments);
  ASSERT_TRUE(checked) << message_of(checked);
  const auto made = plan(checked->problem(), 132, kH200);
  ASSERT_TRUE(made) << message_of(made);
  const u64 needed = workspace_bytes(*made);
  EXPECT_EQ(needed, u64{3} * 4 * 12 * 4 * (1024 + 8));
  const auto status = [&](void* workspace, u64 bytes) {
    Call call = *checked;
    call.workspace = workspace;
    call.workspace_bytes = bytes;
    return check_workspace(call, *made);
  };
  EXPECT_TRUE(status(at<void>(kWorkspace), needed));
  const Status short_by_one = status(at<void>(kWorkspace), needed - 1);
  ASSERT_FALSE(short_by_one);
  EXPECT_EQ(short_by_one.code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(short_by_one)
                .find("workspace_bytes is " + std::to_string(needed - 1) +
                      "; this plan of 4 splits needs " + std::to_string(needed)),
            std::string::npos)
      << message_of(short_by_one);
  EXPECT_NE(message_of(status(nullptr, needed)).find("workspace is null"), std::string::npos);
  EXPECT_NE(message_of(status(at<void>(kWorkspace + 8), needed)).find("multiple of 16"),
            std::string::npos);
  EXPECT_NE(message_of(status(at<void>(kOutput + 16), needed)).find("workspace is over output"),
            std::string::npos);
  EXPECT_NE(message_of(status(at<void>(kQuery - 16), needed)).find("workspace is over query"),
            std::string::npos);
  // A plan without splits wants none.
  EXPECT_TRUE(check_workspace(*checked, *plan({12, 3, 4, 128}, 132, kH200)));
}

TEST(KimiK3MlaContract, GivesTheProgramsTheirArguments) {
  Arguments arguments = packed();
  arguments.split = 4;
  arguments.output_scale = 3;
  const auto call = check(arguments);
  ASSERT_TRUE(call) << message_of(call);
  const auto made = plan(call->problem(), 132, kH200);
  ASSERT_TRUE(made) << message_of(made);
  const Args args = args_of(*call, *made);
  EXPECT_EQ(args.query, at<const u8>(kQuery));
  EXPECT_EQ(args.block_tables, at<const int>(kTables));
  EXPECT_EQ(args.seq_lens, at<const int>(kLengths));
  EXPECT_EQ(args.query_starts, at<const int>(kStarts));
  EXPECT_EQ(args.output, at<u16>(kOutput));
  EXPECT_EQ(args.partial_outputs, at<u16>(kWorkspace));
  const Workspace parts = workspace_of(*made);
  EXPECT_EQ(args.partial_maxima, at<float>(kWorkspace + parts.maxima));
  EXPECT_EQ(args.partial_sums, at<float>(kWorkspace + parts.sums));
  EXPECT_EQ(args.table_stride, 8u);
  EXPECT_EQ(args.heads, 12u);
  EXPECT_EQ(args.query_len, 4u);
  EXPECT_EQ(args.splits, 4u);
  EXPECT_EQ(args.row_tiles, 1u);
  EXPECT_EQ(args.batch, 3u);
  EXPECT_EQ(args.score_scale, call->softmax_scale_log2);
  EXPECT_EQ(args.output_scale, 3.0f);
  const Args whole = args_of(*call, *plan({12, 3, 4, 128}, 132, kH200));
  EXPECT_EQ(whole.partial_outputs, nullptr);
  EXPECT_EQ(whole.partial_sums, nullptr);
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
