// What a layer did in a step against the host: cache writes byte for byte, attention against
// mathematics in double. A difference ends the program.
//
// Threads: one.
#pragma once

#include <kiln/kernels/dsv41_decode/reference.hpp>
#include <kiln/kernels/dsv41_kv_insert/reference.hpp>

#include "examples/decode/memory.hpp"

namespace decoding {

/// The rows of a step in host memory.
struct HostRows {
  explicit HostRows(const Memory& memory)
      : query(memory.query.download()),
        rows(memory.rows.download()),
        positions(memory.positions.download()),
        cos_sin(memory.cos_sin.download()) {}
  std::vector<std::uint16_t> query, rows, padded_query;
  std::vector<std::int64_t> positions;
  std::vector<float> cos_sin;
};

/// The cache as the device left it. The host writes the same rows once more, which must change
/// nothing.
inline std::vector<std::uint8_t> checked_cache(const kiln::kernels::dsv41_kv_insert::Key& key,
                                               const v41::StepCache& cache, const Bytes& bytes,
                                               const DeviceLists& lists, std::size_t tokens,
                                               HostRows& host) {
  const auto row_slots = lists.row_slots.download();
  const auto on_device = bytes->download();
  auto on_host = on_device;
  kiln::kernels::dsv41_kv_insert::model(
      key, {.query = key.heads == 0 ? nullptr : host.query.data(),
            .padded_query = key.heads == 0 ? nullptr : host.padded_query.data(),
            .rows = host.rows.data(),
            .positions = host.positions.data(),
            .slots = row_slots.data(),
            .cos_sin = host.cos_sin.data(),
            .cache = on_host.data(),
            .page_stride_bytes = cache.page_stride_bytes,
            .pages = cache.pages,
            .rope_positions = kPositions,
            .tokens = tokens});
  engine::expect_equal(on_device, on_host, "cache");
  return on_host;
}

inline void check(const Memory& memory, std::size_t layer, std::size_t tokens) {
  const auto options = options_of(layer);
  const auto key = v41::decode_key(options, options.window);
  const auto step = step_of(memory, layer, tokens);
  HostRows host(memory);
  host.padded_query.resize(kMost * 64 * kHeadDim);
  const auto swa = checked_cache({.heads = kHeads, .page_slots = kPageTokens}, step.swa,
                                 memory.swa[layer], memory.window, tokens, host);
  std::vector<std::uint8_t> compressed;
  std::vector<std::int32_t> entries, entry_lengths;
  if (options.ratio != 0) {
    const DeviceLists& lists = memory.entries[options.ratio - 1];
    compressed = checked_cache(
        {.record = options.record, .page_slots = key.page_slots, .ratio = options.ratio},
        step.compressed, memory.compressed[source_of(layer)], lists, tokens, host);
    entries = lists.slots.download();
    entry_lengths = lists.lengths.download();
  }

  const auto window = memory.window.slots.download();
  const auto window_lengths = memory.window.lengths.download();
  const auto sinks = memory.sinks.download();
  auto output = memory.output[layer]->download();
  auto output_scales = memory.output_scales[layer]->download();
  const kiln::kernels::dsv41_decode::Arguments arguments{
      .query = host.padded_query.data(),
      .positions = host.positions.data(),
      .cos_sin = host.cos_sin.data(),
      .sinks = sinks.data(),
      .swa_cache = swa.data(),
      .swa_slots = window.data(),
      .swa_lengths = window_lengths.data(),
      .compressed_cache = compressed.data(),
      .compressed_slots = entries.data(),
      .compressed_lengths = entry_lengths.data(),
      .output = output.data(),
      .output_scales = output_scales.data(),
      .swa_page_stride_bytes = step.swa.page_stride_bytes,
      .swa_pages = step.swa.pages,
      .compressed_page_stride_bytes = step.compressed.page_stride_bytes,
      .compressed_pages = step.compressed.pages,
      .scale_group_stride_words = step.scale_group_stride_words,
      .scale_column_stride_words = step.scale_column_stride_words,
      .rope_positions = kPositions,
      .tokens = tokens};
  const auto want = kiln::kernels::dsv41_decode::reference(key, arguments);
  const auto got = kiln::kernels::dsv41_decode::decode_output(key, arguments);
  const double error = kiln::kernels::dsv41_decode::relative_frobenius(got.values, want.values);
  // MXFP8's own rounding is 0.027.
  if (!(error < 0.03)) {
    std::fprintf(stderr, "layer %zu, %zu tokens: the output is %g off in the Frobenius norm\n",
                 layer, tokens, error);
    std::exit(1);
  }
  std::printf("layer %zu, ratio %u, %zu tokens: as the reference has it\n", layer, options.ratio,
              tokens);
}

}  // namespace decoding
