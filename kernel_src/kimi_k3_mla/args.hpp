// What changes with every call, passed by value as one grid constant beside the cache's two tensor
// maps, and how a block of the attention program shares out its memory.
#pragma once

#include "kernel_src/shared/qualifiers.hpp"
#include "kernel_src/shared/types.hpp"

namespace kiln::kernels::kimi_k3_mla {

inline constexpr u32 kLatentDim = 512;  // a value; the first part of a key
inline constexpr u32 kRopeDim = 64;     // the rest of a key
inline constexpr u32 kKeyDim = kLatentDim + kRopeDim;
inline constexpr u32 kPageKeys = 64;
inline constexpr u32 kTileKeys = 128;  // keys that a block takes in one turn: two pages

struct Args {
  const u8* query = nullptr;          // [tokens, heads, 576] E4M3
  const int* block_tables = nullptr;  // [batch, table_stride] page numbers
  const int* seq_lens = nullptr;      // [batch] keys, new tokens among them
  const int* query_starts = nullptr;  // [batch + 1] first tokens, or null: query_len each
  u16* output = nullptr;              // [tokens, heads, 512] bf16
  u16* partial_outputs = nullptr;     // [reduce rows, splits, 512] bf16
  float* partial_maxima = nullptr;    // [reduce rows, splits]
  float* partial_sums = nullptr;      // [reduce rows, splits]
  u64 table_stride = 0;               // page numbers from request to request
  u32 heads = 0;
  u32 query_len = 0;
  u32 splits = 1;
  u32 unsplit_items = 0;  // of the wide grid
  u32 row_tiles = 1;      // of a request
  float score_scale = 0;  // of a product of query and key, log2(e) included
  float output_scale = 1;
  u32 batch = 0;
  u32 table_width = 0;  // page numbers of a request
  u32 reserved = 0;
};
static_assert(sizeof(Args) == 112, "host and device must agree");

/// What no table may hold.
enum class TableFault : u32 {
  none,
  start,   ///< of a request's tokens: out of order, too far from the one before, behind the query
  length,  ///< of a request: negative, or more than its row of the block tables has room for
  page,    ///< that a length reaches: not of the cache
};

/// What checks of the tables on the device have found since its memory was cleared: the first fault
/// of the first check that found one.
struct TableReport {
  u32 checks = 0;  // made
  TableFault fault = TableFault::none;
  u32 check = 0;     // that found it, counted from 1
  u32 request = 0;   // whose length or page, or the index of the start
  u32 position = 0;  // of a page in its request's row of the block tables
  int value = 0;     // that is there
  int least = 0;     // that may be
  int most = 0;      // that may be; -1: of pages, the cache has none
};
static_assert(sizeof(TableReport) == 32, "host and device must agree");

/// Of a check of the tables.
struct TableCheckArgs {
  const int* block_tables = nullptr;  // as in Args
  const int* seq_lens = nullptr;
  const int* query_starts = nullptr;
  TableReport* report = nullptr;
  u64 table_stride = 0;
  u32 batch = 0;
  u32 table_width = 0;
  u32 pages = 0;      // of the cache
  u32 query_len = 0;  // the most new tokens of a request
  u32 tokens = 0;     // of the query
  u32 reserved = 0;
};
static_assert(sizeof(TableCheckArgs) == 64, "host and device must agree");

namespace attend {

// Two warpgroups: a page of scores each, then half of the values. One that brings pages.
inline constexpr u32 kConsumerThreads = 256;
inline constexpr u32 kProducerThreads = 128;
inline constexpr u32 kBlockThreads = kConsumerThreads + kProducerThreads;
inline constexpr u32 kWideRows = 128;
inline constexpr u32 kPageBytes = kPageKeys * kKeyDim;

KILN_SHARED constexpr u32 cluster_blocks(u32 row_tile) {
  return row_tile > 64 ? 2 : 1;
}

/// Pages that a block holds at once.
KILN_SHARED constexpr u32 stages(u32 row_tile) {
  return row_tile / cluster_blocks(row_tile) > 48 ? 4 : 5;
}

/// E4M3 terms of a weight. With few columns the matrix units take no longer for two, the second of
/// what the first leaves.
KILN_SHARED constexpr u32 weight_terms(u32 row_tile) {
  return row_tile <= 32 ? 2 : 1;
}

/// Where a block keeps what, in bytes from the start of its dynamic shared memory, which is aligned
/// to 1024.
struct Layout {
  u32 pages = 0;     // [stages] pages: four parts of 128 bytes of all keys, then the rope part
  u32 query = 0;     // [columns] rows in the same parts
  u32 weights = 0;   // [2, terms, columns, 128 keys] E4M3, of this tile and the one before
  u32 maxima = 0;    // [columns] as ordered integers
  u32 barriers = 0;  // a page is there; a page is done with
  u32 bytes = 0;
};
KILN_SHARED constexpr Layout layout(u32 row_tile) {
  const u32 columns = row_tile / cluster_blocks(row_tile);
  Layout at;
  at.query = at.pages + stages(row_tile) * kPageBytes;
  at.weights = at.query + columns * kKeyDim;
  at.maxima = at.weights + 2 * weight_terms(row_tile) * columns * kTileKeys;
  at.barriers = at.maxima + columns * 4;
  at.bytes = at.barriers + 2 * stages(row_tile) * 8;
  return at;
}

}  // namespace attend

}  // namespace kiln::kernels::kimi_k3_mla
