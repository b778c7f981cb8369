// Embedding Kiln in an engine: register at construction, warm up, prepare, capture a graph, replay
// it on changed inputs, and check every byte against the host model of the kernel.
//
//   kiln_embed        uses the cache that KILN_CACHE_DIR names, or the user's
#include <cstdint>
#include <iostream>
#include <kiln/runtime.hpp>
#include <kiln/spdlog.hpp>
#include <vector>

#include <kiln/kernels/dsv41_kv_insert/launch.hpp>
#include <kiln/kernels/dsv41_kv_insert/reference.hpp>
#include <kiln/kernels/kernels.hpp>

#include "examples/engine.hpp"

namespace {

namespace kv_insert = kiln::kernels::dsv41_kv_insert;

constexpr unsigned kHeads = 16;  // 64 heads over 4 ranks
constexpr unsigned kPageSlots = 128;
constexpr std::size_t kTokens = 8;
constexpr std::size_t kPages = 4;
constexpr std::size_t kRowStride = 528;  // an fp8 record
constexpr std::size_t kPageStride = kPageSlots * kRowStride;
constexpr std::size_t kPositions = 4096;

// The layer of an engine that writes the sliding-window cache of DeepSeek-V4.1.
class CacheWriter {
 public:
  static kiln::Result<CacheWriter> create(kiln::Runtime& runtime) {
    KILN_TRY(auto kernel, kv_insert::KvInsert::create(runtime, {.heads = kHeads,
                                                                .record = kv_insert::Record::fp8,
                                                                .page_slots = kPageSlots,
                                                                .ratio = 1}));
    return CacheWriter(std::move(kernel));
  }
  const kv_insert::KvInsert& kernel() const { return kernel_; }

 private:
  explicit CacheWriter(kv_insert::KvInsert kernel) : kernel_(std::move(kernel)) {}
  kv_insert::KvInsert kernel_;
};

// Inputs of one step: bf16 values that depend on `seed`, and slots all over the cache.
struct Step {
  explicit Step(unsigned seed)
      : query(kTokens * kHeads * 512), rows(kTokens * 512), positions(kTokens), slots(kTokens) {
    unsigned state = seed;
    const auto next = [&] { return state = state * 1664525u + 1013904223u; };
    // Sign, an exponent around 1, and seven random bits.
    const auto value = [&] {
      return static_cast<unsigned short>((next() & 0x8000u) | (0x3F00u + (next() >> 24 & 0xFFu)));
    };
    for (auto& bits : query) bits = value();
    for (auto& bits : rows) bits = value();
    for (std::size_t t = 0; t < kTokens; ++t) {
      positions[t] = static_cast<long>(next() % kPositions);
      slots[t] = static_cast<long>((next() % 16) * 32 + t);
    }
    slots[3] = -1;  // this row is not written
  }
  std::vector<unsigned short> query;
  std::vector<unsigned short> rows;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> slots;
};

std::vector<float> rotation_table() {
  std::vector<float> table(kPositions * 64);
  // Any table will do: the kernel only reads it.
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<float>(static_cast<int>(i * 37 % 201) - 100) / 100.0f;
  return table;
}

kiln::Status run() {
  KILN_TRY(auto options, kiln::options_from(kiln::process_environment()));
  options.log = kiln::spdlog_stderr_sink(kiln::LogLevel::warning);
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(kiln::kernels::add_sources(runtime));
  KILN_TRY(const auto writer, CacheWriter::create(runtime));

  const bool gpu = runtime.device().has_value();
  if (gpu) engine::use_first_device();
  kiln::WarmupOptions warmup;
  if (!gpu) warmup.architectures = {"sm_90a"};
  KILN_TRY(const auto report, runtime.warmup(warmup));
  for (const auto& kernel : report.kernels) {
    if (!kernel.status) return kernel.status;
    std::cout << kernel.kernel << " " << kernel.architecture << " " << kernel.key.hex() << ": "
              << to_string(kernel.origin) << std::endl;
  }
  if (!gpu) {
    std::cout << "no GPU; would capture " << kTokens << " tokens of " << kHeads
              << " heads and replay them 3 times" << std::endl;
    return {};
  }

  const auto table = rotation_table();
  Step step(1);
  engine::DeviceArray query(step.query), rows(step.rows);
  engine::DeviceArray positions(step.positions), slots(step.slots);
  engine::DeviceArray cos_sin(table);
  engine::DeviceArray<unsigned short> padded(kTokens * 64 * 512);
  engine::DeviceArray<unsigned char> cache(kPages * kPageStride);
  const kv_insert::Arguments arguments{.query = query.get(),
                                       .padded_query = padded.get(),
                                       .rows = rows.get(),
                                       .positions = positions.get(),
                                       .slots = slots.get(),
                                       .cos_sin = cos_sin.get(),
                                       .cache = cache.get(),
                                       .page_stride_bytes = kPageStride,
                                       .pages = kPages,
                                       .rope_positions = kPositions,
                                       .tokens = kTokens};
  KILN_TRY(auto launch, writer.kernel().prepare(arguments, kiln::Overlap::yes));
  const engine::Stream stream;
  KILN_TRY(const auto graph,
           engine::Graph::capture(stream, [&] { return launch.launch(stream.get()); }));

  // The host model writes into copies of the same buffers.
  std::vector<unsigned short> expected_padded(kTokens * 64 * 512);
  std::vector<unsigned char> expected_cache(kPages * kPageStride);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    step = Step(seed);
    query.assign(step.query);
    rows.assign(step.rows);
    positions.assign(step.positions);
    slots.assign(step.slots);
    graph.replay(stream);

    auto on_host = arguments;
    on_host.query = step.query.data();
    on_host.padded_query = expected_padded.data();
    on_host.rows = step.rows.data();
    on_host.positions = step.positions.data();
    on_host.slots = step.slots.data();
    on_host.cos_sin = table.data();
    on_host.cache = expected_cache.data();
    kv_insert::model(writer.kernel().key(), on_host);
    engine::expect_equal(padded.download(), expected_padded, "padded query");
    engine::expect_equal(cache.download(), expected_cache, "cache");
    std::cout << "replay " << seed << ": every byte as the host model says" << std::endl;
  }
  return {};
}

}  // namespace

int main() {
  return engine::exit_code(run());
}
