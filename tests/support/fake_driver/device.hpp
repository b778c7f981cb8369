// The devices and contexts of the fake driver, for its other parts.
//
// Threads: under State's mutex.
#pragma once

#include <cuda.h>

#include "tests/support/fake_driver/state.hpp"

namespace fake_driver {

inline constexpr std::size_t kDeviceBytes = 150'754'820'096;  // of memory

/// An H200.
Device default_device();

/// Null when there is no such device.
Device* find_device(CUdevice device);
/// 0 for an attribute that has not been given a value.
int attribute(CUdevice device, CUdevice_attribute attribute);

/// This thread's context.
/// Errors  CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED
CUresult current_context(CUcontext& context);

}  // namespace fake_driver
