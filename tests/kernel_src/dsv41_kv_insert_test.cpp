// The cache writer without a device: its planner, its checks, its host model against the double
// reference, and that all shipped keys compile.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "kernel_src/dsv41_kv_insert/reference.hpp"
#include "kernel_src/kernels.hpp"
#include "support/kernels.hpp"
#include "support/requires_nvrtc.hpp"
#include "tests/kernel_src/dsv41_kv_insert_inputs.hpp"

namespace kiln::kernels::dsv41_kv_insert::test {
namespace {

using kiln::test::message_of;

const DeviceInfo kHopper{.architecture = "sm_90a", .sm_count = 132};

TEST(KvInsertPlan, SplitsFewTokensOverManyBlocks) {
  struct Row {
    std::uint64_t tokens;
    u32 heads, row_blocks, thread_pieces_log2, grid_blocks;
  };
  for (const auto& row :
       {Row{0, 16, 0, 0, 0}, Row{1, 16, 1, 0, 33}, Row{4, 16, 1, 0, 129}, Row{5, 16, 2, 0, 162},
        Row{64, 16, 16, 0, 2064}, Row{65, 16, 17, 1, 1057}, Row{128, 64, 32, 1, 2080},
        Row{129, 8, 33, 2, 1065}, Row{8192, 16, 2048, 2, 67584}, Row{1, 0, 1, 0, 1},
        Row{64, 0, 16, 0, 16}, Row{8192, 0, 2048, 2, 2048},
        Row{kMostTokens, 64, 16777216, 2, 553648128}}) {
    const auto made = plan({.heads = row.heads, .tokens = row.tokens}, kHopper);
    ASSERT_TRUE(made) << message_of(made);
    EXPECT_EQ(made->row_blocks, row.row_blocks) << row.tokens;
    EXPECT_EQ(made->thread_pieces_log2, row.thread_pieces_log2) << row.tokens;
    EXPECT_EQ(made->shape.grid_blocks, (Extent{row.grid_blocks})) << row.tokens;
    EXPECT_EQ(made->shape.block_threads, (Extent{128}));
    EXPECT_EQ(made->key.heads, row.heads);
  }
}

TEST(KvInsertPlan, RefusesWhatHasNoKernelAndSaysWhy) {
  struct Row {
    Problem problem;
    const char* architecture;
    ErrorCode code;
    const char* says;
  };
  const auto bad = ErrorCode::invalid_argument;
  for (const auto& [problem, architecture, code, says] : {
           Row{{.heads = 3}, "sm_90a", bad, "heads is 3"},
           Row{{.heads = 128}, "sm_90a", bad, "divisor of 64"},
           Row{{.record = static_cast<Record>(2)}, "sm_90a", bad, "record is 2"},
           Row{{.page_slots = 0}, "sm_90a", bad, "page_slots is 0"},
           Row{{.page_slots = 96}, "sm_90a", bad, "power of two"},
           Row{{.page_slots = 131072}, "sm_90a", bad, "at most 65536"},
           Row{{.ratio = 0}, "sm_90a", bad, "ratio is 0"},
           Row{{.ratio = 4}, "sm_90a", bad, "1 or 2"},
           Row{{.tokens = kMostTokens + 1}, "sm_90a", bad, "67108864"},
           Row{{}, "sm_80", ErrorCode::unsupported, "sm_90a"},
           Row{{}, "", ErrorCode::unsupported, "sm_90a"},
       }) {
    const auto made = plan(problem, {.architecture = architecture, .sm_count = 132});
    ASSERT_FALSE(made) << says;
    EXPECT_EQ(made.error().code(), code) << says;
    EXPECT_NE(made.error().message().find(says), std::string::npos) << made.error().message();
  }
  for (const auto* architecture : {"sm_90a", "sm_100a", "sm_103a"})
    EXPECT_TRUE(plan({.tokens = 1}, {.architecture = architecture})) << architecture;
}

TEST(KvInsertKey, NamesItsRecordsAndNeedsNoDeviceForItsSpec) {
  for (const auto record : {Record::fp8, Record::nvfp4})
    EXPECT_EQ(record_from(to_string(record)), record);
  EXPECT_EQ(record_from("FP8"), std::nullopt);
  const auto spec = spec_of({.heads = 16, .record = Record::nvfp4, .page_slots = 128, .ratio = 2});
  EXPECT_EQ(spec.source, "kernel_src/dsv41_kv_insert/kernel.cu");
  EXPECT_EQ(spec.key, (std::vector<KeyValue>{{"heads", "u32", "16"},
                                             {"record", "u8", "1"},
                                             {"page_slots", "u32", "128"},
                                             {"ratio", "u32", "2"}}));
}

// A good call of both parts, with made-up addresses.
Arguments good_arguments() {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
  return {.query = at(0x100000000),
          .padded_query = at(0x200000000),
          .rows = at(0x300000000),
          .positions = static_cast<std::int64_t*>(at(0x400000008)),
          .slots = static_cast<std::int64_t*>(at(0x500000008)),
          .cos_sin = static_cast<float*>(at(0x600000000)),
          .cache = at(0x700000000),
          .page_stride_bytes = 64 * 528,
          .pages = 10,
          .rope_positions = 4096,
          .tokens = 3};
}

TEST(KvInsertArguments, EachWrongOneIsNamedWithItsValueAndWhatIsAllowed) {
  const Key key{.heads = 16};
  ASSERT_TRUE(check(key, good_arguments()));
  struct Row {
    void (*spoil)(Arguments&);
    const char* says;
  };
  const auto shift = [](auto*& pointer, std::uintptr_t by) {
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        reinterpret_cast<std::uintptr_t>(pointer) + by);
  };
  static const auto move = shift;
  for (const auto& [spoil, says] : {
           Row{[](Arguments& a) { a.query = nullptr; }, "query is null"},
           Row{[](Arguments& a) { move(a.query, 8); },
               "query is 0x100000008; it must be a multiple of 16"},
           Row{[](Arguments& a) { a.padded_query = nullptr; }, "padded_query is null"},
           Row{[](Arguments& a) { move(a.padded_query, 2); }, "padded_query is 0x200000002"},
           Row{[](Arguments& a) { a.rows = nullptr; }, "rows is null"},
           Row{[](Arguments& a) { move(a.rows, 4); }, "rows is 0x300000004"},
           Row{[](Arguments& a) { a.positions = nullptr; }, "positions is null"},
           Row{[](Arguments& a) { move(a.positions, 4); }, "a multiple of 8"},
           Row{[](Arguments& a) { a.slots = nullptr; }, "slots is null"},
           Row{[](Arguments& a) { move(a.slots, 1); }, "slots is 0x500000009"},
           Row{[](Arguments& a) { a.cos_sin = nullptr; }, "cos_sin is null"},
           Row{[](Arguments& a) { move(a.cos_sin, 8); }, "cos_sin is 0x600000008"},
           Row{[](Arguments& a) { a.cache = nullptr; }, "cache is null"},
           Row{[](Arguments& a) { move(a.cache, 8); }, "cache is 0x700000008"},
           Row{[](Arguments& a) { a.query_stride_bytes = 16368; }, "from 16384"},
           Row{[](Arguments& a) { a.query_stride_bytes = 16392; }, "query_stride_bytes is 16392"},
           Row{[](Arguments& a) { a.input_stride_bytes = 1008; }, "input_stride_bytes is 1008"},
           Row{[](Arguments& a) { a.input_stride_bytes = 1028; }, "a multiple of 16 from 1024"},
           Row{[](Arguments& a) { a.input_stride_bytes = std::uint64_t{1} << 37; }, "68719476736"},
           Row{[](Arguments& a) { a.row_stride_bytes = 512; }, "from 528"},
           Row{[](Arguments& a) { a.row_stride_bytes = 536; }, "row_stride_bytes is 536"},
           Row{[](Arguments& a) { a.page_stride_bytes = 64 * 528 - 16; }, "from 33792"},
           Row{[](Arguments& a) { a.page_stride_bytes = 64 * 528 + 8; }, "page_stride_bytes is"},
           Row{[](Arguments& a) { a.page_stride_bytes = ~std::uint64_t{0}; }, "page_stride_bytes"},
           Row{[](Arguments& a) { a.row_stride_bytes = 544; }, "from 34800"},
           Row{[](Arguments& a) { a.pages = 0; }, "pages is 0; it must be from 1"},
           Row{[](Arguments& a) { a.pages = ~std::uint64_t{0}; }, "at this page stride"},
           Row{[](Arguments& a) { a.rope_positions = 0; }, "rope_positions is 0"},
           Row{[](Arguments& a) { a.tokens = kMostTokens + 1; }, "tokens is 67108865"},
           Row{[](Arguments& a) { a.padded_query = const_cast<void*>(a.query); },
               "padded_query is over query; what is written must lie apart"},
           Row{[](Arguments& a) { a.rows = static_cast<char*>(a.padded_query) + 3 * 65536 - 16; },
               "padded_query is over rows"},
           Row{[](Arguments& a) { a.padded_query = a.cache; }, "padded_query is over cache"},
           Row{[](Arguments& a) { a.cache = const_cast<void*>(a.rows); }, "cache is over rows"},
       }) {
    Arguments arguments = good_arguments();
    spoil(arguments);
    const auto status = check(key, arguments);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
    EXPECT_NE(status.error().message().find(says), std::string::npos) << status.error().message();
  }
}

TEST(KvInsertArguments, AQueryIsRefusedWithoutHeadsAndNothingIsNeededForNoTokens) {
  EXPECT_NE(message_of(check(Key{.heads = 0}, good_arguments())).find("must be null"),
            std::string::npos);
  Arguments rows_only = good_arguments();
  rows_only.query = rows_only.padded_query = nullptr;
  EXPECT_TRUE(check(Key{.heads = 0}, rows_only));
  EXPECT_TRUE(check(Key{.heads = 16}, Arguments{}));
  EXPECT_FALSE(check(Key{.heads = 5}, Arguments{}));
}

TEST(KvInsertArguments, GapsMayFollowRowsAndPages) {
  Arguments arguments = good_arguments();
  arguments.row_stride_bytes = 4096;
  arguments.page_stride_bytes = 63 * 4096 + 528;  // nothing behind the last record
  EXPECT_TRUE(check(Key{.heads = 16}, arguments));
  arguments.page_stride_bytes = std::uint64_t{1} << 33;
  EXPECT_TRUE(check(Key{.heads = 16}, arguments));
}

TEST(KvInsertModel, AgreesWithTheDoubleReferenceOutsideTheGuardBand) {
  for (const auto record : {Record::fp8, Record::nvfp4}) {
    const std::size_t bytes = dsv41::record_bytes(record);
    for (const auto profile : kProfiles) {
      Inputs inputs(17);
      const auto table = inputs.cos_sin(300);
      std::size_t uncertain = 0;
#ifdef KILN_SANITIZE
      constexpr std::size_t kRows = 30;  // the same ways through the code, each ten times as slow
#else
      constexpr std::size_t kRows = 300;
#endif
      for (std::size_t n = 0; n < kRows; ++n) {
        std::array<u16, 512> row{};
        inputs.fill_row(profile, row.data());
        const std::span<const float> angles(table.data() + n * 64, 64);
        std::array<u8, kMostRecordBytes> got{};
        model_record(record, row, angles, {got.data(), bytes});
        const auto want = reference_record(record, row, angles);
        for (std::size_t i = 0; i < bytes; ++i) {
          if (!want.certain[i]) {
            ++uncertain;
            continue;
          }
          ASSERT_EQ(got[i], want.bytes[i])
              << to_string(record) << " " << name_of(profile) << " row " << n << " byte " << i;
        }
        // Position 0 rotates by nothing, so even there nothing is left to chance.
        if (n == 0 && profile == Profile::normal) {
          EXPECT_LE(uncertain, bytes / 8);
        }
      }
      // Outside the 64 rotated elements the arithmetic is exact, but for NVFP4's scale.
      EXPECT_LE(uncertain, kRows * bytes / 100) << to_string(record) << " " << name_of(profile);
    }
  }
}

TEST(KvInsertModel, DefinesNanAndInfinity) {
  const std::vector<float> none = [] {
    std::vector<float> angles(64, 0.0f);
    std::fill_n(angles.begin(), 32, 1.0f);
    return angles;
  }();
  std::array<u16, 512> row{};
  for (auto& value : row) value = bf16_of(2.0f);
  row[0] = 0xffc1;          // a negative NaN
  row[32] = kBf16Infinity;  // the second group of either record
  row[33] = static_cast<u16>(kBf16Infinity | 0x8000);
  std::array<u8, kMostRecordBytes> bytes{};
  model_record(Record::fp8, row, none, bytes);
  EXPECT_EQ(bytes[0], 0x7f) << "a NaN stays one, without its sign";
  EXPECT_EQ(bytes[1], 0x78) << "and costs its neighbours nothing: 256 * 2^-7";
  EXPECT_EQ(bytes[512], 120);
  EXPECT_EQ(bytes[32], 0x7e);
  EXPECT_EQ(bytes[33], 0xfe);
  EXPECT_EQ(bytes[34], 0x00) << "2 * 2^-120";
  EXPECT_EQ(bytes[513], 247) << "448 * 2^120 is above what bf16 and fp32 hold: infinity again";
  model_record(Record::nvfp4, row, none, {bytes.data(), 288});
  EXPECT_EQ(bytes[256], 0x7f);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[i], 0x77);
  EXPECT_EQ(bytes[257], 0x2b) << "the next group is none the worse: 2 / 6 rounds to 0.34375";
  EXPECT_EQ(bytes[258], 0x7e) << "448";
  EXPECT_EQ(bytes[16], 0xf7) << "+6 and -6";
}

TEST(KvInsertModel, WritesListedSlotsAndNothingElse) {
  for (const auto record : {Record::fp8, Record::nvfp4})
    for (const u32 ratio : {1u, 2u}) {
      const Layout layout{.tokens = 90,
                          .pages = 3,
                          .row_gap_bytes = 32,
                          .page_gap_bytes = 48,
                          .input_gap_bytes = 64,
                          .query_gap_bytes = 16};
      const Key key{.heads = 8, .record = record, .page_slots = 32, .ratio = ratio};
      HostCall call = make_call(key, layout, 5);
      ASSERT_TRUE(check(key, call.arguments()));
      model(key, call.arguments());
      std::vector<bool> owned(call.cache.size(), false);
      std::size_t written = 0;
      for (std::size_t token = 0; token < layout.tokens; ++token) {
        const auto slot = call.slots[token];
        const auto position = call.positions[token];
        if (slot < 0 || slot >= 96 || position < 0 || position >= 512) continue;
        if (ratio == 2 && position % 2 == 0) continue;
        const std::size_t at = static_cast<std::size_t>(slot / 32) * call.page_stride() +
                               static_cast<std::size_t>(slot % 32) * call.row_stride();
        std::array<u8, kMostRecordBytes> want{};
        const std::size_t bytes = dsv41::record_bytes(record);
        model_record(record, {call.rows.data() + token * call.input_stride() / 2, 512},
                     {call.cos_sin.data() + position / ratio * ratio * 64, 64},
                     {want.data(), bytes});
        EXPECT_EQ(std::memcmp(call.cache.data() + at, want.data(), bytes), 0) << token;
        for (std::size_t i = 0; i < bytes; ++i) owned[at + i] = true;
        ++written;
      }
      EXPECT_GT(written, 20u);
      for (std::size_t i = 0; i < owned.size(); ++i)
        ASSERT_TRUE(owned[i] || call.cache[i] == 0xa5) << i;
      // Chunk 3 of head 5 of token 7, and a padding head.
      const u8* piece = call.padded_query.data() + 7 * 65536 + (3 * 64 + 5) * 32;
      EXPECT_EQ(
          std::memcmp(piece, call.query.data() + 7 * call.query_stride() / 2 + 5 * 512 + 48, 32),
          0);
      for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(piece[3 * 32 + i], 0);
    }
}

TEST(KvInsertKernel, EveryShippedKeyCompilesForEveryArchitectureWithoutSpills) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "NVRTC compiles the same as in the release build";
#endif
  KILN_REQUIRES_NVRTC();
  auto runtime = Runtime::open({});
  ASSERT_TRUE(runtime) << message_of(runtime);
  ASSERT_TRUE(add_sources(*runtime));
  std::vector<Problem> problems;
  for (const u32 heads : {8u, 16u, 32u, 64u})
    problems.push_back({.heads = heads, .page_slots = 128});
  for (const auto record : {Record::fp8, Record::nvfp4})
    for (const u32 ratio : {1u, 2u})
      problems.push_back({.record = record, .page_slots = 128 / ratio, .ratio = ratio});
  for (const auto& problem : problems) {
    const auto writer = KvInsert::create(*runtime, problem);
    ASSERT_TRUE(writer) << message_of(writer);
    EXPECT_EQ(runtime->add(spec_of(writer->key()))->index, writer->id().index);
    for (const auto* architecture : {"sm_90a", "sm_100a", "sm_103a"}) {
      const auto artifact = runtime->artifact(writer->id(), architecture);
      ASSERT_TRUE(artifact) << message_of(artifact) << artifact.error().detail();
      const auto& facts = artifact->facts;
      EXPECT_TRUE(facts.waits_on_grid);
      EXPECT_TRUE(facts.triggers_dependents);
      EXPECT_EQ(facts.usage.spill_store_bytes + facts.usage.spill_load_bytes, 0u);
      EXPECT_EQ(facts.usage.local_bytes, 0u);
      EXPECT_LE(facts.usage.registers, 64u) << architecture;
      EXPECT_TRUE(facts.log.empty()) << facts.log;
    }
  }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_kv_insert::test
