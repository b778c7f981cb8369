#include "kernel_src/kimi_k3_mla/key.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "kernel_src/argument_checks.hpp"

namespace kiln::kernels::kimi_k3_mla {

namespace attend {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla_attend"};
constexpr std::array<u32, 6> kRowTiles = {16, 32, 48, 64, 96, kWideRows};

}  // namespace

Status check_key(const Key& key) {
  if (std::find(kRowTiles.begin(), kRowTiles.end(), key.row_tile) != kRowTiles.end()) return {};
  return kCheck.wrong("row_tile", std::to_string(key.row_tile),
                      "it must be 16, 32, 48, 64, 96 or 128");
}

KernelSpec spec_of(const Key& key) {
  return {.name = std::string(kCheck.kernel),
          .source = "kernel_src/kimi_k3_mla/attend.cu",
          .variants = {{"sm_90a", "kernel_src/kimi_k3_mla/attend_sm90a.cu"}},
          .key = key_values(key),
          .builtins = Builtins::minimal,
          .oldest_sm = 90};
}

Key key_of(const Plan& plan) noexcept {
  return {.row_tile = plan.row_tile};
}

}  // namespace attend

namespace reduce {
namespace {

constexpr ArgumentChecks kCheck{"kimi_k3_mla_reduce"};

}  // namespace

Status check_key(const Key& key) {
  if (key.row_warps <= 4 && key.row_warps != 3) return {};
  return kCheck.wrong("row_warps", std::to_string(key.row_warps),
                      "it must be 1, 2 or 4, or 0 for a block a quarter of a row");
}

KernelSpec spec_of(const Key& key) {
  return {.name = std::string(kCheck.kernel),
          .source = "kernel_src/kimi_k3_mla/reduce.cu",
          .key = key_values(key),
          .builtins = Builtins::minimal,
          .oldest_sm = 90};
}

Key key_of(Reducer reducer) noexcept {
  switch (reducer) {
    case Reducer::w1:
      return {.row_warps = 1};
    case Reducer::w2:
      return {.row_warps = 2};
    case Reducer::w4:
      return {.row_warps = 4};
    case Reducer::cta:
    case Reducer::none:
      break;
  }
  return {.row_warps = 0};
}

}  // namespace reduce

}  // namespace kiln::kernels::kimi_k3_mla
