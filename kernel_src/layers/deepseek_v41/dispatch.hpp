// Which decode kernel a step of a DeepSeek-V4.1 attention layer takes, and why not the other one.
//
// Threads: values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "kernel_src/dsv41_decode/key.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/device_info.hpp"
#include "kiln/error.hpp"
#include "kiln/key.hpp"

namespace kiln::kernels::deepseek_v41 {

using dsv41::Record;

/// An attention layer on this rank. The defaults are those of DeepSeek-V4.1-Flash.
struct LayerOptions {
  u32 tp = 1;                   // ranks that share the model's 64 heads
  u32 ratio = 1;                // positions of a compressed entry, 1 or 2; 0: no compressed cache
  Record record = Record::fp8;  // of the compressed cache
  u32 window = 128;             // slots in a token's sliding-window list
  u32 index_topk = 512;         // slots in its compressed list
  u32 swa_page_slots = 128;
  u32 page_tokens = 128;  // of a compressed page, which has page_tokens / ratio slots
  /// Slots in the sliding-window lists of steps that widen the window, such as those of drafts;
  /// 0: there are none.
  u32 widened_window = 0;
  /// One kernel with one split of its work: a token's output is the same to the bit whatever else
  /// is in its step, among steps with lists of one width.
  bool batch_invariant = false;
  bool operator==(const LayerOptions&) const = default;
  static constexpr auto fields() {
    return std::tuple{KeyField{"tp", &LayerOptions::tp},
                      KeyField{"ratio", &LayerOptions::ratio},
                      KeyField{"record", &LayerOptions::record},
                      KeyField{"window", &LayerOptions::window},
                      KeyField{"index_topk", &LayerOptions::index_topk},
                      KeyField{"swa_page_slots", &LayerOptions::swa_page_slots},
                      KeyField{"page_tokens", &LayerOptions::page_tokens},
                      KeyField{"widened_window", &LayerOptions::widened_window},
                      KeyField{"batch_invariant", &LayerOptions::batch_invariant}};
  }
};
static_assert(lists_every_member<LayerOptions>);

/// Errors  invalid_argument naming the field, its value and what is allowed.
KILN_API Status check(const LayerOptions& layer);

/// The key, for either program, of steps with `swa_slots` in their sliding-window lists. Requires
/// check().
KILN_API dsv41_decode::Key decode_key(const LayerOptions& layer, u32 swa_slots);

/// Token counts from `first` to `last`; none by default.
struct TokenRange {
  std::uint64_t first = 1;
  std::uint64_t last = 0;
  constexpr bool has(std::uint64_t tokens) const noexcept {
    return tokens >= first && tokens <= last;
  }
};

/// The token counts, padding included, of steps that swap-AB takes.
using SwapabTokens = std::array<TokenRange, 2>;

/// Those of a table of what was measured; up to 16 where nothing was.
KILN_API SwapabTokens swapab_tokens(std::string_view architecture, u32 heads) noexcept;

enum class DecodeKernel : unsigned char {
  swapab,  ///< dsv41_swapab_decode: 16 or 32 heads and few tokens
  mega,    ///< dsv41_mega_decode: everything else
};

/// What keeps a step from swap-AB. Up to batch_invariant it is a matter of the layer.
enum class Refusal : unsigned char {
  architecture,         ///< without clusters, or with too little shared memory for a block
  no_compressed_cache,  ///< compress ratio 0
  heads,                ///< of this rank: neither 16 nor 32
  tiles,                ///< of a token: more than the 8 blocks of a cluster
  batch_invariant,      ///< was asked for
  tokens,               ///< of the step: not among swapab_tokens()
  widened_window,       ///< the step's sliding-window lists are not the window
};
inline constexpr unsigned kRefusals = 7;

/// Such as "no compressed cache".
KILN_API std::string_view to_string(Refusal refusal) noexcept;

/// A set of refusals.
class Refusals {
 public:
  constexpr void add(Refusal refusal) noexcept { bits_ |= bit(refusal); }
  constexpr bool has(Refusal refusal) const noexcept { return (bits_ & bit(refusal)) != 0; }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  bool operator==(const Refusals&) const = default;

 private:
  static constexpr unsigned bit(Refusal refusal) noexcept {
    return 1u << static_cast<unsigned>(refusal);
  }
  unsigned bits_ = 0;
};

/// All of them in the enum's order, with commas; "none" for the empty set.
KILN_API std::string to_string(const Refusals& refusals);

/// What is decided when a layer is built.
struct Dispatch {
  Refusals refusals{};    // of every step
  SwapabTokens tokens{};  // of steps that swap-AB takes
  u32 window = 128;
};

/// Requires check(). Looks at the device's architecture and shared memory.
KILN_API Dispatch dispatch_of(const LayerOptions& layer, const DeviceInfo& device);

struct Choice {
  DecodeKernel kernel = DecodeKernel::mega;
  Refusals refusals{};  // of swap-AB; empty where it was chosen
};

/// The kernel of a step of `tokens`, padding included: under CUDA graphs the padded count decides,
/// so that capture and replay agree. The output depends on it: kernels agree to rounding, not to
/// the bit.
KILN_API Choice choose_kernel(const Dispatch& dispatch, std::uint64_t tokens,
                              u32 swa_slots) noexcept;

}  // namespace kiln::kernels::deepseek_v41
