// The kernels that a CUDA source seems to declare, found without a compiler: enough to guess which
// one is meant when none is named. The compiler has the last word.
//
// Threads: pure functions and values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

struct DeclaredKernel {
  std::string name{};  ///< with its namespaces: "outer::scale"
  bool is_c = false;   ///< extern "C": the name is its symbol
  bool is_template = false;
};

/// In order of appearance, each name once. Branches that the preprocessor leaves out count, and
/// kernels that macros or included files declare do not.
std::vector<DeclaredKernel> declared_kernels(std::string_view source);

}  // namespace kiln::cli
