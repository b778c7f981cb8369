#include "kernel_src/dsv41_decode/bench.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "kernel_src/dsv41_decode/launch.hpp"
#include "kernel_src/dsv41_decode/reference.hpp"
#include "kernel_src/shared/bits.hpp"

namespace kiln::kernels::dsv41_decode {
namespace {

constexpr std::array<std::string_view, 4> kProblems = {"fp8, 16 heads", "nvfp4, 16 heads",
                                                       "fp8, 32 heads", "nvfp4, 32 heads"};
constexpr std::array kKeys = {
    Key{.heads = 16, .record = Record::fp8}, Key{.heads = 16, .record = Record::nvfp4},
    Key{.heads = 32, .record = Record::fp8}, Key{.heads = 32, .record = Record::nvfp4}};
static_assert(kProblems.size() == kKeys.size());
constexpr std::array<std::string_view, 3> kMegaProblems = {"fp8, 64 heads", "nvfp4, 64 heads",
                                                           "fp8, 16 heads"};
constexpr std::array kMegaKeys = {Key{.heads = 64, .record = Record::fp8},
                                  Key{.heads = 64, .record = Record::nvfp4},
                                  Key{.heads = 16, .record = Record::fp8}};
static_assert(kMegaProblems.size() == kMegaKeys.size());

constexpr std::size_t kRopePositions = 4096;
// The host computes some of the tokens in double; all of them would take minutes.
constexpr std::size_t kCheckedTokens = 4;

/// A cache of random records and the lists that name its slots.
struct HostCache {
  std::size_t pages = 0;
  std::vector<u8> records{};
  std::vector<std::int32_t> slots{}, lengths{};
};

HostCache make_cache(std::mt19937& random, Record record, std::size_t page_slots, std::size_t width,
                     std::size_t tokens) {
  HostCache cache;
  // Twice the slots that are listed in all, so that tokens share few of them.
  cache.pages = std::max<std::size_t>(64, std::bit_ceil(2 * tokens * width / page_slots));
  const std::size_t bytes = dsv41::record_bytes(record);
  const std::size_t data = dsv41::data_bytes(record);
  const std::size_t slots = cache.pages * page_slots;
  cache.records.resize(slots * bytes);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    u8* of_slot = cache.records.data() + slot * bytes;
    for (std::size_t i = 0; i < bytes; i += 4) {
      const auto word = static_cast<std::uint32_t>(random());
      std::memcpy(of_slot + i, &word, sizeof(word));
    }
    for (std::size_t i = 0; i < data && record == Record::fp8; ++i)
      if ((of_slot[i] & 0x7f) == 0x7f) of_slot[i] ^= 1;  // no NaN
    for (std::size_t i = data; i < bytes; ++i)
      of_slot[i] =
          static_cast<u8>(record == Record::fp8 ? 117 + of_slot[i] % 4 : 0x20 + of_slot[i] % 16);
  }
  // Runs of a stride that is prime to the number of slots: none twice in a list.
  for (std::size_t token = 0; token < tokens; ++token) {
    const std::size_t first = random() % slots;
    const std::size_t step = random() % 1000 * 2 + 1;
    for (std::size_t i = 0; i < width; ++i)
      cache.slots.push_back(static_cast<std::int32_t>((first + i * step) % slots));
    cache.lengths.push_back(static_cast<std::int32_t>(width));
  }
  return cache;
}

struct DeviceData {
  Key key{};
  std::vector<bench::Buffer> inputs{};
  std::vector<bench::Buffer> outputs{};  // data, then scales
  Arguments arguments{};                 // device pointers
  // The same call in host memory, of the first tokens, with pointers into `host`.
  std::vector<std::vector<u8>> host{};
  Arguments host_arguments{};
  Output want{};

  Status check() const {
    Arguments got = host_arguments;
    std::vector<u8> data(outputs[0].bytes()), scales(outputs[1].bytes());
    KILN_TRY(outputs[0].read(std::as_writable_bytes(std::span(data))));
    KILN_TRY(outputs[1].read(std::as_writable_bytes(std::span(scales))));
    got.output = data.data();
    got.output_scales = scales.data();
    const auto decoded = decode_output(key, got);
    const double error = relative_frobenius(decoded.values, want.values);
    // MXFP8's own rounding is 0.027.
    if (error < 0.03) return {};
    return Error(ErrorCode::invalid_argument, "the output is " + std::to_string(error) +
                                                  " off in the Frobenius norm; 0.03 at most");
  }
};

template <class T>
std::vector<u8> bytes_of(const std::vector<T>& values) {
  std::vector<u8> bytes(values.size() * sizeof(T));
  std::copy_n(reinterpret_cast<const u8*>(values.data()), bytes.size(), bytes.begin());
  return bytes;
}

Result<std::shared_ptr<const DeviceData>> upload(const bench::Device& device, const Key& key,
                                                 std::size_t tokens) {
  std::mt19937 random(static_cast<unsigned>(tokens) * 64 + key.heads);
  std::normal_distribution<float> normal;
  std::vector<u16> query(tokens * 32 * 64 * 16);
  for (std::size_t i = 0; i < query.size(); ++i)
    if (i / 16 % 64 < key.heads) query[i] = static_cast<u16>(bits_of(normal(random)) >> 16);
  std::vector<std::int64_t> positions(tokens);
  for (auto& position : positions) position = static_cast<std::int64_t>(random() % kRopePositions);
  std::vector<float> cos_sin;
  for (std::size_t position = 0; position < kRopePositions; ++position)
    for (const bool sine : {false, true})
      for (u32 pair = 0; pair < dsv41::kRopeDim / 2; ++pair) {
        const double angle = static_cast<double>(position) *
                             std::pow(10000.0, -2.0 * pair / static_cast<double>(dsv41::kRopeDim));
        cos_sin.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
  std::vector<float> sinks(key.heads);
  for (auto& sink : sinks) sink = normal(random);
  const auto swa = make_cache(random, Record::fp8, key.swa_page_slots, key.swa_slots, tokens);
  const auto compressed =
      make_cache(random, key.record, key.page_slots, key.compressed_slots, tokens);

  auto data = std::make_shared<DeviceData>();
  data->key = key;
  auto& arguments = data->arguments;
  auto& on_host = data->host_arguments;
  const auto input = [&](const auto& values, auto& on_device, auto& in_host_memory) -> Status {
    data->host.push_back(bytes_of(values));
    auto buffer = device.upload(data->host.back());
    if (!buffer) return buffer.status();
    data->inputs.push_back(*buffer);
    using Pointer = std::remove_reference_t<decltype(on_device)>;
    on_device = static_cast<Pointer>(static_cast<const void*>(buffer->data()));
    in_host_memory = static_cast<Pointer>(static_cast<const void*>(data->host.back().data()));
    return {};
  };
  data->host.reserve(16);
  for (auto status :
       {input(query, arguments.query, on_host.query),
        input(positions, arguments.positions, on_host.positions),
        input(cos_sin, arguments.cos_sin, on_host.cos_sin),
        input(sinks, arguments.sinks, on_host.sinks),
        input(swa.records, arguments.swa_cache, on_host.swa_cache),
        input(swa.slots, arguments.swa_slots, on_host.swa_slots),
        input(swa.lengths, arguments.swa_lengths, on_host.swa_lengths),
        input(compressed.records, arguments.compressed_cache, on_host.compressed_cache),
        input(compressed.slots, arguments.compressed_slots, on_host.compressed_slots),
        input(compressed.lengths, arguments.compressed_lengths, on_host.compressed_lengths)})
    if (!status) return status.error();
  const std::size_t scale_words = tokens * 8 * 32;
  for (const std::size_t bytes : {tokens * 32768, scale_words * 4}) {
    KILN_TRY(auto buffer, device.allocate(bytes));
    data->outputs.push_back(buffer);
  }
  arguments.output = data->outputs[0].data();
  arguments.output_scales = data->outputs[1].data();
  for (auto* both : {&arguments, &on_host}) {
    both->swa_page_stride_bytes = key.swa_page_slots * dsv41::record_bytes(Record::fp8);
    both->swa_pages = swa.pages;
    both->compressed_page_stride_bytes = key.page_slots * dsv41::record_bytes(key.record);
    both->compressed_pages = compressed.pages;
    both->scale_column_stride_words = tokens;
    both->scale_group_stride_words = tokens * 32;
    both->rope_positions = kRopePositions;
    both->tokens = tokens;
  }
  on_host.tokens = std::min(tokens, kCheckedTokens);
  data->want = reference(key, on_host);
  return std::shared_ptr<const DeviceData>(std::move(data));
}

/// An arm's launch, and what it points at.
struct Prepared {
  std::shared_ptr<const DeviceData> data;
  LaunchDescriptor launch;
};

template <class Program, const auto& keys>
Result<BenchCase> make(const bench::Device& device, std::size_t problem, std::uint64_t tokens) {
  const Program program(keys[problem]);
  KILN_TRY(auto data, upload(device, program.key, tokens));
  BenchCase made{.spec = program.spec()};
  made.arm = [program, data](Runtime& runtime, std::string name) -> Result<bench::DeviceArm> {
    KILN_TRY(const auto decode, Decode<Program>::create(runtime, program));
    KILN_TRY(auto launch, decode.prepare(data->arguments, Overlap::yes));
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

KernelBench swapab_bench() noexcept {
  return {
      .name = "dsv41_swapab_decode", .problems = kProblems, .make = make<swapab::Program, kKeys>};
}

KernelBench mega_bench() noexcept {
  return {.name = "dsv41_mega_decode",
          .problems = kMegaProblems,
          .make = make<mega::Program, kMegaKeys>};
}

}  // namespace kiln::kernels::dsv41_decode
