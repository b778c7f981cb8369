#include <algorithm>
#include <map>
#include <utility>

#include "runtime/runtime_state.hpp"
#include "runtime/warmup_run.hpp"

namespace kiln {
namespace {

using Clock = WarmupRun::Clock;

void count(WarmupReport& report) {
  report.requested = report.kernels.size();
  for (const auto& kernel : report.kernels) {
    if (kernel.status) report.cubin_bytes += kernel.cubin_bytes;
    switch (kernel.origin) {
      case Origin::memory:
      case Origin::disk:
      case Origin::lower_tier:
      case Origin::remote:
        ++report.hits;
        break;
      case Origin::compiled:
        ++report.compiled;
        if (!kernel.stored) ++report.not_stored;
        break;
      case Origin::waited:
        ++report.waited;
        break;
      case Origin::failed:
        ++report.failed;
        break;
    }
  }
}

Status check(const WarmupOptions& options, unsigned jobs, const Registry& registry) {
  if (jobs > kMostJobs)
    return Error(ErrorCode::invalid_argument,
                 "warmup: " + std::to_string(jobs) + " jobs are asked for; at most " +
                     std::to_string(kMostJobs) + ", or 0 for as many as there are processors");
  for (const auto& group : options.groups)
    for (const auto id : group.kernels)
      if (group.name.empty() || registry.at(id) == nullptr)
        return Error(ErrorCode::invalid_argument,
                     "warmup: group \"" + group.name + "\" " +
                         (group.name.empty() ? std::string("has no name; give it one")
                                             : "names kernel id " + std::to_string(id.index) +
                                                   ", which is not registered in this Runtime; use "
                                                   "one that its add() returned"));
  return {};
}

// The device of each context that kernels can be made ready in: the current one's, and those whose
// primary context is in use. None is made here: it takes hundreds of megabytes.
std::vector<int> devices_with_context(const DriverApi& api, std::size_t devices) {
  std::vector<int> found;
  const auto current = api.current_device();
  for (int ordinal = 0; ordinal < static_cast<int>(devices); ++ordinal) {
    unsigned flags = 0;
    int active = 0;
    CUdevice device = 0;
    const bool in_use = api.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
                        api.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
                        active != 0;
    if (in_use || (current && *current == ordinal)) found.push_back(ordinal);
  }
  return found;
}

// The devices that a warmup loads on; empty: it loads nothing.
Result<std::vector<DeviceInfo>> devices_to_load_on(Runtime::State& state,
                                                   const WarmupOptions& options) {
  const bool asked = options.depth.has_value();
  const auto depth =
      options.depth.value_or(options.architectures.empty() ? Depth::launch_ready : Depth::compile);
  if (depth == Depth::compile) return std::vector<DeviceInfo>();
  KILN_TRY(const auto api, state.driver());
  KILN_TRY(auto infos, state.devices());
  if (depth == Depth::load) return infos;
  // Unasked, as far as it is known where to.
  const auto current = api->current_device();
  const auto ready = devices_with_context(*api, infos.size());
  const auto cannot = [&](const DeviceInfo& info) {
    return std::find(ready.begin(), ready.end(), info.ordinal) == ready.end() ||
           (!asked && (!current || *current != info.ordinal));
  };
  infos.erase(std::remove_if(infos.begin(), infos.end(), cannot), infos.end());
  if (asked && infos.empty())
    return Error(ErrorCode::no_device,
                 "warmup: Depth::launch_ready needs a context, and none is current on this thread "
                 "or in use on a device: call cudaSetDevice or cuCtxSetCurrent before, or ask for "
                 "Depth::load");
  return infos;
}

}  // namespace

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::memory:
      return "memory";
    case Origin::disk:
      return "disk";
    case Origin::lower_tier:
      return "lower tier";
    case Origin::remote:
      return "remote";
    case Origin::compiled:
      return "compiled";
    case Origin::waited:
      return "waited";
    case Origin::failed:
      return "failed";
  }
  return "unknown";
}

Status Runtime::State::load_now(KernelId id, int ordinal, Depth depth) {
  KILN_TRY(const auto api, driver());
  const auto infos = devices();
  if (!infos) return infos.error();
  KILN_TRY(auto wish, request(id, (*infos)[static_cast<std::size_t>(ordinal)].architecture));
  const auto outcome = service.obtain(wish);
  if (!outcome.status) return outcome.status;
  const auto current = api->current_device();
  const bool elsewhere = !current || *current != ordinal;
  CUdevice device = 0;
  CUcontext context = nullptr;
  if (depth == Depth::launch_ready && elsewhere) {
    if (const auto result = api->cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS)
      return api->failed("cuDeviceGet", result);
    // In use by somebody already, so that this is a reference and no new context.
    if (const auto result = api->cuDevicePrimaryCtxRetain(&context, device); result != CUDA_SUCCESS)
      return api->failed("cuDevicePrimaryCtxRetain", result);
    if (const auto result = api->cuCtxPushCurrent(context); result != CUDA_SUCCESS) {
      api->cuDevicePrimaryCtxRelease(device);
      return api->failed("cuCtxPushCurrent", result);
    }
  }
  const auto loaded =
      registry.at(id)->load(api, *outcome.artifact, ordinal, log, counters.module_loads);
  auto status = loaded ? Status() : Status(loaded.error());
  if (loaded && depth == Depth::launch_ready) status = (*loaded)->bring_into_context();
  if (context != nullptr) {
    api->cuCtxPopCurrent(&context);
    api->cuDevicePrimaryCtxRelease(device);
  }
  return status;
}

Result<WarmupReport> Runtime::warmup(const WarmupOptions& options) {
  auto& state = *state_;
  if (auto status = state.usable(); !status) return status.error();
  const auto started = Clock::now();
  auto architectures = options.architectures;
  if (architectures.empty()) {
    auto infos = state.devices();
    if (!infos)
      return Error(ErrorCode::no_device,
                   "warmup: no architecture is named and no device can be asked for one; name "
                   "them, such as sm_90a. " +
                       infos.error().message());
    for (const auto& info : *infos) architectures.push_back(info.architecture);
  }
  for (const auto& architecture : architectures)
    if (auto status = state.compiler.check_target(architecture); !status) return status.error();
  std::vector<std::string> distinct;
  for (const auto& architecture : architectures)
    if (std::find(distinct.begin(), distinct.end(), architecture) == distinct.end())
      distinct.push_back(architecture);
  const auto registered = state.registry.size();
  const auto jobs = options.jobs != 0 ? options.jobs : state.options.jobs;
  if (auto status = check(options, jobs, state.registry); !status) return status.error();
  KILN_TRY(const auto devices, devices_to_load_on(state, options));
  const auto depth = options.depth.value_or(Depth::launch_ready);

  const auto run = std::make_shared<WarmupRun>(state, jobs);
  std::map<std::uint32_t, std::size_t> ranks;
  for (std::size_t rank = 0; rank < options.groups.size(); ++rank) {
    run->add_group(options.groups[rank]);
    for (const auto id : options.groups[rank].kernels) ranks.emplace(id.index, rank);
  }
  for (std::uint32_t index = 0; index < registered; ++index) {
    const auto rank = ranks.find(index);
    const auto id = state.registry.id_of(index);
    for (const auto& architecture : distinct)
      run->add(id, state.registry.at(id)->spec(), architecture,
               rank != ranks.end() ? options.groups[rank->second].name : std::string(),
               rank != ranks.end() ? rank->second : options.groups.size());
  }
  {
    const std::lock_guard lock(state.warmup_mutex);
    state.warmup = run;
  }
  WarmupRun::Load load;
  if (!devices.empty())
    load = [&](KernelId id, const std::string& architecture) -> Status {
      for (const auto& info : devices)
        if (info.architecture == architecture)
          if (auto status = state.load_now(id, info.ordinal, depth); !status) return status;
      return {};
    };
  WarmupReport report;
  run->drive(options, load, report);
  if (state.workers != nullptr) state.workers->end_idle();
  state.compiler.forget_headers();
  state.recorder.flush();

  // A filled cache serves without a compiler by its record of this one.
  if (!options.architectures.empty()) state.service.record_toolchain();
  count(report);
  report.nvrtc_loaded =
      state.compiler.loaded() || (state.workers != nullptr && state.workers->used());
  report.toolchain = state.service.toolchain_text();
  report.time = Clock::now() - started;
  return report;
}

bool Runtime::ready_for(std::string_view group) const {
  if (!state_->usable()) return false;
  std::shared_ptr<const WarmupRun> run;
  {
    const std::lock_guard lock(state_->warmup_mutex);
    run = state_->warmup;
  }
  return run != nullptr && run->ready(group);
}

}  // namespace kiln
