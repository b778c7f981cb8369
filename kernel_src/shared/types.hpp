// Integers of known width, on both sides. No includes: NVRTC brings no <cstdint>.
#pragma once

namespace kiln::kernels {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;  // what std::uint64_t is where long has 64 bits
using i64 = long;
static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(i64) == 8, "long must have 64 bits");

}  // namespace kiln::kernels
