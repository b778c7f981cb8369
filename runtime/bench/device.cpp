#include "kiln/bench/device.hpp"

#include <utility>

#include "runtime/bench/device_state.hpp"

namespace kiln::bench {

void* Buffer::data() const noexcept {
  return state_ ? reinterpret_cast<void*>(static_cast<std::uintptr_t>(state_->address)) : nullptr;
}

std::size_t Buffer::bytes() const noexcept {
  return state_ ? state_->bytes : 0;
}

namespace {

Status check_range(std::size_t offset, std::size_t count, std::size_t bytes) {
  if (offset <= bytes && count <= bytes - offset) return {};
  return Error(ErrorCode::invalid_argument, "device buffer: " + std::to_string(count) +
                                                " bytes at offset " + std::to_string(offset) +
                                                " do not fit into its " + std::to_string(bytes));
}

}  // namespace

Status Buffer::write(std::span<const std::byte> bytes, std::size_t offset) const {
  KILN_TRY(check_range(offset, bytes.size(), this->bytes()));
  if (bytes.empty()) return {};
  KILN_BENCH_CALL(state_->context->driver, cuMemcpyHtoD, state_->address + offset, bytes.data(),
                  bytes.size());
  // The copy may still be under way from the driver's own buffer; the streams of the harness wait
  // for the legacy one, but others need not.
  KILN_BENCH_CALL(state_->context->driver, cuStreamSynchronize, CU_STREAM_LEGACY);
  return {};
}

Status Buffer::read(std::span<std::byte> bytes, std::size_t offset) const {
  KILN_TRY(check_range(offset, bytes.size(), this->bytes()));
  if (bytes.empty()) return {};
  KILN_BENCH_CALL(state_->context->driver, cuMemcpyDtoH, bytes.data(), state_->address + offset,
                  bytes.size());
  return {};
}

Status Buffer::fill(std::byte value) const {
  if (bytes() == 0) return {};
  KILN_BENCH_CALL(state_->context->driver, cuMemsetD8, state_->address,
                  std::to_integer<unsigned char>(value), state_->bytes);
  KILN_BENCH_CALL(state_->context->driver, cuStreamSynchronize, CU_STREAM_LEGACY);
  return {};
}

Result<Device> Device::open(Runtime& runtime, int ordinal) {
  KILN_TRY(auto driver, BenchDriver::load());
  CUdevice device = 0;
  if (driver->api->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS)
    return Error(ErrorCode::no_device, "there is no device " + std::to_string(ordinal));
  CUcontext handle = nullptr;
  KILN_BENCH_CALL(driver, cuDevicePrimaryCtxRetain, &handle, device);
  auto context = std::make_shared<Context>();
  context->driver = driver;
  KILN_BENCH_CALL(driver, cuCtxSetCurrent, handle);
  auto state = std::make_shared<State>();
  char text[256] = {};
  KILN_BENCH_CALL(driver, cuDeviceGetName, text, sizeof(text), device);
  state->name = text;
  KILN_BENCH_CALL(driver, cuDeviceGetPCIBusId, text, sizeof(text), device);
  state->pci_id = text;
  int l2_bytes = 0;
  if (const auto result =
          driver->api->cuDeviceGetAttribute(&l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
      result != CUDA_SUCCESS)
    return driver->api->failed("cuDeviceGetAttribute", result);
  state->l2_bytes = static_cast<std::size_t>(l2_bytes);
  state->context = std::move(context);
  state->runtime = &runtime;
  state->ordinal = ordinal;
  return Device(std::move(state));
}

const std::string& Device::name() const noexcept {
  return state_->name;
}

std::size_t Device::l2_bytes() const noexcept {
  return state_->l2_bytes;
}

Result<Buffer> Device::allocate(std::size_t bytes) const {
  auto buffer = std::make_shared<Buffer::State>();
  buffer->context = state_->context;
  buffer->bytes = bytes;
  if (bytes > 0) KILN_BENCH_CALL(state_->context->driver, cuMemAlloc, &buffer->address, bytes);
  return Buffer(std::move(buffer));
}

Result<Buffer> Device::upload(std::span<const std::byte> bytes) const {
  KILN_TRY(auto buffer, allocate(bytes.size()));
  KILN_TRY(buffer.write(bytes));
  return buffer;
}

}  // namespace kiln::bench
