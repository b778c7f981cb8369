// What the engine of this example keeps in device memory, and a layer's step over it.
//
// Threads: one.
#pragma once

#include <array>
#include <kiln/kernels/layers/deepseek_v41/decode_attention.hpp>
#include <memory>
#include <vector>

#include "examples/decode/sequences.hpp"
#include "examples/engine.hpp"

namespace decoding {

namespace v41 = kiln::kernels::deepseek_v41;

constexpr unsigned kTp = 4;
constexpr std::size_t kLayers = 40;
constexpr auto kRecord = v41::Record::nvfp4;  // of the compressed caches
constexpr std::size_t kFp8Bytes = 528, kNvfp4Bytes = 288;

// The model's kv_source_layer_ids and their compress ratios: these layers compute a compressed
// cache. Each other layer reads that of the last source before it, so that layers 2 to 19 have
// ratio 2 and layers 20 to 39 ratio 1; layers 0 and 1 have none to read, which is ratio 0.
struct Source {
  std::size_t layer;
  unsigned ratio;
};
constexpr std::array kSources = {Source{2, 2}, Source{8, 2}, Source{14, 2}, Source{20, 1}};

/// Whose compressed cache `layer` reads, by place in kSources; kSources.size() without one.
inline std::size_t source_of(std::size_t layer) {
  std::size_t source = kSources.size();
  for (std::size_t i = 0; i < kSources.size(); ++i)
    if (kSources[i].layer <= layer) source = i;
  return source;
}

inline v41::LayerOptions options_of(std::size_t layer) {
  const std::size_t source = source_of(layer);
  const unsigned ratio = source == kSources.size() ? 0 : kSources[source].ratio;
  return {.tp = kTp, .ratio = ratio, .record = kRecord};
}

/// What changes with every step, of as many tokens as there are sequences.
struct DeviceLists {
  explicit DeviceLists(std::size_t width) : slots(kMost * width) {}
  void assign(const Lists& lists) {
    row_slots.assign(lists.row_slots);
    slots.assign(lists.slots);
    lengths.assign(lists.lengths);
  }
  engine::DeviceArray<std::int64_t> row_slots{kMost};
  engine::DeviceArray<std::int32_t> slots;
  engine::DeviceArray<std::int32_t> lengths{kMost};
};

using Bytes = std::unique_ptr<engine::DeviceArray<std::uint8_t>>;

struct Memory {
  explicit Memory(Sequences& sequences) : sinks(sequences.sinks()) {
    const auto records = sequences.records(kMost * kSwaSlots, kFp8Bytes);
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      swa.push_back(std::make_unique<Bytes::element_type>(records));
      output.push_back(std::make_unique<Bytes::element_type>(kMost * 64 * kHeadDim));
      output_scales.push_back(std::make_unique<Bytes::element_type>(kMost * 64 * kHeadDim / 32));
    }
    for (const Source& source : kSources)
      compressed.push_back(std::make_unique<Bytes::element_type>(
          sequences.records(kMost * kPositions / source.ratio, kNvfp4Bytes)));
  }

  void assign(const Inputs& inputs) {
    query.assign(inputs.query);
    rows.assign(inputs.rows);
    positions.assign(inputs.positions);
    window.assign(inputs.window);
    entries[0].assign(inputs.entries[0]);
    entries[1].assign(inputs.entries[1]);
  }

  engine::DeviceArray<std::uint16_t> query{kMost * kHeads * kHeadDim}, rows{kMost * kHeadDim};
  engine::DeviceArray<std::uint16_t> padded_query{kMost * 64 * kHeadDim};
  engine::DeviceArray<std::int64_t> positions{kMost};
  engine::DeviceArray<float> cos_sin{rotations()}, sinks;
  DeviceLists window{kWindow};
  std::array<DeviceLists, 2> entries{DeviceLists(kTopk), DeviceLists(kTopk)};  // ratio 1, ratio 2
  std::vector<Bytes> swa, output, output_scales;                               // of each layer
  std::vector<Bytes> compressed;                                               // of each source
};

inline v41::StepCache cache_of(const Bytes& bytes, std::size_t slots, std::size_t page_slots,
                               std::size_t record_bytes, const DeviceLists& lists) {
  return {.base = bytes->get(),
          .pages = slots / page_slots,
          .page_stride_bytes = page_slots * record_bytes,
          .row_slots = lists.row_slots.get(),
          .slots = lists.slots.get(),
          .lengths = lists.lengths.get()};
}

inline v41::Step step_of(const Memory& memory, std::size_t layer, std::size_t tokens) {
  v41::Step step{.tokens = tokens,
                 .query = memory.query.get(),
                 .padded_query = memory.padded_query.get(),
                 .positions = memory.positions.get(),
                 .cos_sin = memory.cos_sin.get(),
                 .rope_positions = kPositions,
                 .sinks = memory.sinks.get(),
                 .output = memory.output[layer]->get(),
                 .output_scales = memory.output_scales[layer]->get(),
                 .scale_group_stride_words = 32 * kMost,
                 .scale_column_stride_words = kMost};
  step.swa = cache_of(memory.swa[layer], kMost * kSwaSlots, kPageTokens, kFp8Bytes, memory.window);
  step.swa.rows = memory.rows.get();
  if (const std::size_t source = source_of(layer); source != kSources.size()) {
    const unsigned ratio = kSources[source].ratio;
    step.compressed = cache_of(memory.compressed[source], kMost * kPositions / ratio,
                               kPageTokens / ratio, kNvfp4Bytes, memory.entries[ratio - 1]);
    if (kSources[source].layer == layer) step.compressed.rows = memory.rows.get();
  }
  return step;
}

}  // namespace decoding
