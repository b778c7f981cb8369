#pragma once
__device__ inline float twice(float value) {
  return 2.0f * value;
}
