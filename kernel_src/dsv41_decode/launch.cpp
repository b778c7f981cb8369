#include "kernel_src/dsv41_decode/launch.hpp"

#include <array>
#include <limits>
#include <span>
#include <string>

#include "kernel_src/argument_checks.hpp"

namespace kiln::kernels::dsv41_decode {
namespace {

// Together with the limits of tokens and page slots these keep address arithmetic inside 63 bits.
constexpr std::uint64_t kMostOutputStrideBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostScaleStrideWords = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostPageStrideBytes = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostRowStrideBytes = std::uint64_t{1} << 46;
constexpr std::uint64_t kTokenOutputBytes = dsv41::kPaddedHeads * dsv41::kHeadDim;

constexpr ArgumentChecks kCheck{"dsv41_decode"};

/// The arguments with every "0: without a gap" filled in.
Arguments with_strides(const Key& key, Arguments arguments) noexcept {
  if (arguments.swa_row_stride_bytes == 0)
    arguments.swa_row_stride_bytes = dsv41::record_bytes(Record::fp8);
  if (arguments.compressed_row_stride_bytes == 0)
    arguments.compressed_row_stride_bytes = dsv41::record_bytes(key.record);
  if (arguments.output_stride_bytes == 0) arguments.output_stride_bytes = kTokenOutputBytes;
  return arguments;
}

/// Of a cache's arguments. Constants, since names made at each call would take memory.
struct Names {
  std::string_view cache, slots, lengths, row_stride, page_stride, pages;
};
constexpr Names kSwaNames = {
    "swa_cache", "swa_slots", "swa_lengths", "swa_row_stride_bytes", "swa_page_stride_bytes",
    "swa_pages"};
constexpr Names kCompressedNames = {"compressed_cache",
                                    "compressed_slots",
                                    "compressed_lengths",
                                    "compressed_row_stride_bytes",
                                    "compressed_page_stride_bytes",
                                    "compressed_pages"};

struct Cache {
  const Names& names;
  Record record;
  std::uint64_t page_slots;
  const void* base;
  const std::int32_t* slots;
  const std::int32_t* lengths;
  std::uint64_t page_stride, row_stride, pages;
};

Status check_cache(const Cache& cache) {
  const Names& names = cache.names;
  KILN_TRY(kCheck.pointer(names.cache, cache.base, 16));
  KILN_TRY(kCheck.pointer(names.slots, cache.slots, 4));
  KILN_TRY(kCheck.pointer(names.lengths, cache.lengths, 4));
  const std::uint64_t record = dsv41::record_bytes(cache.record);
  if (Status good =
          kCheck.stride(names.row_stride, cache.row_stride, record, kMostRowStrideBytes, 16);
      !good)
    return good;
  // The last slot of a page may end with its record; what follows belongs to nobody here.
  const std::uint64_t page = (cache.page_slots - 1) * cache.row_stride + record;
  if (Status good =
          kCheck.stride(names.page_stride, cache.page_stride, page, kMostPageStrideBytes, 16);
      !good)
    return good;
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::uint64_t most_pages = most / cache.page_stride;
  if (cache.pages == 0 || cache.pages > most_pages)
    return kCheck.wrong(
        names.pages, std::to_string(cache.pages),
        "it must be from 1 to " + std::to_string(most_pages) + " at this page stride");
  return {};
}

Status check_output(const Key& key, const Arguments& arguments) {
  KILN_TRY(kCheck.pointer("output", arguments.output, 16));
  KILN_TRY(kCheck.pointer("output_scales", arguments.output_scales, 4));
  if (Status good = kCheck.stride("output_stride_bytes", arguments.output_stride_bytes,
                                  kTokenOutputBytes, kMostOutputStrideBytes, 16);
      !good)
    return good;
  // A column has a word for each token, a group 32 columns: either columns lie within groups or
  // groups within columns.
  const std::uint64_t tokens = arguments.tokens;
  const std::uint64_t column = arguments.scale_column_stride_words;
  const std::uint64_t group = arguments.scale_group_stride_words;
  if (Status good =
          kCheck.stride("scale_column_stride_words", column, tokens, kMostScaleStrideWords, 1);
      !good)
    return good;
  const std::uint64_t groups = (key.heads + kGroupHeads - 1) / kGroupHeads;
  if (groups == 1) return {};
  if (Status good =
          kCheck.stride("scale_group_stride_words", group, tokens, kMostScaleStrideWords, 1);
      !good)
    return good;
  const std::uint64_t columns = (dsv41::kHeadDim / kOutputBlock) * kGroupHeads / 4;
  if (group >= (columns - 1) * column + tokens || column >= (groups - 1) * group + tokens)
    return {};
  return kCheck.wrong("scale_group_stride_words", std::to_string(group),
                      "with columns of " + std::to_string(column) +
                          " words the groups overlap; it must be at least " +
                          std::to_string((columns - 1) * column + tokens));
}

// Of what has strides only the beginning counts: other things may lie in its gaps.
Status check_apart(const Key& key, const Arguments& a) {
  const std::uint64_t whole_groups = key.heads / kGroupHeads;
  const Range data =
      range_of("output", a.output,
               whole_groups == 0 ? kOutputBlock : whole_groups * kGroupHeads * dsv41::kHeadDim);
  const std::uint64_t compressed = key.compressed_slots;
  const std::array read = {
      data,
      range_of("query", a.query, a.tokens * kTokenOutputBytes * sizeof(u16)),
      range_of("positions", a.positions, a.tokens * sizeof(i64)),
      range_of("cos_sin", a.cos_sin, a.rope_positions * dsv41::kRopeDim * sizeof(float)),
      range_of("sinks", a.sinks, key.heads * sizeof(float)),
      range_of("swa_cache", a.swa_cache, dsv41::record_bytes(Record::fp8)),
      range_of("swa_slots", a.swa_slots, a.tokens * key.swa_slots * sizeof(int)),
      range_of("swa_lengths", a.swa_lengths, a.tokens * sizeof(int)),
      range_of("compressed_cache", a.compressed_cache,
               compressed == 0 ? 0 : dsv41::record_bytes(key.record)),
      range_of("compressed_slots", a.compressed_slots, a.tokens * compressed * sizeof(int)),
      range_of("compressed_lengths", a.compressed_lengths,
               compressed == 0 ? 0 : a.tokens * sizeof(int))};
  KILN_TRY(kCheck.apart(data, std::span(read).subspan(1)));
  return kCheck.apart(range_of("output_scales", a.output_scales, sizeof(u32)), read);
}

}  // namespace

Status check(const Key& key, const Arguments& given) {
  KILN_TRY(check(key));
  if (given.tokens > kMostTokens)
    return kCheck.wrong(
        "tokens", std::to_string(given.tokens),
        "it must be at most " + std::to_string(kMostTokens) + ", which the grid can hold");
  if (given.tokens == 0) return {};
  const Arguments arguments = with_strides(key, given);
  KILN_TRY(kCheck.pointer("query", arguments.query, 16));
  KILN_TRY(kCheck.pointer("positions", arguments.positions, 8));
  KILN_TRY(kCheck.pointer("cos_sin", arguments.cos_sin, 16));
  if (arguments.sinks != nullptr) KILN_TRY(kCheck.pointer("sinks", arguments.sinks, 4));
  constexpr std::uint64_t most_positions = std::uint64_t{1} << 48;
  if (arguments.rope_positions == 0 || arguments.rope_positions > most_positions)
    return kCheck.wrong("rope_positions", std::to_string(arguments.rope_positions),
                        "it must be from 1 to " + std::to_string(most_positions));
  if (Status good =
          check_cache({kSwaNames, Record::fp8, key.swa_page_slots, arguments.swa_cache,
                       arguments.swa_slots, arguments.swa_lengths, arguments.swa_page_stride_bytes,
                       arguments.swa_row_stride_bytes, arguments.swa_pages});
      !good)
    return good;
  if (key.compressed_slots != 0)
    if (Status good =
            check_cache({kCompressedNames, key.record, key.page_slots, arguments.compressed_cache,
                         arguments.compressed_slots, arguments.compressed_lengths,
                         arguments.compressed_page_stride_bytes,
                         arguments.compressed_row_stride_bytes, arguments.compressed_pages});
        !good)
      return good;
  KILN_TRY(check_output(key, arguments));
  return check_apart(key, arguments);
}

Args args_of(const Key& key, const Arguments& given) noexcept {
  const Arguments arguments = with_strides(key, given);
  return {.query = static_cast<const u16*>(arguments.query),
          .positions = arguments.positions,
          .cos_sin = arguments.cos_sin,
          .sinks = arguments.sinks,
          .swa = {.base = static_cast<const u8*>(arguments.swa_cache),
                  .slots = arguments.swa_slots,
                  .lengths = arguments.swa_lengths,
                  .page_stride_bytes = arguments.swa_page_stride_bytes,
                  .row_stride_bytes = arguments.swa_row_stride_bytes,
                  .cache_slots = arguments.swa_pages * key.swa_page_slots},
          .compressed = {.base = static_cast<const u8*>(arguments.compressed_cache),
                         .slots = arguments.compressed_slots,
                         .lengths = arguments.compressed_lengths,
                         .page_stride_bytes = arguments.compressed_page_stride_bytes,
                         .row_stride_bytes = arguments.compressed_row_stride_bytes,
                         .cache_slots = arguments.compressed_pages * key.page_slots},
          .output = static_cast<u8*>(arguments.output),
          .output_scales = static_cast<u32*>(arguments.output_scales),
          .output_stride_bytes = arguments.output_stride_bytes,
          .scale_group_stride_words = arguments.scale_group_stride_words,
          .scale_column_stride_words = arguments.scale_column_stride_words,
          .rope_positions = arguments.rope_positions};
}

namespace {

Status check_launch(const Key& key, const Arguments& arguments) {
  if (arguments.tokens == 0)
    return kCheck.wrong("tokens", "0",
                        "there is nothing to prepare; launch() takes it and does nothing");
  return check(key, arguments);
}

// Whether its cluster is larger than every device holds.
bool is_not_portable(const LaunchShape& shape) {
  return shape.cluster_blocks.x > swapab::kMostTiles;
}

}  // namespace

Status mega::Program::check() const {
  KILN_TRY(check_key(key));
  if (blocks == 0 || (blocks >= kLeastBlocks && blocks <= kMostBlocks)) return {};
  return kCheck.wrong("blocks", std::to_string(blocks), "it must be 0, or from 2 to 8");
}

template <class Program>
Result<Decode<Program>> Decode<Program>::create(Runtime& runtime, const Program& program) {
  KILN_TRY(program.check());
  KILN_TRY(const KernelId id, runtime.add(program.spec()));
  return Decode(runtime, id, program);
}

template <class Program>
Result<LaunchDescriptor> Decode<Program>::prepare(const Arguments& arguments,
                                                  Overlap overlap) const {
  KILN_TRY(check_launch(key(), arguments));
  KILN_TRY(const Kernel kernel, runtime_->get(id_));
  const auto prepare_with = [&](LaunchShape shape) {
    shape.overlap_previous = overlap;
    return runtime_->launches().prepare(kernel, shape, args_of(key(), arguments));
  };
  const LaunchShape shape = program_.shape(arguments.tokens);
  Result<LaunchDescriptor> prepared = prepare_with(shape);
  if (prepared || !is_not_portable(shape)) return prepared;
  return prepare_with(program_.portable_shape(arguments.tokens));
}

template <class Program>
Status Decode<Program>::update(LaunchDescriptor& launch, const Arguments& arguments) const {
  KILN_TRY(check_launch(key(), arguments));
  const auto set_shape = [&](const LaunchShape& shape) {
    return launch.set_grid_and_cluster(shape.grid_blocks, shape.cluster_blocks);
  };
  const LaunchShape shape = program_.shape(arguments.tokens);
  Status set = set_shape(shape);
  if (!set && is_not_portable(shape)) set = set_shape(program_.portable_shape(arguments.tokens));
  if (!set) return set;
  return launch.set_argument(0, args_of(key(), arguments));
}

template <class Program>
Status Decode<Program>::launch(const Arguments& arguments, CUstream stream, Overlap overlap) const {
  if (arguments.tokens == 0) return check(key(), arguments);
  Result<LaunchDescriptor> prepared = prepare(arguments, overlap);
  if (!prepared) return prepared.status();
  return prepared->launch(stream);
}

template class Decode<swapab::Program>;
template class Decode<mega::Program>;

}  // namespace kiln::kernels::dsv41_decode
