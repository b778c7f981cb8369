#include "runtime/compile_environment.hpp"

namespace kiln {

CompileEnvironment::CompileEnvironment() noexcept
    : plain_(::newlocale(LC_ALL_MASK, "C", nullptr)), locale_(::uselocale(plain_)) {
  ::fegetenv(&floats_);
  ::fesetenv(FE_DFL_ENV);
}

CompileEnvironment::~CompileEnvironment() {
  ::fesetenv(&floats_);
  ::uselocale(locale_);
  if (plain_ != nullptr) ::freelocale(plain_);
}

}  // namespace kiln
