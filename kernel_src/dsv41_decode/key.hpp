// What is compiled into either program.
//
// Threads: values and pure functions.
#pragma once

#include <tuple>

#include "kernel_src/shared/dsv41_record.hpp"
#include "kiln/cache/api.hpp"
#include "kiln/error.hpp"
#include "kiln/key.hpp"

namespace kiln::kernels::dsv41_decode {

using dsv41::Record;

struct Key {
  u32 heads = 16;               // live query heads of this rank, a divisor of 64
  u32 swa_slots = 128;          // width of the sliding-window list
  u32 compressed_slots = 512;   // width of the compressed list; 0: there is none
  Record record = Record::fp8;  // of the compressed cache; sliding-window records are fp8
  u32 swa_page_slots = 64;      // a power of two
  u32 page_slots = 64;          // of the compressed cache, a power of two
  bool operator==(const Key&) const = default;
  static constexpr auto fields() {
    return std::tuple{KeyField{"heads", &Key::heads},
                      KeyField{"swa_slots", &Key::swa_slots},
                      KeyField{"compressed_slots", &Key::compressed_slots},
                      KeyField{"record", &Key::record},
                      KeyField{"swa_page_slots", &Key::swa_page_slots},
                      KeyField{"page_slots", &Key::page_slots}};
  }
};
static_assert(lists_every_member<Key>);

inline constexpr u32 kMostListSlots = 65536;
inline constexpr u32 kMostPageSlots = 65536;

/// What every program needs; each narrows it further. `record` and `page_slots` are checked without
/// a compressed list as well, though they play no part then.
/// Errors  invalid_argument naming the field, its value and what is allowed.
KILN_API Status check(const Key& key);

}  // namespace kiln::kernels::dsv41_decode
