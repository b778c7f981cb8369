// One captured step of Kimi-K3's MLA, replayed while everything that it reads changes: requests
// grow by a token, take a page of the cache when theirs is full, end, and others take their places
// and their pages. Nothing is compiled or loaded late; rows are checked against mathematics in
// double.
//
//   kiln_mla          uses the cache that KILN_CACHE_DIR names, or the user's
#include <iostream>
#include <kiln/runtime.hpp>
#include <span>
#include <vector>

#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/kimi_k3_mla/reference.hpp>
#include <kiln/kernels/layers/kimi_k3/attention.hpp>

#include "examples/engine.hpp"
#include "examples/mla/requests.hpp"

namespace {

using namespace paged;  // NOLINT: the example's own
namespace k3 = kiln::kernels::kimi_k3;
namespace mla = kiln::kernels::kimi_k3_mla;

constexpr int kReplays = 400;
constexpr int kCheckEvery = 25;
constexpr k3::LayerOptions kLayer{
    .tp = kTp, .max_batch = kPlaces, .max_query = 1, .max_keys = kMostKeys};

// A machine without a GPU plans and compiles for this one.
const kiln::DeviceInfo kH200{
    .architecture = "sm_90a", .sm_count = 132, .shared_bytes_per_block = 227 * 1024};

/// A step over the memory that is named, on the device or on the host.
mla::Arguments step_over(const void* query, const void* cache, const void* tables,
                         const void* lengths, void* output) {
  using mla::DataType;
  using mla::Tensor;
  return {.query = Tensor::dense(query, DataType::e4m3, {kPlaces, 1, kHeads, kKeyDim}),
          .cache = Tensor::dense(cache, DataType::e4m3, {kPages, kPageKeys, kKeyDim}),
          .block_tables = Tensor::dense(tables, DataType::int32, {kPlaces, kTablePages}),
          .lengths = Tensor::dense(lengths, DataType::int32, {kPlaces}),
          .output = mla::OutputTensor::dense(output, DataType::bfloat16,
                                             {kPlaces, 1, kHeads, mla::kLatentDim}),
          .softmax_scale = 0.07216878f};  // 1 / sqrt(192), the dims before they are absorbed
}

/// What the engine keeps in device memory; the capture bakes in where it lies.
struct Memory {
  Memory(const Batch& batch, std::size_t bytes_of_workspace)
      : query(batch.query),
        cache(batch.cache),
        tables(batch.tables),
        lengths(batch.lengths),
        workspace(bytes_of_workspace),
        workspace_bytes(bytes_of_workspace) {}

  mla::Arguments step() const {
    auto made = step_over(query.get(), cache.get(), tables.get(), lengths.get(), output.get());
    made.workspace = workspace.get();
    made.workspace_bytes = workspace_bytes;
    return made;
  }

  void assign(const Requests& requests) {
    const Batch& batch = requests.batch();
    query.assign(batch.query);
    tables.assign(batch.tables);
    lengths.assign(batch.lengths);
    for (const Write& write : requests.writes())
      cache.assign_from(write.first, std::span(batch.cache).subspan(write.first, write.count));
  }

  engine::DeviceArray<std::uint8_t> query, cache;
  engine::DeviceArray<std::int32_t> tables, lengths;
  engine::DeviceArray<std::uint16_t> output{kPlaces * kHeads * mla::kLatentDim};
  engine::DeviceArray<std::uint8_t> workspace;
  std::size_t workspace_bytes;
};

/// Compares every fourth head of each place, those from `first_head` on, and returns how many rows
/// these are; a difference ends the program.
kiln::Result<std::size_t> check(const Batch& batch, std::vector<std::uint16_t> output,
                                std::size_t first_head) {
  KILN_TRY(const auto call,
           mla::check(step_over(batch.query.data(), batch.cache.data(), batch.tables.data(),
                                batch.lengths.data(), output.data())));
  std::size_t rows = 0;
  for (std::size_t place = 0; place < kPlaces; ++place)
    for (std::size_t head = first_head; head < kHeads; head += 4, ++rows) {
      const auto row = mla::reference_row(call, place, 0, head);
      const auto got =
          std::span(output).subspan((place * kHeads + head) * mla::kLatentDim, mla::kLatentDim);
      const auto errors =
          mla::errors_of(got, {.heads = 1, .values = {row.begin(), row.end()}}, 0.01, 0.02);
      if (errors.mismatches == 0) continue;
      std::fprintf(stderr, "place %zu of %d keys, head %zu: %llu values are off, by up to %g\n",
                   place, batch.lengths[place], head,
                   static_cast<unsigned long long>(errors.mismatches), errors.largest);
      std::exit(1);
    }
  return rows;
}

kiln::Status decode(kiln::Runtime& runtime, const k3::MlaAttention& layer) {
  const auto warm = runtime.counters();
  Requests requests;
  Memory memory(requests.batch(), layer.workspace_bytes());
  const engine::Stream stream;
  // The plan is that of a table that is full, and right for every length. Keep the Launches for as
  // long as the graph, which holds no reference to the code.
  KILN_TRY(auto launches, layer.prepare(memory.step()));
  KILN_TRY(const auto step,
           engine::Graph::capture(stream, [&] { return launches.launch(stream.get()); }));

  std::size_t rows = 0;
  for (int replay = 0; replay < kReplays; ++replay) {
    requests.next();
    memory.assign(requests);
    step.replay(stream);
    if (!requests.changed() && replay % kCheckEvery != 0) continue;
    KILN_TRY(const auto checked, check(requests.batch(), memory.output.download(),
                                       static_cast<std::size_t>(replay) % 4));
    rows += checked;
  }
  ENGINE_CALL(cuCtxSynchronize);
  std::cout << kReplays << " replays of one capture: " << requests.ended() << " requests ended, "
            << requests.pages_taken_over() << " pages went to another request\n"
            << rows << " rows are as the reference has them" << std::endl;
  const auto now = runtime.counters();
  if (now.compiles != warm.compiles || now.module_loads != warm.module_loads)
    return kiln::Error(kiln::ErrorCode::invalid_argument,
                       "kernels were compiled or loaded after the warmup");
  std::cout << "nothing was compiled or loaded after the warmup" << std::endl;
  return {};
}

kiln::Status run() {
  KILN_TRY(const auto options, kiln::options_from(kiln::process_environment()));
  KILN_TRY(auto runtime, kiln::Runtime::open(options));
  KILN_TRY(kiln::kernels::add_sources(runtime));
  const auto device = runtime.device();
  KILN_TRY(const auto layer, k3::MlaAttention::create(runtime, kLayer, device ? *device : kH200));

  // With a context current, so that modules are loaded as well.
  if (device) engine::use_first_device();
  kiln::WarmupOptions warmup;
  if (!device) warmup.architectures = {kH200.architecture};
  KILN_TRY(const auto report, runtime.warmup(warmup));
  for (const auto& kernel : report.kernels) {
    if (!kernel.status) return kernel.status;
    std::cout << kernel.kernel << " " << kernel.architecture << ": " << to_string(kernel.origin)
              << std::endl;
  }
  if (device) return decode(runtime, layer);
  std::cout << "no GPU; would capture a step of " << kPlaces << " requests and replay it "
            << kReplays << " times" << std::endl;
  return {};
}

}  // namespace

int main() {
  return engine::exit_code(run());
}
