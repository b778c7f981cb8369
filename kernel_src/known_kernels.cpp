#include "kernel_src/known_kernels.hpp"

#include <array>
#include <utility>

#include "kernel_src/dsv41_decode/plan.hpp"
#include "kernel_src/dsv41_kv_insert/key.hpp"
#include "kernel_src/key_from_json.hpp"
#include "kernel_src/kimi_k3_mla/key.hpp"

namespace kiln::kernels {

template <>
struct EnumNames<dsv41::Record> {
  static constexpr auto kAll = {dsv41::Record::fp8, dsv41::Record::nvfp4};
  static std::string_view name_of(dsv41::Record record) {
    return dsv41_kv_insert::to_string(record);
  }
};

namespace {

template <class Key>
std::string check_field(std::string_view field, const nlohmann::json& value) {
  Key key;
  return assign_field(key, field, value);
}

template <class Key, Status (*Check)(const Key&), KernelSpec (*SpecOf)(const Key&)>
Result<KernelSpec> make_spec(const nlohmann::json& values) {
  Key key;
  for (const auto& [field, value] : values.items())
    static_cast<void>(assign_field(key, field, value));  // check_field() has accepted it
  KILN_TRY(Check(key));
  return SpecOf(key);
}

template <class Key, Status (*Check)(const Key&), KernelSpec (*SpecOf)(const Key&)>
constexpr KnownKernel known_kernel(std::string_view name) {
  return {name, field_names<Key>, check_field<Key>, make_spec<Key, Check, SpecOf>};
}

constexpr std::array kKnown = {
    known_kernel<dsv41_kv_insert::Key, dsv41_kv_insert::check, dsv41_kv_insert::spec_of>(
        "dsv41_kv_insert"),
    known_kernel<dsv41_decode::Key, dsv41_decode::swapab::check_key, dsv41_decode::swapab::spec_of>(
        "dsv41_swapab_decode"),
    known_kernel<dsv41_decode::Key, dsv41_decode::mega::check_key, dsv41_decode::mega::spec_of>(
        "dsv41_mega_decode"),
    known_kernel<kimi_k3_mla::attend::Key, kimi_k3_mla::attend::check_key,
                 kimi_k3_mla::attend::spec_of>("kimi_k3_mla_attend"),
    known_kernel<kimi_k3_mla::reduce::Key, kimi_k3_mla::reduce::check_key,
                 kimi_k3_mla::reduce::spec_of>("kimi_k3_mla_reduce"),
};

}  // namespace

std::span<const KnownKernel> known_kernels() {
  return kKnown;
}

}  // namespace kiln::kernels
