// What is compiled into the programs of the family, and which of them a plan launches.
//
// Threads: values and pure functions.
#pragma once

#include <tuple>
#include <vector>

#include "kernel_src/kimi_k3_mla/plan.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"
#include "kiln/key.hpp"

namespace kiln::kernels::kimi_k3_mla {

namespace attend {

struct Key {
  u32 row_tile = 16;  // packed rows of a block or, from 96 on, a pair: 16, 32, 48, 64, 96, 128
  bool operator==(const Key&) const = default;
  static constexpr auto fields() { return std::tuple{KeyField{"row_tile", &Key::row_tile}}; }
};
static_assert(lists_every_member<Key>);

/// Errors  invalid_argument naming the field, its value and what is allowed.
KILN_API Status check_key(const Key& key);

/// What registers the program of `key`, which must be a good one. Needs no device.
KILN_API KernelSpec spec_of(const Key& key);

/// Of the program that `plan` launches.
KILN_API Key key_of(const Plan& plan) noexcept;

}  // namespace attend

namespace reduce {

struct Key {
  u32 row_warps = 1;  // that share a row: 1, 2, 4; 0: a block for a quarter of a row
  bool operator==(const Key&) const = default;
  static constexpr auto fields() { return std::tuple{KeyField{"row_warps", &Key::row_warps}}; }
};
static_assert(lists_every_member<Key>);

/// Errors  as attend::check_key
KILN_API Status check_key(const Key& key);

/// As attend::spec_of.
KILN_API KernelSpec spec_of(const Key& key);

/// Of a reducer that is one: not Reducer::none.
KILN_API Key key_of(Reducer reducer) noexcept;

}  // namespace reduce

/// What a layer may launch.
struct Programs {
  std::vector<attend::Key> attend{};
  std::vector<reduce::Key> reduce{};
};

}  // namespace kiln::kernels::kimi_k3_mla
