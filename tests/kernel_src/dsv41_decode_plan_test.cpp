// Which keys the decode programs take, and how they plan.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernel_src/dsv41_decode/launch.hpp"
#include "support/kernels.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

using kiln::test::message_of;

DeviceInfo device_of(const char* architecture, unsigned shared_bytes = 227 * 1024) {
  return {.architecture = architecture, .sm_count = 132, .shared_bytes_per_block = shared_bytes};
}

std::vector<Key> shipped_keys() {
  std::vector<Key> keys;
  for (const u32 heads : {16u, 32u})
    for (const Record record : {Record::fp8, Record::nvfp4})
      for (const u32 page_slots : {64u, 128u})
        keys.push_back({.heads = heads, .record = record, .page_slots = page_slots});
  return keys;
}

TEST(SwapabKey, EachConditionAloneRefusesAndSaysWhy) {
  for (const Key& key : shipped_keys()) EXPECT_TRUE(swapab::check_key(key));
  for (const Key& key :
       {Key{.swa_slots = 1, .compressed_slots = 1}, Key{.swa_slots = 256, .compressed_slots = 512},
        Key{.swa_slots = 128, .compressed_slots = 896},
        Key{.swa_slots = 896, .compressed_slots = 128},
        Key{.swa_page_slots = 1, .page_slots = 65536}})
    EXPECT_TRUE(swapab::check_key(key)) << message_of(swapab::check_key(key));
  struct Row {
    Key key;
    const char* says;
  };
  for (const auto& [key, says] : {
           Row{{.heads = 1}, "heads is 1; it must be 16 or 32"},
           Row{{.heads = 8}, "heads is 8; it must be 16 or 32"},
           Row{{.heads = 64}, "heads is 64; it must be 16 or 32"},
           Row{{.heads = 24}, "heads is 24; it must be a divisor of 64"},
           Row{{.compressed_slots = 0}, "compressed_slots is 0; it must be at least 1"},
           Row{{.compressed_slots = 897}, "rounded up, is 9; it must be at most 8"},
           Row{{.swa_slots = 513}, "rounded up, is 9; it must be at most 8"},
           Row{{.swa_slots = 65536, .compressed_slots = 65536}, "is 1024; it must be at most 8"},
           Row{{.swa_slots = 0}, "swa_slots is 0; it must be from 1"},
           Row{{.record = static_cast<Record>(7)}, "record is 7; it must be 0 (fp8) or 1 (nvfp4)"},
           Row{{.swa_page_slots = 96}, "swa_page_slots is 96; it must be a power of two"},
           Row{{.page_slots = 0}, " page_slots is 0; it must be a power of two"},
       }) {
    const Status status = swapab::check_key(key);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(status).find(says), std::string::npos) << message_of(status);
  }
}

TEST(SwapabPlan, IsAClusterForEachToken) {
  struct Row {
    Key key;
    std::uint64_t tokens;
    u32 blocks, shared_bytes;
  };
  for (const auto& [key, tokens, blocks, shared_bytes] : {
           Row{{.heads = 16}, 1, 10, 172320},
           Row{{.heads = 16}, 7, 10, 172320},
           Row{{.heads = 16}, 8, 8, 172320},
           Row{{.heads = 16}, 15, 8, 172320},
           Row{{.heads = 16}, 16, 5, 172320},
           Row{{.heads = 16, .record = Record::nvfp4, .page_slots = 128}, 8, 8, 172320},
           Row{{.heads = 16, .record = Record::nvfp4, .page_slots = 128}, 16, 5, 172320},
           Row{{.heads = 32}, 1, 10, 207712},
           Row{{.heads = 32, .record = Record::nvfp4, .page_slots = 128}, 15, 8, 207712},
           Row{{.heads = 32, .record = Record::nvfp4, .page_slots = 128}, 16, 5, 207712},
           // In clusters of 8 a warp would have rows of both lists, or there are too many rows.
           Row{{.heads = 16, .swa_slots = 129}, 7, 11, 172320},
           Row{{.heads = 16, .swa_slots = 129}, 8, 6, 172320},
           Row{{.heads = 32, .swa_slots = 256, .compressed_slots = 512}, 2, 12, 208032},
           Row{{.heads = 32, .swa_slots = 256, .compressed_slots = 512}, 9, 6, 208032},
           Row{{.heads = 16, .swa_slots = 65, .compressed_slots = 129}, 3, 5, 171936},
           Row{{.heads = 16, .swa_slots = 65, .compressed_slots = 129}, 8, 3, 171936},
           Row{{.heads = 32, .swa_slots = 64, .compressed_slots = 512}, 7, 9, 207712},
           Row{{.heads = 32, .swa_slots = 64, .compressed_slots = 512}, 8, 8, 207712},
           Row{{.heads = 32, .swa_slots = 1, .compressed_slots = 1}, 65535, 2, 206752},
           Row{{.heads = 32, .swa_slots = 128, .compressed_slots = 896}, 7, 16, 208288},
           Row{{.heads = 32, .swa_slots = 128, .compressed_slots = 896}, 8, 8, 208288},
           Row{{.heads = 16}, 0, 10, 172320},
       }) {
    const auto made = swapab::plan(key, tokens, device_of("sm_90a"));
    ASSERT_TRUE(made) << message_of(made);
    EXPECT_EQ(made->key, key);
    const LaunchShape& shape = made->shape;
    EXPECT_EQ(shape.grid_blocks, (Extent{blocks, static_cast<u32>(tokens), 1}));
    EXPECT_EQ(shape.cluster_blocks, (Extent{blocks, 1, 1}));
    EXPECT_EQ(shape.block_threads, (Extent{512, 1, 1}));
    EXPECT_EQ(shape.shared_bytes, shared_bytes);
    EXPECT_EQ(shape.overlap_previous, Overlap::no);
    const LaunchShape anywhere = swapab::Program(key).shape(tokens);
    EXPECT_EQ(anywhere.grid_blocks, shape.grid_blocks);
    EXPECT_EQ(anywhere.cluster_blocks, shape.cluster_blocks);
    EXPECT_EQ(anywhere.block_threads, shape.block_threads);
    EXPECT_EQ(anywhere.shared_bytes, shape.shared_bytes);
    const LaunchShape portable = swapab::Program(key).portable_shape(tokens);
    EXPECT_LE(portable.cluster_blocks.x, 8u);
    if (tokens > swapab::kMostSmallTokens) {
      EXPECT_EQ(portable.cluster_blocks, shape.cluster_blocks);
    }
    EXPECT_EQ(portable.grid_blocks, (Extent{portable.cluster_blocks.x, shape.grid_blocks.y, 1}));
    EXPECT_EQ(portable.shared_bytes, shared_bytes);
  }
}

TEST(SwapabPlan, GivesEverySlotToABlockWithRoomForIt) {
  for (const u32 heads : {16u, 32u})
    for (u32 swa = 1; swa <= 1024; swa += swa % 3 + 1)
      for (u32 compressed = 1; compressed <= 1024; compressed += 31) {
        const Key key{.heads = heads, .swa_slots = swa, .compressed_slots = compressed};
        if (!swapab::check_key(key)) continue;
        const u32 large = swapab::large_tiles(swa, compressed);
        const u32 medium = swapab::medium_tiles(swa, compressed);
        const u32 small = swapab::small_tiles(swa, compressed);
        ASSERT_LE(large, 8u);
        ASSERT_GE(medium, 2u) << "a launch without a cluster can have none later";
        ASSERT_LE(medium, 8u);
        ASSERT_LE(small, 16u);
        ASSERT_TRUE(medium == large || medium * 80 >= swa + compressed);
        ASSERT_TRUE(medium == large || medium != small) << "a launch's cluster says which it is";
        ASSERT_TRUE(swapab::plan(key, 1, device_of("sm_90a"))) << swa << ", " << compressed;
      }
}

TEST(SwapabPlan, EveryShippedKeyFitsItsArchitectures) {
  for (const auto* architecture : {"sm_90a", "sm_100a", "sm_103a"})
    for (const Key& key : shipped_keys())
      for (const std::uint64_t tokens : {1u, 16u, 64u}) {
        const auto made = swapab::plan(key, tokens, device_of(architecture));
        EXPECT_TRUE(made) << architecture << ": " << message_of(made);
      }
}

TEST(SwapabPlan, RefusesWhatCannotRunAndSaysWhy) {
  struct Row {
    Key key;
    std::uint64_t tokens;
    DeviceInfo device;
    ErrorCode code;
    const char* says;
  };
  const auto bad = ErrorCode::invalid_argument;
  const auto unsupported = ErrorCode::unsupported;
  for (const auto& [key, tokens, device, code, says] : {
           Row{{.heads = 8}, 1, device_of("sm_90a"), bad, "heads is 8"},
           Row{{}, 65536, device_of("sm_90a"), bad, "tokens is 65536; it must be at most 65535"},
           Row{{}, 1, device_of("sm_89"), unsupported, "\"sm_89\"; it needs sm_90 or later"},
           Row{{}, 1, device_of("sm_80"), unsupported, "\"sm_80\""},
           Row{{}, 1, device_of(""), unsupported, "\"\""},
           Row{{}, 1, device_of("gfx942"), unsupported, "\"gfx942\""},
           Row{{},
               1,
               device_of("sm_120a", 99 * 1024),
               unsupported,
               "\"sm_120a\"; a block needs 172320 bytes of shared memory and can have 101376"},
           // Whoever made this one by hand did not look it up.
           Row{{.heads = 32},
               1,
               device_of("sm_121a"),
               unsupported,
               "a block needs 207712 bytes of shared memory and can have 101376"},
           Row{{.heads = 32}, 1, device_of("sm_90a", 207711), unsupported, "can have 207711"},
       }) {
    const auto made = swapab::plan(key, tokens, device);
    ASSERT_FALSE(made) << says;
    EXPECT_EQ(made.error().code(), code) << says;
    EXPECT_NE(message_of(made).find(says), std::string::npos) << message_of(made);
  }
  EXPECT_TRUE(swapab::plan({.heads = 32}, 1, device_of("sm_90a", 207712)));
}

TEST(MegaPlan, SharesATokenAmongFewerBlocksTheMoreTokensThereAre) {
  struct Row {
    Key key;
    std::uint64_t tokens;
    u32 blocks;
  };
  const Key pure{.heads = 64, .compressed_slots = 0};
  const Key six{.heads = 64, .compressed_slots = 256};
  const Key wide{.heads = 64, .swa_slots = 300, .compressed_slots = 2048};
  for (const auto& [key, tokens, blocks] : {
           Row{{.heads = 64}, 1, 5},  // 10 tiles in two rounds
           Row{{.heads = 64}, 15, 5},
           Row{{.heads = 64}, 22, 5},
           Row{{.heads = 64}, 23, 4},
           Row{{.heads = 64}, 31, 3},
           Row{{.heads = 64}, 41, 2},
           Row{{.heads = 64}, 65535, 2},
           Row{pure, 1, 2},
           Row{pure, 64, 2},
           Row{{.heads = 8, .swa_slots = 1, .compressed_slots = 0}, 1, 2},
           Row{{.heads = 1, .compressed_slots = 64 * 5}, 1, 7},
           Row{six, 15, 6},
           Row{six, 16, 3},  // five at once would leave one for a second round
           Row{six, 40, 3},
           Row{six, 41, 2},
           Row{wide, 1, 8},  // 37 tiles
           Row{wide, 16, 5},
           Row{wide, 22, 5},
           Row{wide, 23, 4},
           Row{wide, 30, 4},
           Row{wide, 31, 3},
           Row{wide, 64, 2},
       }) {
    SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(key.compressed_slots));
    EXPECT_EQ(mega::blocks_for(key, tokens), blocks);
    const auto made = mega::plan(key, tokens, device_of("sm_90a"));
    ASSERT_TRUE(made) << message_of(made);
    EXPECT_EQ(made->key, key);
    EXPECT_EQ(made->shape.grid_blocks, (Extent{blocks, static_cast<u32>(tokens), 1}));
    EXPECT_EQ(made->shape.cluster_blocks, (Extent{blocks, 1, 1}));
    EXPECT_EQ(made->shape.block_threads, (Extent{512, 1, 1}));
    EXPECT_EQ(made->shape.shared_bytes, 229680u);
  }
  EXPECT_EQ(mega::Program({.heads = 64}, 3).shape(1).cluster_blocks, (Extent{3, 1, 1}));
}

TEST(MegaPlan, RefusesWhatCannotRunAndSaysWhy) {
  const auto says = [](const auto& made) { return message_of(made); };
  EXPECT_NE(says(mega::plan({.heads = 12}, 1, device_of("sm_90a"))).find("heads is 12"),
            std::string::npos);
  EXPECT_NE(says(mega::plan({}, 65536, device_of("sm_90a")))
                .find("dsv41_mega_decode: tokens is 65536; it must be at most 65535"),
            std::string::npos);
  EXPECT_EQ(mega::plan({}, 1, device_of("sm_89")).error().code(), ErrorCode::unsupported);
  const auto small = mega::plan({}, 1, device_of("sm_120a", 99 * 1024));
  EXPECT_EQ(small.error().code(), ErrorCode::unsupported);
  EXPECT_NE(says(small).find("can have 101376"), std::string::npos) << says(small);
  for (const u32 blocks : {1u, 9u})
    EXPECT_NE(says(mega::Program({}, blocks).check()).find("it must be 0, or from 2 to 8"),
              std::string::npos);
  for (const u32 blocks : {0u, 2u, 8u}) EXPECT_TRUE(mega::Program({}, blocks).check());
  for (const auto* architecture : {"sm_90a", "sm_100a", "sm_103a"})
    for (const u32 heads : {1u, 2u, 4u, 8u, 16u, 32u, 64u})
      EXPECT_TRUE(mega::plan({.heads = heads}, 64, device_of(architecture)));
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
