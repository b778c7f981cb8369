// Skips a test, with the reason, on a machine without NVRTC.
#pragma once

#include <gtest/gtest.h>

#include "runtime/nvrtc_search.hpp"

namespace kiln::test {

inline NvrtcSearch installed_nvrtc() {
  return find_nvrtc({}, process_environment());
}

}  // namespace kiln::test

#define KILN_REQUIRES_NVRTC()                                             \
  if (const auto search = ::kiln::test::installed_nvrtc(); !search.found) \
  GTEST_SKIP() << ::kiln::no_nvrtc_error(search).message()
