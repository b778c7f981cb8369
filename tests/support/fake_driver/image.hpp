// What a cubin says of its kernels. Written for the fake driver alone, so that the code under test
// is checked against a second reading of the format.
//
// Threads: pure functions and values.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace fake_driver {

struct Parameter {
  std::size_t offset = 0;
  std::size_t size = 0;
};

struct Code {
  std::string name;
  std::vector<Parameter> parameters;
  unsigned registers = 0;
  unsigned stack_bytes = 0;
  unsigned static_shared_bytes = 0;
  unsigned most_threads = 0;          ///< as declared; 0 when it is not
  std::array<unsigned, 3> cluster{};  ///< as declared; 0 when it is not
  bool needs_cluster = false;
};

struct Image {
  int major = 0;
  int minor = 0;
  std::vector<Code> kernels;
};

/// `code` is trusted to be as long as its headers say, as the driver has to.
/// Errors  CUDA_ERROR_INVALID_IMAGE
CUresult read_image(const void* code, Image& image);

}  // namespace fake_driver
