#include "kiln/runtime.hpp"

#include <algorithm>
#include <utility>

#include "cache/capped.hpp"
#include "kiln/key_text.hpp"
#include "runtime/architecture.hpp"
#include "runtime/graph_keep.hpp"
#include "runtime/runtime_state.hpp"
#include "runtime/toolkit_headers.hpp"

namespace kiln {
namespace {

Error unknown_id(KernelId id) {
  return Error(ErrorCode::invalid_argument,
               "kernel id " + std::to_string(id.index) +
                   " is not registered in this Runtime; use one that its add() returned");
}

Error no_such_device(int ordinal, std::size_t seen) {
  return Error(ErrorCode::no_device, "there is no device " + std::to_string(ordinal) +
                                         "; the driver sees " + std::to_string(seen) +
                                         ", numbered from 0 (CUDA_VISIBLE_DEVICES can hide some)");
}

Status make_absolute(RuntimeOptions& options) {
  std::vector<std::filesystem::path*> paths = {&options.source_directory, &options.record_file};
  for (auto& root : options.include_roots) {
    if (root.empty())
      return Error(ErrorCode::invalid_argument,
                   "RuntimeOptions::include_roots holds an empty path; name a directory");
    paths.push_back(&root);
  }
  for (auto* path : paths) {
    if (path->empty()) continue;
    std::error_code failure;
    auto absolute = std::filesystem::absolute(*path, failure);
    if (failure)
      return Error(ErrorCode::invalid_argument,
                   "the directory " + path->string() +
                       " is relative to a working directory that is gone; give an absolute path");
    *path = std::move(absolute);
  }
  std::error_code failure;
  if (!options.source_directory.empty() &&
      !std::filesystem::is_directory(options.source_directory, failure))
    return Error(ErrorCode::invalid_argument,
                 "the source directory " + options.source_directory.string() +
                     " is no directory; set KILN_SOURCE_DIR or the option to the root of a source "
                     "tree, or to nothing");
  return {};
}

// The root file that `spec` has for `architecture` alone; null for its usual one.
const SourceVariant* variant_for(const KernelSpec& spec, std::string_view architecture) {
  const auto found = std::find_if(
      spec.variants.begin(), spec.variants.end(),
      [&](const SourceVariant& variant) { return variant.architecture == architecture; });
  return found == spec.variants.end() ? nullptr : &*found;
}

// The headers of the installed compiler, or else of the newest one that the store has seen and
// whose headers are here.
ToolkitHeaders toolkit_headers(const NvrtcSearch& search, const cache::Store* store) {
  if (search.found) return find_toolkit_headers(*search.found, process_environment());
  if (store != nullptr)
    for (const auto& id : recorded_toolchains(*store))
      if (auto headers = find_toolkit_headers(id.major, id.minor, process_environment());
          !headers.roots.empty())
        return headers;
  return {};
}

// What the index of an object tells of it, from what its key was made of.
cache::RemoteOptions with_labels(cache::RemoteOptions remote) {
  if (!remote.describe)
    remote.describe = [](std::string_view key_text) {
      cache::EntryLabels labels;
      for (auto& field : key_text_fields(key_text)) {
        if (field.label == "architecture")
          labels.architecture = std::move(field.value);
        else if (field.label == "toolchain")
          labels.toolchain = std::move(field.value);
      }
      return labels;
    };
  return remote;
}

}  // namespace

Runtime::State::State(RuntimeOptions given, std::optional<cache::Store> opened, NvrtcSearch search)
    : options(std::move(given)),
      sources(options.source_directory),
      store(std::move(opened)),
      compiler(std::move(search)),
      workers(options.worker_command.empty()
                  ? nullptr
                  : std::make_unique<WorkerPool>(options.worker_command)),
      hints(store ? &*store : nullptr),
      service({options.toolchain, options.longest_wait, options.log, workers.get()},
              store ? &*store : nullptr, compiler, counters),
      late_builds(options.jobs, workers == nullptr),
      recorder(options.record_file, sources, options.log) {
  for (const auto& root : options.include_roots) roots.push_back({root, /*toolkit=*/false});
  auto headers = toolkit_headers(compiler.search(), store ? &*store : nullptr);
  for (const auto& root : headers.roots) roots.push_back({root, /*toolkit=*/true});
  skipped_toolkits = std::move(headers.skipped);
}

Status Runtime::State::usable() const {
  if (!lost_in_fork(opened_in)) return {};
  return Error(ErrorCode::invalid_argument,
               "this process was forked while another thread was inside Kiln for longer than a "
               "fork waits, and what it has from its parent may be half done: open a Runtime of "
               "its own, or fork before others use this one");
}

Result<std::shared_ptr<const DriverApi>> Runtime::State::driver() {
  if (auto status = usable(); !status) return status.error();
  const std::lock_guard lock(driver_mutex);
  if (driver_owner != nullptr) {
    if (generation != fork_generation()) return forked_error();
    return driver_owner;
  }
  KILN_TRY(driver_owner, DriverApi::load());
  generation = fork_generation();
  driver_seen.store(driver_owner.get(), std::memory_order_release);
  return driver_owner;
}

Result<std::vector<DeviceInfo>> Runtime::State::devices() {
  KILN_TRY(const auto api, driver());
  int count = 0;
  if (const auto result = api->cuDeviceGetCount(&count); result != CUDA_SUCCESS)
    return api->failed("cuDeviceGetCount", result);
  std::vector<DeviceInfo> infos;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    if (const auto result = api->cuDeviceGet(&device, ordinal); result != CUDA_SUCCESS)
      return api->failed("cuDeviceGet", result);
    int major = 0, minor = 0, sms = 0, shared = 0;
    const std::pair<CUdevice_attribute, int*> wanted[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared}};
    for (const auto& [attribute, value] : wanted)
      if (const auto result = api->cuDeviceGetAttribute(value, attribute, device);
          result != CUDA_SUCCESS)
        return api->failed("cuDeviceGetAttribute", result);
    infos.push_back({architecture_of(major, minor), static_cast<unsigned>(sms),
                     static_cast<unsigned>(shared), ordinal});
  }
  return infos;
}

Result<Program> Runtime::State::program(const KernelSpec& spec, std::string_view architecture) {
  KernelSpec chosen = spec;
  if (const auto* const variant = variant_for(spec, architecture)) chosen.source = variant->source;
  auto program = make_program(chosen, sources, roots, memo);
  if (program) program->skipped_toolkits = skipped_toolkits;
  return program;
}

Result<CompileRequest> Runtime::State::request(KernelId id, std::string_view architecture) {
  const auto* const registered = registry.at(id);
  if (registered == nullptr) return unknown_id(id);
  if (auto status = usable(); !status) return status.error();
  const auto& spec = registered->spec();
  if (auto status = compiler.check_target(architecture); !status) return status.error();
  if (const auto sm = parse_architecture(architecture)->sm; sm < spec.oldest_sm)
    return Error(ErrorCode::unsupported, "kernel " + spec.name + " needs sm_" +
                                             std::to_string(spec.oldest_sm) + " or newer, not " +
                                             std::string(architecture));
  std::string name(architecture);
  const auto& known = registered->known();
  if (known.program != nullptr && sources.generation() == known.generation &&
      variant_for(spec, architecture) == nullptr)
    return CompileRequest(known.program, std::move(name));
  KILN_TRY(auto made, program(spec, architecture));
  return CompileRequest(std::make_shared<const Program>(std::move(made)), name,
                        [this, &spec, name] { return program(spec, name); });
}

Result<Kernel> Runtime::State::load(KernelId id, Registered& registered, int ordinal) {
  KILN_TRY(const auto api, driver());
  if (api->capture_is_visible())
    return Error(ErrorCode::capture_active,
                 "kernel " + registered.spec().name + " is not loaded on device " +
                     std::to_string(ordinal) +
                     " yet, and a stream of this context is being captured: call Runtime::warmup() "
                     "or get() for it before the capture");
  KILN_TRY(const auto infos, devices());
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= infos.size() ||
      ordinal >= Registered::kMaxDevices)
    return no_such_device(ordinal, infos.size());
  const auto outcome =
      obtain(id, registered.spec(), infos[static_cast<std::size_t>(ordinal)].architecture);
  if (!outcome.status) return outcome.status.error();
  KILN_TRY(const auto* const loaded,
           registered.load(api, *outcome.artifact, ordinal, log, counters.module_loads));
  return loaded->handle();
}

Runtime::Runtime(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;
Runtime::~Runtime() = default;

Result<Runtime> Runtime::open(RuntimeOptions options) {
  watch_forks();
  let_go_of_graphs_kernels();
  // Once and for all: the working directory may change later.
  if (auto status = make_absolute(options); !status) return status.error();
  options.compile_limit = cache::capped(options.compile_limit);
  options.longest_wait = cache::capped(options.longest_wait);
  // NVRTC reads this one by itself and makes other code of the same inputs.
  if (const auto version = process_environment()("NV_NVVM_VERSION"); version) {
    if (options.log && (!options.cache_directory.empty() || !options.read_only_caches.empty()))
      options.log(LogLevel::warning, "the cache is off, since NV_NVVM_VERSION=" + *version +
                                         " changes what NVRTC makes; unset it to use the cache");
    options.cache_directory.clear();
    options.read_only_caches.clear();
  } else if (options.remote.is_on() && options.cache_directory.empty() && options.log) {
    options.log(LogLevel::warning,
                "the remote cache is not used, since there is no cache directory to keep what it "
                "gives; name one (KILN_CACHE_DIR)");
  }
  const bool has_cache = !options.cache_directory.empty() || !options.read_only_caches.empty();
  if (!has_cache && !options.why_no_cache.empty() && options.log)
    options.log(LogLevel::warning, "compiled kernels are not kept: " + options.why_no_cache +
                                       "; name a cache directory (KILN_CACHE_DIR)");
  std::optional<cache::Store> store;
  if (has_cache) {
    auto opened = cache::Store::open({.directory = options.cache_directory,
                                      .durable = options.durable,
                                      .log = options.log,
                                      .read_only = options.read_only_caches,
                                      .trust = options.cache_trust,
                                      .limits = options.cache_limits,
                                      .remote = with_labels(options.remote)});
    if (!opened) return opened.error();
    store = *std::move(opened);
  }
  auto search = find_nvrtc(options.nvrtc, process_environment());
  return Runtime(std::make_unique<State>(std::move(options), std::move(store), std::move(search)));
}

Status Runtime::add_source(std::string_view name, std::string_view text) {
  if (auto status = state_->usable(); !status) return status;
  return state_->sources.add(name, text);
}

Status Runtime::add_sources(std::span<const SourceText> sources) {
  for (const auto& source : sources)
    if (auto status = add_source(source.name, source.text); !status) return status;
  return {};
}

Result<KernelId> Runtime::add(const KernelSpec& spec) {
  if (auto status = state_->usable(); !status) return status.error();
  // Where files have a say the program is made anew when it is compiled, from the files as they are
  // then; here it proves that it can be made.
  const auto generation = state_->sources.generation();
  auto own = state_->program(spec);
  if (!own) return own.error();
  for (auto variant = spec.variants.begin(); variant != spec.variants.end(); ++variant) {
    const auto& name = variant->architecture;
    const auto same = [&name](const SourceVariant& other) { return other.architecture == name; };
    if (!parse_architecture(name) || std::any_of(spec.variants.begin(), variant, same))
      return Error(ErrorCode::invalid_argument,
                   "kernel " + spec.name + ": the architecture of variant " + variant->source +
                       " is \"" + name +
                       "\"; it must be one such as sm_90a that no other variant has");
    if (auto program = state_->program(spec, name); !program) return program.error();
  }
  KnownProgram known;
  if (generation && own->closure.memory_only)
    known = {std::make_shared<const Program>(*std::move(own)), *generation};
  return state_->registry.add(spec, std::move(known));
}

Result<Kernel> Runtime::get(KernelId id) {
  const auto* api = state_->open_driver();
  if (api == nullptr || state_->generation != fork_generation()) [[unlikely]] {
    KILN_TRY(const auto opened, state_->driver());
    api = opened.get();
  }
  KILN_TRY(const auto device, api->current_device());
  if (device < 0) [[unlikely]] {
    if (state_->registry.at(id) == nullptr) return unknown_id(id);
    return Error(ErrorCode::no_device,
                 "no CUDA context is current on this thread: call cudaSetDevice, or make one "
                 "current with cuCtxSetCurrent, before Runtime::get");
  }
  return get(id, device);
}

Result<Kernel> Runtime::get(KernelId id, int ordinal) {
  auto* registered = state_->registry.at(id);
  if (registered == nullptr) [[unlikely]]
    return unknown_id(id);
  if (ordinal >= 0 && ordinal < Registered::kMaxDevices && state_->generation == fork_generation())
      [[likely]]
    if (const auto* loaded = registered->find(ordinal)) [[likely]]
      return loaded->handle();
  return state_->load(id, *registered, ordinal);
}

Result<Artifact> Runtime::artifact(KernelId id, std::string_view architecture) {
  const auto* registered = state_->registry.at(id);
  if (registered == nullptr) return unknown_id(id);
  auto outcome = state_->obtain(id, registered->spec(), architecture);
  if (!outcome.status) return outcome.status.error();
  return *std::move(outcome.artifact);
}

Result<Lookup> Runtime::look_up(KernelId id, std::string_view architecture) {
  KILN_TRY(auto wish, state_->request(id, architecture));
  return state_->service.look_up(wish);
}

Result<Lookup> Runtime::fetch(KernelId id, std::string_view architecture) {
  KILN_TRY(auto wish, state_->request(id, architecture));
  return state_->service.fetch(wish);
}

Status Runtime::send(KernelId id, std::string_view architecture) {
  const auto found = look_up(id, architecture);
  if (!found) return found.error();
  if (!state_->store || !found->found)
    return Error(ErrorCode::io_failed, "kernel " + state_->registry.at(id)->spec().name + " for " +
                                           std::string(architecture) +
                                           " is not in the cache, and cannot be sent; run kiln "
                                           "prewarm first");
  return state_->store->send(found->key);
}

Status Runtime::flush(std::chrono::milliseconds longest, const std::stop_token& stop) {
  return state_->store ? state_->store->flush(longest, stop) : Status{};
}

std::vector<DeviceInfo> Runtime::devices() {
  auto infos = state_->devices();
  return infos ? *std::move(infos) : std::vector<DeviceInfo>();
}

Result<DeviceInfo> Runtime::device(int ordinal) {
  KILN_TRY(const auto infos, state_->devices());
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= infos.size())
    return no_such_device(ordinal, infos.size());
  return infos[static_cast<std::size_t>(ordinal)];
}

void Runtime::seal(SealPolicy policy) {
  if (state_->usable()) state_->seal.close(std::move(policy));
}

Recording Runtime::recording() const {
  return state_->usable() ? state_->recorder.recording() : Recording{};
}

LaunchPool& Runtime::launches() noexcept {
  return state_->launches;
}

Result<TensorMapBuilder> Runtime::tensor_map_builder() {
  KILN_TRY(auto driver, state_->driver());
  return TensorMapBuilder(std::move(driver));
}

Result<TensorMapArray> Runtime::tensor_map_array(std::size_t count) {
  KILN_TRY(auto driver, state_->driver());
  return TensorMapArray::allocate(std::move(driver), count, state_->log);
}

RuntimeCounters Runtime::counters() const noexcept {
  return state_->counters.snapshot(state_->launches.usage().in_use);
}
cache::StoreCounters Runtime::cache_counters() const {
  return state_->store ? state_->store->counters() : cache::StoreCounters{};
}
const RuntimeOptions& Runtime::options() const noexcept {
  return state_->options;
}

}  // namespace kiln
