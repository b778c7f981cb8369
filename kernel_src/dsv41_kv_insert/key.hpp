// What is compiled in.
//
// Threads: values and pure functions.
#pragma once

#include <optional>
#include <string_view>
#include <tuple>

#include "kernel_src/shared/dsv41_record.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"
#include "kiln/key.hpp"

namespace kiln::kernels::dsv41_kv_insert {

using dsv41::Record;

struct Key {
  u32 heads = 0;  // live query heads of this rank, a divisor of 64; 0: no query part
  Record record = Record::fp8;
  u32 page_slots = 64;  // a power of two
  u32 ratio = 1;        // positions of an entry: 1 or 2
  bool operator==(const Key&) const = default;
  static constexpr auto fields() {
    return std::tuple{KeyField{"heads", &Key::heads}, KeyField{"record", &Key::record},
                      KeyField{"page_slots", &Key::page_slots}, KeyField{"ratio", &Key::ratio}};
  }
};
static_assert(lists_every_member<Key>);

inline constexpr u32 kMostPageSlots = 65536;

/// "fp8" or "nvfp4"; empty for anything else.
KILN_API std::string_view to_string(Record record) noexcept;
/// The inverse of to_string.
KILN_API std::optional<Record> record_from(std::string_view name) noexcept;

/// Errors  invalid_argument naming the field, its value and what is allowed.
KILN_API Status check(const Key& key);

/// What registers the kernel of `key`, which must be a good one: see check(). Needs no device.
KILN_API KernelSpec spec_of(const Key& key);

}  // namespace kiln::kernels::dsv41_kv_insert
