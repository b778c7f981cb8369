// The address of every public function that is not inline: a library that does not export one
// fails to link.
#include <kiln/cache/store.hpp>
#include <kiln/kernels/dsv41_kv_insert/launch.hpp>
#include <kiln/kernels/dsv41_kv_insert/reference.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/layers/deepseek_v41/decode_attention.hpp>
#include <kiln/kernels/manifest.hpp>
#include <kiln/runtime.hpp>
#include <kiln/spdlog.hpp>
#include <kiln/version.hpp>

#include <optional>
#include <type_traits>

namespace {

// Reads each address, which the compiler would else leave out.
template <class... Functions>
std::size_t count_of(Functions... functions) {
  const auto is_there = [](auto function) {
    volatile auto kept = function;
    return std::size_t{kept != nullptr};
  };
  return (std::size_t{0} + ... + is_there(functions));
}

// Moving assigns and destroys: the special members have no address.
template <class T>
void move_once(std::optional<T>& value) {
  if (!value) return;
  T moved = std::move(*value);
  *value = std::move(moved);
}

}  // namespace

std::size_t public_functions();
std::size_t public_functions() {
  using namespace kiln;
  std::optional<cache::Store> store;
  std::optional<cache::KeyLock> lock;
  std::optional<Runtime> runtime;
  std::optional<LaunchDescriptor> descriptor;
  // Whether they hold something is known at run time only.
  if (const char* never = version().data(); never == nullptr) {
    store.emplace(*cache::Store::open({}));
    lock.emplace();
    runtime.emplace(*Runtime::open({}));
    descriptor.emplace();
    static_cast<void>(LaunchPool());
  }
  move_once(store);
  move_once(lock);
  move_once(runtime);
  move_once(descriptor);

  using Record = kernels::dsv41_kv_insert::Record;
  namespace kv = kernels::dsv41_kv_insert;
  namespace v41 = kernels::deepseek_v41;
  const std::size_t of_cache = count_of(
      &cache::Digest::hex, &cache::Digest::from_hex,
      static_cast<cache::Digest (*)(std::string_view) noexcept>(&cache::digest_of),
      static_cast<cache::Digest (*)(std::span<const std::byte>) noexcept>(&cache::digest_of),
      static_cast<std::string_view (*)(LogLevel) noexcept>(&to_string),
      static_cast<std::string_view (*)(ErrorCode) noexcept>(&to_string), &Error::message,
      &cache::Entry::key_text, &cache::Entry::facts, &cache::Entry::payload,
      &cache::KeyLock::release, &cache::Store::open, &cache::Store::directory, &cache::Store::find,
      &cache::Store::read, &cache::Store::publish, &cache::Store::discard, &cache::Store::try_lock,
      &cache::Store::verify, &cache::Store::list, &cache::Store::add_record,
      &cache::Store::records);
  const std::size_t of_runtime = count_of(
      &architecture_of, &Kernel::handle, &Kernel::facts, &Kernel::device, &LaunchDescriptor::launch,
      &LaunchDescriptor::set_argument_bytes, &LaunchDescriptor::set_grid,
      static_cast<Result<LaunchDescriptor> (LaunchPool::*)(
          const Kernel&, const LaunchShape&, std::span<const Argument>)>(&LaunchPool::prepare),
      &process_environment, &options_from, &Runtime::open, &Runtime::add_source,
      &Runtime::add_sources, &Runtime::add, &Runtime::warmup,
      static_cast<Result<Kernel> (Runtime::*)(KernelId)>(&Runtime::get),
      static_cast<Result<Kernel> (Runtime::*)(KernelId, int)>(&Runtime::get), &Runtime::artifact,
      &Runtime::look_up, &Runtime::devices, &Runtime::device, &Runtime::launches,
      &Runtime::counters, &Runtime::options, &version, &find_toolchain, &driver_version,
      static_cast<std::string_view (*)(Origin) noexcept>(&to_string), &spdlog_stderr_sink);
  const std::size_t of_kernels = count_of(
      &kernels::embedded_sources, &kernels::embedded_manifests, &kernels::add_sources,
      &kernels::read_manifest, &kernels::read_manifest_file, &kernels::model_names,
      &kernels::model_manifest, static_cast<std::string_view (*)(Record) noexcept>(&kv::to_string),
      &kv::record_from, static_cast<Status (*)(const kv::Key&)>(&kv::check),
      static_cast<Status (*)(const kv::Key&, const kv::Arguments&)>(&kv::check), &kv::spec_of,
      &kv::plan_of, &kv::plan, &kv::args_of, &kv::KvInsert::create, &kv::KvInsert::prepare,
      &kv::KvInsert::update, &kv::KvInsert::launch, &kv::model_record, &kv::model,
      &kv::reference_record, static_cast<Status (*)(const v41::LayerOptions&)>(&v41::check),
      &v41::decode_key, &v41::swapab_tokens, &v41::dispatch_of, &v41::choose_kernel,
      static_cast<std::string_view (*)(v41::Refusal) noexcept>(&v41::to_string),
      static_cast<std::string (*)(const v41::Refusals&)>(&v41::to_string),
      &v41::StepLaunches::insert, &v41::StepLaunches::attend, &v41::DecodeAttention::create,
      &v41::DecodeAttention::prepare, &v41::DecodeAttention::update,
      &v41::DecodeAttention::kernels);
  return of_cache + of_runtime + of_kernels;
}
