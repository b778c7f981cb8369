#include "kernel_src/layers/deepseek_v41/dispatch.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/dsv41_decode/plan.hpp"

namespace kiln::kernels::deepseek_v41 {
namespace {

namespace decode = dsv41_decode;

// Where dsv41_swapab_decode is faster than dsv41_mega_decode, by kiln_dsv41_decode_bench. An H200
// holds 22 clusters of five blocks at once, swap-AB's with many tokens: with up to 44 it takes two
// turns, with up to 66 three, of which 64 were measured. Of the other one's clusters it holds 22 of
// five blocks, 30 of four and 66 of two: with more tokens a token has fewer.
struct Measured {
  std::string_view architecture;
  u32 heads;
  SwapabTokens tokens;
};
constexpr std::array kMeasured = {Measured{"sm_90a", 16, {{{0, 64}}}},
                                  Measured{"sm_90a", 32, {{{0, 22}, {31, 44}}}}};
// Of other architectures and head counts.
constexpr SwapabTokens kUnmeasured = {{{0, 16}}};

constexpr ArgumentChecks kCheck{"deepseek_v41"};

Status field(std::string_view name, std::uint64_t value, bool good, const std::string& allowed) {
  if (good) return {};
  return kCheck.wrong(name, std::to_string(value), "it must be " + allowed);
}

}  // namespace

Status check(const LayerOptions& layer) {
  const u32 ratio = layer.ratio;
  for (Status status :
       {field("tp", layer.tp, layer.tp != 0 && dsv41::kPaddedHeads % layer.tp == 0,
              "a divisor of 64, the model's heads"),
        field("ratio", ratio, ratio <= 2, "0 (no compressed cache), 1 or 2"),
        field("index_topk", layer.index_topk, ratio == 0 || layer.index_topk != 0,
              "at least 1 in a layer with a compressed cache"),
        field("page_tokens", layer.page_tokens,
              std::has_single_bit(layer.page_tokens) && layer.page_tokens >= ratio,
              "a power of two, no less than the ratio"),
        field("widened_window", layer.widened_window,
              layer.widened_window == 0 || layer.widened_window > layer.window,
              "0 (never widened) or more than the window of " + std::to_string(layer.window))})
    if (!status) return status;
  if (layer.widened_window != 0) KILN_TRY(decode::check(decode_key(layer, layer.widened_window)));
  return decode::check(decode_key(layer, layer.window));
}

decode::Key decode_key(const LayerOptions& layer, u32 swa_slots) {
  const bool compresses = layer.ratio != 0;
  // Without a compressed cache its record and page play no part; those of the sliding window stand
  // there, so that equal kernels have equal keys.
  return {.heads = dsv41::kPaddedHeads / layer.tp,
          .swa_slots = swa_slots,
          .compressed_slots = compresses ? layer.index_topk : 0,
          .record = compresses ? layer.record : Record::fp8,
          .swa_page_slots = layer.swa_page_slots,
          .page_slots = compresses ? layer.page_tokens / layer.ratio : layer.swa_page_slots};
}

SwapabTokens swapab_tokens(std::string_view architecture, u32 heads) noexcept {
  for (const Measured& measured : kMeasured)
    if (measured.architecture == architecture && measured.heads == heads) return measured.tokens;
  return kUnmeasured;
}

std::string_view to_string(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::architecture:
      return "an architecture without room for it";
    case Refusal::no_compressed_cache:
      return "no compressed cache";
    case Refusal::heads:
      return "neither 16 nor 32 heads";
    case Refusal::tiles:
      return "more than 8 tiles";
    case Refusal::batch_invariant:
      return "batch-invariant";
    case Refusal::tokens:
      return "a token count that the other one is faster with";
    case Refusal::widened_window:
      return "a widened window";
  }
  return {};
}

std::string to_string(const Refusals& refusals) {
  std::string text;
  for (unsigned i = 0; i < kRefusals; ++i)
    if (const auto refusal = static_cast<Refusal>(i); refusals.has(refusal))
      text.append(text.empty() ? "" : ", ").append(to_string(refusal));
  return text.empty() ? "none" : text;
}

Dispatch dispatch_of(const LayerOptions& layer, const DeviceInfo& device) {
  const decode::Key key = decode_key(layer, layer.window);
  Dispatch made{.tokens = swapab_tokens(device.architecture, key.heads), .window = layer.window};
  // Of a key that swap-AB does not have the architecture is judged by the model's own.
  const bool has_key = decode::swapab::check_key(key).ok();
  if (!decode::swapab::plan(has_key ? key : decode::Key{}, 1, device))
    made.refusals.add(Refusal::architecture);
  if (key.compressed_slots == 0) made.refusals.add(Refusal::no_compressed_cache);
  if (key.heads != 16 && key.heads != 32) made.refusals.add(Refusal::heads);
  if (decode::swapab::large_tiles(key.swa_slots, key.compressed_slots) > decode::swapab::kMostTiles)
    made.refusals.add(Refusal::tiles);
  if (layer.batch_invariant) made.refusals.add(Refusal::batch_invariant);
  return made;
}

Choice choose_kernel(const Dispatch& dispatch, std::uint64_t tokens, u32 swa_slots) noexcept {
  Choice choice{.refusals = dispatch.refusals};
  const auto has = [tokens](const TokenRange& range) { return range.has(tokens); };
  if (std::none_of(dispatch.tokens.begin(), dispatch.tokens.end(), has))
    choice.refusals.add(Refusal::tokens);
  if (swa_slots != dispatch.window) choice.refusals.add(Refusal::widened_window);
  if (choice.refusals.empty()) choice.kernel = DecodeKernel::swapab;
  return choice;
}

}  // namespace kiln::kernels::deepseek_v41
