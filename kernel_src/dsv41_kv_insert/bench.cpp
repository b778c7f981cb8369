#include "kernel_src/dsv41_kv_insert/bench.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "kernel_src/dsv41_kv_insert/reference.hpp"
#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels::dsv41_kv_insert {
namespace {

constexpr std::array<std::string_view, 3> kProblems = {"fp8, 16 heads", "fp8, no query",
                                                       "nvfp4, no query"};
constexpr std::array kKeys = {Key{.heads = 16, .record = Record::fp8, .page_slots = 128},
                              Key{.record = Record::fp8, .page_slots = 128},
                              Key{.record = Record::nvfp4, .page_slots = 128}};
static_assert(kProblems.size() == kKeys.size());

constexpr std::size_t kRopePositions = 4096;

/// A call in host memory.
struct HostData {
  std::vector<u16> query{}, rows{};
  std::vector<i64> positions{}, slots{};
  std::vector<float> cos_sin{};
  std::vector<u8> cache{}, padded_query{};
};

HostData make_data(const Key& key, std::size_t tokens, std::size_t pages) {
  std::mt19937 random(static_cast<unsigned>(tokens) * 8 + key.heads);
  std::normal_distribution<float> normal;
  const auto bf16_values = [&](std::size_t count) {
    std::vector<u16> values(count);
    for (auto& value : values) value = static_cast<u16>(bits_of(normal(random)) >> 16);
    return values;
  };
  HostData data{.query = bf16_values(tokens * key.heads * dsv41::kHeadDim),
                .rows = bf16_values(tokens * dsv41::kHeadDim)};
  for (std::size_t position = 0; position < kRopePositions; ++position)
    for (const bool sine : {false, true})
      for (u32 pair = 0; pair < dsv41::kRopeDim / 2; ++pair) {
        const double angle = static_cast<double>(position) *
                             std::pow(10000.0, -2.0 * pair / static_cast<double>(dsv41::kRopeDim));
        data.cos_sin.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
  // Scattered over the pages, none twice.
  data.slots.resize(pages * key.page_slots);
  std::iota(data.slots.begin(), data.slots.end(), i64{0});
  std::shuffle(data.slots.begin(), data.slots.end(), random);
  data.slots.resize(tokens);
  for (std::size_t token = 0; token < tokens; ++token)
    data.positions.push_back(static_cast<i64>(random() % kRopePositions));
  const auto poison = std::to_integer<u8>(bench::kPoison);
  data.cache.assign(pages * key.page_slots * dsv41::record_bytes(key.record), poison);
  data.padded_query.assign(key.heads != 0 ? tokens * kQueryPieces * 16 : 0, poison);
  return data;
}

/// The call with its data on the device, and the bytes that it must give.
struct DeviceData {
  std::vector<bench::Buffer> inputs;
  std::vector<bench::Buffer> outputs;
  std::vector<std::vector<u8>> expected;  // of the outputs
  Arguments arguments;

  Status check() const {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      std::vector<u8> got(outputs[i].bytes());
      KILN_TRY(outputs[i].read(std::as_writable_bytes(std::span(got))));
      const auto at = std::mismatch(got.begin(), got.end(), expected[i].begin());
      if (at.first == got.end()) continue;
      return Error(ErrorCode::invalid_argument,
                   std::string(i == 0 ? "cache" : "padded query") + " byte " +
                       std::to_string(at.first - got.begin()) + " is " + std::to_string(*at.first) +
                       " for " + std::to_string(*at.second));
    }
    return {};
  }
};

/// An arm's kernel and launch.
struct Prepared {
  std::shared_ptr<const DeviceData> data;
  LaunchDescriptor launch;
};

Result<std::shared_ptr<const DeviceData>> upload(const bench::Device& device, const Key& key,
                                                 std::size_t tokens) {
  const std::size_t pages = tokens / key.page_slots + 2;
  auto host = make_data(key, tokens, pages);
  const bool with_query = key.heads != 0;
  auto data = std::make_shared<DeviceData>();
  auto& arguments = data->arguments;
  arguments.page_stride_bytes = key.page_slots * dsv41::record_bytes(key.record);
  arguments.pages = pages;
  arguments.rope_positions = kRopePositions;
  arguments.tokens = tokens;

  auto on_host = arguments;
  on_host.query = with_query ? host.query.data() : nullptr;
  on_host.padded_query = with_query ? host.padded_query.data() : nullptr;
  on_host.rows = host.rows.data();
  on_host.positions = host.positions.data();
  on_host.slots = host.slots.data();
  on_host.cos_sin = host.cos_sin.data();
  on_host.cache = host.cache.data();
  model(key, on_host);

  const auto input = [&](const auto& values) -> Result<const void*> {
    KILN_TRY(auto buffer, device.upload(values));
    data->inputs.push_back(buffer);
    return static_cast<const void*>(buffer.data());
  };
  const auto output = [&](std::vector<u8>& bytes) -> Result<void*> {
    KILN_TRY(auto buffer, device.allocate(bytes.size()));
    data->outputs.push_back(buffer);
    data->expected.push_back(std::move(bytes));
    return buffer.data();
  };
  if (with_query) {
    KILN_TRY(arguments.query, input(host.query));
  }
  KILN_TRY(arguments.rows, input(host.rows));
  KILN_TRY(const void* positions, input(host.positions));
  arguments.positions = static_cast<const i64*>(positions);
  KILN_TRY(const void* slots, input(host.slots));
  arguments.slots = static_cast<const i64*>(slots);
  KILN_TRY(const void* cos_sin, input(host.cos_sin));
  arguments.cos_sin = static_cast<const float*>(cos_sin);
  KILN_TRY(arguments.cache, output(host.cache));
  if (with_query) {
    KILN_TRY(arguments.padded_query, output(host.padded_query));
  }
  return std::shared_ptr<const DeviceData>(std::move(data));
}

Result<BenchCase> make(const bench::Device& device, std::size_t problem, std::uint64_t tokens) {
  const Key key = kKeys[problem];
  KILN_TRY(auto data, upload(device, key, tokens));
  BenchCase made{.spec = spec_of(key)};
  made.arm = [key, data](Runtime& runtime, std::string name) -> Result<bench::DeviceArm> {
    KILN_TRY(const auto writer,
             KvInsert::create(runtime, {key.heads, key.record, key.page_slots, key.ratio}));
    KILN_TRY(auto launch, writer.prepare(data->arguments));
    // Shared, since a function object must be copyable.
    const auto prepared = std::make_shared<Prepared>(Prepared{data, std::move(launch)});
    return bench::DeviceArm{
        .name = std::move(name),
        .enqueue = [prepared](CUstream stream) { return prepared->launch.launch(stream); },
        .check = [data] { return data->check(); },
        .outputs = data->outputs};
  };
  return made;
}

}  // namespace

KernelBench kernel_bench() noexcept {
  return {.name = "dsv41_kv_insert", .problems = kProblems, .make = make};
}

}  // namespace kiln::kernels::dsv41_kv_insert
