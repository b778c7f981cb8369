#include "kernel_src/kimi_k3_mla/bench.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "kernel_src/kimi_k3_mla/launch.hpp"
#include "kernel_src/kimi_k3_mla/reference.hpp"
#include "kernel_src/shared/e4m3.hpp"

namespace kiln::kernels::kimi_k3_mla {
namespace {

struct Shape {
  u32 heads;
  u64 query;  // new tokens of a request
  u64 keys;
};
constexpr std::array<std::string_view, 4> kProblems = {"12 heads, 8192 keys", "96 heads, 8192 keys",
                                                       "12 heads, 4 new tokens, 8192 keys",
                                                       "12 heads, 1024 keys"};
constexpr std::array kShapes = {Shape{12, 1, 8192}, Shape{96, 1, 8192}, Shape{12, 4, 8192},
                                Shape{12, 1, 1024}};
static_assert(kProblems.size() == kShapes.size());

// More take gigabytes.
constexpr u64 kMostRequests = 256;
// The host computes some of the rows in double; all of them would take minutes.
constexpr u64 kCheckedRows = 8;

struct DeviceData {
  std::vector<bench::Buffer> inputs{};
  std::vector<bench::Buffer> outputs{};
  Arguments arguments{};  // device pointers
  Plan plan{};
  std::vector<std::pair<u64, std::array<double, kLatentDim>>> want{};  // of packed rows

  Status check() const {
    std::vector<u16> got(outputs[0].bytes() / 2);
    KILN_TRY(outputs[0].read(std::as_writable_bytes(std::span(got))));
    for (const auto& [row, values] : want) {
      const Output one{.heads = 1, .values = {values.begin(), values.end()}};
      const Errors errors =
          errors_of(std::span(got).subspan(row * kLatentDim, kLatentDim), one, 0.01, 0.02);
      if (errors.mismatches != 0 || !errors.finite)
        return Error(ErrorCode::invalid_argument, "row " + std::to_string(row) + " is up to " +
                                                      std::to_string(errors.largest) +
                                                      " off; 0.01 + 2 % at most");
    }
    return {};
  }
};

struct HostData {
  std::vector<u8> query{}, cache{};
  std::vector<std::int32_t> tables{}, lengths{};
};

HostData make_inputs(const Shape& shape, u64 batch) {
  HostData host;
  std::mt19937 random(static_cast<unsigned>(shape.heads));
  std::uniform_real_distribution<float> numbers(-1.7320508f, 1.7320508f);
  std::vector<u8> codes(std::size_t{1} << 20);
  for (u8& code : codes) code = static_cast<u8>(e4m3_of_float(numbers(random)));
  const u64 width = (shape.keys + kPageKeys - 1) / kPageKeys;
  host.query.resize(batch * shape.query * shape.heads * kKeyDim);
  host.cache.resize(batch * width * kPageKeys * kKeyDim);
  for (auto* bytes : {&host.query, &host.cache})
    for (std::size_t at = 0; at < bytes->size();) {
      const std::size_t from = random() % (codes.size() / 2);
      const std::size_t count = std::min(bytes->size() - at, codes.size() / 2);
      std::copy_n(codes.begin() + static_cast<std::ptrdiff_t>(from), count,
                  bytes->begin() + static_cast<std::ptrdiff_t>(at));
      at += count;
    }
  host.tables.resize(batch * width);
  std::iota(host.tables.begin(), host.tables.end(), 0);
  std::shuffle(host.tables.begin(), host.tables.end(), random);
  host.lengths.assign(batch, static_cast<std::int32_t>(shape.keys));
  return host;
}

Arguments describe(const Shape& shape, u64 batch, const void* query, const void* cache,
                   const void* tables, const void* lengths, void* output) {
  const u64 width = (shape.keys + kPageKeys - 1) / kPageKeys;
  return {.query = Tensor::dense(query, DataType::e4m3, {batch, shape.query, shape.heads, kKeyDim}),
          .cache = Tensor::dense(cache, DataType::e4m3, {batch * width, kPageKeys, kKeyDim}),
          .block_tables = Tensor::dense(tables, DataType::int32, {batch, width}),
          .lengths = Tensor::dense(lengths, DataType::int32, {batch}),
          .output = OutputTensor::dense(output, DataType::bfloat16,
                                        {batch, shape.query, shape.heads, kLatentDim}),
          .softmax_scale = 0.07216878f,
          .max_keys = shape.keys};
}

Result<std::shared_ptr<const DeviceData>> upload(const bench::Device& device, const Shape& shape,
                                                 u64 batch) {
  HostData host = make_inputs(shape, batch);
  auto data = std::make_shared<DeviceData>();
  for (const auto bytes :
       {std::as_bytes(std::span(host.query)), std::as_bytes(std::span(host.cache)),
        std::as_bytes(std::span(host.tables)), std::as_bytes(std::span(host.lengths))}) {
    KILN_TRY(auto buffer, device.upload(bytes));
    data->inputs.push_back(buffer);
  }
  const u64 rows = batch * shape.query * shape.heads;
  KILN_TRY(auto output, device.allocate(rows * kLatentDim * 2));
  data->outputs.push_back(output);
  data->arguments = describe(shape, batch, data->inputs[0].data(), data->inputs[1].data(),
                             data->inputs[2].data(), data->inputs[3].data(), output.data());
  KILN_TRY(const Call call, kimi_k3_mla::check(data->arguments));
  KILN_TRY(data->plan, kimi_k3_mla::plan(call.problem(), kH200.sm_count, kH200));
  KILN_TRY(auto workspace, device.allocate(std::max<u64>(16, workspace_bytes(data->plan))));
  data->inputs.push_back(workspace);
  data->arguments.workspace = workspace.data();
  data->arguments.workspace_bytes = workspace_bytes(data->plan);

  std::vector<u16> unused(rows * kLatentDim);
  KILN_TRY(const Call on_host,
           kimi_k3_mla::check(describe(shape, batch, host.query.data(), host.cache.data(),
                                       host.tables.data(), host.lengths.data(), unused.data())));
  const u64 a_request = shape.query * shape.heads;
  for (u64 i = 0; i < std::min(kCheckedRows, rows); ++i) {
    const u64 row = i * (rows - 1) / std::max<u64>(1, std::min(kCheckedRows, rows) - 1);
    data->want.emplace_back(row, reference_row(on_host, row / a_request,
                                               row % a_request / shape.heads, row % shape.heads));
  }
  return std::shared_ptr<const DeviceData>(std::move(data));
}

/// An arm's launches, and what they point at.
struct Prepared {
  std::shared_ptr<const DeviceData> data;
  Launches launches;
};

Result<BenchCase> make(const bench::Device& device, std::size_t problem, std::uint64_t tokens) {
  const Shape& shape = kShapes[problem];
  if (tokens > kMostRequests)
    return Error(ErrorCode::invalid_argument, "tokens " + std::to_string(tokens) +
                                                  ": they are requests here, at most " +
                                                  std::to_string(kMostRequests) + ", of " +
                                                  std::to_string(shape.keys) + " keys each");
  KILN_TRY(auto data, upload(device, shape, tokens));
  BenchCase made{.spec = attend::spec_of(attend::key_of(data->plan))};
  made.arm = [data](Runtime& runtime, std::string name) -> Result<bench::DeviceArm> {
    Programs programs{.attend = {attend::key_of(data->plan)}};
    if (data->plan.reducer != Reducer::none)
      programs.reduce.push_back(reduce::key_of(data->plan.reducer));
    KILN_TRY(const auto attention, Attention::create(runtime, programs));
    KILN_TRY(auto launches, attention.prepare(data->arguments, data->plan));
    // Shared, since a function object must be copyable.
    const auto prepared = std::make_shared<Prepared>(Prepared{data, std::move(launches)});
    return bench::DeviceArm{
        .name = std::move(name),
        .enqueue = [prepared](CUstream stream) { return prepared->launches.launch(stream); },
        .check = [data] { return data->check(); },
        .outputs = data->outputs};
  };
  return made;
}

}  // namespace

KernelBench attend_bench() noexcept {
  return {.name = "kimi_k3_mla_attend", .problems = kProblems, .make = make};
}

}  // namespace kiln::kernels::kimi_k3_mla
