// What the device tests of Kimi-K3 MLA share: a call in device memory, and the program with either
// back-end.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_src/kernels.hpp"
#include "kernel_src/kimi_k3_mla/launch.hpp"
#include "support/cuda_driver.hpp"
#include "support/kernels.hpp"
#include "tests/kernel_src/kimi_k3_mla_inputs.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

using kiln::test::CudaDriver;
using kiln::test::DeviceBuffer;
using kiln::test::message_of;

enum class BackEnd : unsigned char { own, portable };
inline constexpr BackEnd kBackEnds[] = {BackEnd::own, BackEnd::portable};

/// A HostCall with everything on the device, its outputs filled with the pattern and its workspace
/// with NaN.
struct DeviceCall {
  DeviceCall(const CudaDriver& driver, HostCall& host, u64 workspace_bytes)
      : query(driver.upload(host.query)),
        cache(driver.upload(host.cache)),
        tables(driver.upload(host.tables)),
        lengths(driver.upload(host.lengths)),
        starts(driver.upload(host.starts)),
        output(driver.upload(host.output)),
        workspace(driver.buffer(workspace_bytes)),
        arguments(host.arguments()) {
    workspace.fill(0xff);
    arguments.query.data = query.pointer();
    arguments.cache.data = cache.pointer();
    arguments.block_tables.data = tables.pointer();
    arguments.lengths.data = lengths.pointer();
    if (arguments.query_starts.data != nullptr) arguments.query_starts.data = starts.pointer();
    arguments.output.data = output.pointer();
    arguments.workspace = workspace_bytes == 0 ? nullptr : workspace.pointer();
    arguments.workspace_bytes = workspace_bytes;
  }
  /// Puts a call of the same sizes in the place of this one.
  void assign(const HostCall& host) {
    query.assign(host.query);
    cache.assign(host.cache);
    tables.assign(host.tables);
    lengths.assign(host.lengths);
    starts.assign(host.starts);
    output.assign(host.output);
  }
  std::vector<u16> bytes() const { return output.download<u16>(); }

  DeviceBuffer query, cache, tables, lengths, starts, output, workspace;
  Arguments arguments;
};

/// All sources; of the portable back-end its program under both names, so that the device's own
/// architecture compiles it as well.
/// Errors  invalid_argument where a program is not there; as Runtime::add_sources
inline Status add_sources_of(Runtime& runtime, BackEnd back_end) {
  std::vector<SourceText> sources(embedded_sources().begin(), embedded_sources().end());
  const auto named = [&](std::string_view name) {
    return std::find_if(sources.begin(), sources.end(),
                        [&](const SourceText& source) { return source.name == name; });
  };
  const auto own = named("kernel_src/kimi_k3_mla/attend_sm90a.cu");
  const auto portable = named("kernel_src/kimi_k3_mla/attend.cu");
  if (own == sources.end() || portable == sources.end())
    return Error(ErrorCode::invalid_argument, "a program of Kimi-K3 MLA is not embedded");
  if (back_end == BackEnd::portable) own->text = portable->text;
  return runtime.add_sources(sources);
}

}  // namespace kiln::kernels::kimi_k3_mla::test
