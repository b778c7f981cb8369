// What a kernel's author registers: the source, the entry and everything that is compiled in.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kiln/key.hpp"

namespace kiln {

/// Which of NVRTC's own declarations a program sees.
enum class Builtins : unsigned char {
  full,     ///< everything that NVRTC declares by itself
  minimal,  ///< NVRTC's -minimal: compiles sooner, lacks some types (textures, FP16 helpers)
};

/// What to do with a program whose inputs cannot all be known (it uses the time macros, or an
/// include whose name is computed by the preprocessor): such a program has no compile key.
enum class UnknownInputs : unsigned char {
  refuse,                  ///< ErrorCode::not_cacheable, naming the place
  compile_without_storing  ///< compile anew in each process, keep nothing on disk, warn
};

/// Another root file for one architecture, such as "sm_90a".
struct SourceVariant {
  std::string architecture{};
  std::string source{};
  bool operator==(const SourceVariant&) const = default;
};

struct KernelSpec {
  /// What reports and logs call this kernel.
  std::string name{};
  /// Include name of the root file, as added to the Runtime's sources. If it begins with includes
  /// of heavy toolkit headers, such as <cuda/std/array>, and then has the line "#pragma
  /// nv_hdrstop", a warmup of several keys compiles those headers once. Before that line may stand
  /// nothing else but line comments and plain macros.
  std::string source{};
  /// Root files that take its place for their architectures; entry, key and options stay.
  std::vector<SourceVariant> variants{};
  /// The symbol of the kernel, declared extern "C" __global__. Unused with a name expression.
  std::string entry = "entry";
  /// For templates: a C++ constant expression that names the kernel, such as "scale<float, 4>".
  /// The lowered name is kept with the entry, so a hit needs no compiler.
  std::string name_expression{};
  /// Compiled-in constants in declared order; kiln::key_values(key) makes them.
  std::vector<KeyValue> key{};
  /// NVRTC options such as "-use_fast_math" or "-DTILE=64". Options that name an architecture, add
  /// an include directory (see RuntimeOptions::include_roots), or read or write files are refused.
  std::vector<std::string> options{};
  Builtins builtins = Builtins::full;
  /// The oldest architecture that the source is written for, such as 90; older ones are refused
  /// before they are compiled.
  int oldest_sm = 0;
  UnknownInputs unknown_inputs = UnknownInputs::refuse;
  bool operator==(const KernelSpec&) const = default;
};

/// A registered kernel of one Runtime.
struct KernelId {
  std::uint32_t index = UINT32_MAX;
  /// Of the process's. 0, as in an id that is made by hand: the one that is asked.
  std::uint32_t runtime = 0;
  bool operator==(const KernelId&) const = default;
};

}  // namespace kiln
