// Decode attention on the host in double: what the programs' outputs ought to be before and after
// they are rounded to MXFP8, and how far others are from it. All pointers are host pointers.
//
// Threads: pure functions over the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "kernel_src/dsv41_decode/arguments.hpp"
#include "kernel_src/dsv41_decode/key.hpp"
#include "kiln/cache/api.hpp"

namespace kiln::kernels::dsv41_decode {

/// The 512 numbers of a record, exactly, by the rules of arguments.hpp.
/// Shapes  bytes [record_bytes(record)]
KILN_API std::array<double, dsv41::kHeadDim> decode_record(Record record,
                                                           std::span<const u8> bytes);

/// What a call puts out, as numbers.
struct Output {
  std::size_t heads = 0;
  std::vector<double> values{};  // [tokens, heads, 512]; 0 for tokens that are not written

  std::span<const double> of(std::size_t token, std::size_t head) const {
    return std::span(values).subspan((token * heads + head) * dsv41::kHeadDim, dsv41::kHeadDim);
  }
};

/// The outputs before they are rounded to MXFP8. All is double but the query's rotation, whose fp32
/// and bf16 roundings are part of the contract. Requires a good key and arguments that fit it; the
/// output pointers are not used.
KILN_API Output reference(const Key& key, const Arguments& arguments);

/// Writes `values` [tokens, heads, 512] to the output and its scales as a program would write them,
/// each taken as the nearest float: what a program does not write is not written.
KILN_API void encode_output(const Key& key, const Arguments& arguments,
                            std::span<const double> values);

/// Reads the output and its scales back.
KILN_API Output decode_output(const Key& key, const Arguments& arguments);

/// |got - want| / |want| in the Frobenius norm; 0 where both are 0, infinity where only `want` is.
/// A NaN on either side makes NaN. Requires equal sizes.
KILN_API double relative_frobenius(std::span<const double> got, std::span<const double> want);

/// The largest |got - want|. A NaN on either side makes NaN. Requires equal sizes.
KILN_API double largest_error(std::span<const double> got, std::span<const double> want);

}  // namespace kiln::kernels::dsv41_decode
