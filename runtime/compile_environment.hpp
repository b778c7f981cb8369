// What the code that NVRTC makes depends on beside its inputs, and a host program may set.
//
// Threads: each object by the thread that made it.
#pragma once

#include <fenv.h>
#include <locale.h>

namespace kiln {

/// While it lives, this thread has the C locale and the default floating-point environment. In
/// another locale ptxas reads 1.25 as 1; another rounding, or subnormals flushed to zero, change
/// what is folded; and a trap that the host has enabled would end the process.
class CompileEnvironment {
 public:
  CompileEnvironment() noexcept;
  CompileEnvironment(const CompileEnvironment&) = delete;
  CompileEnvironment& operator=(const CompileEnvironment&) = delete;
  ~CompileEnvironment();

 private:
  locale_t plain_;
  locale_t locale_;
  fenv_t floats_{};
};

}  // namespace kiln
