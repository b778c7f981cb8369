#include "runtime/artifact_facts.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "runtime/grid_control.hpp"

namespace kiln {
namespace {

using Json = nlohmann::json;

bool read(const Json& object, const char* name, std::string& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return false;
  value = found->get<std::string>();
  return true;
}

bool read(const Json& number, unsigned& value) {
  if (!number.is_number_unsigned() || number.get<std::uint64_t>() > UINT32_MAX) return false;
  value = number.get<unsigned>();
  return true;
}

bool read(const Json& object, const char* name, unsigned& value) {
  const auto found = object.find(name);
  return found != object.end() && read(*found, value);
}

bool read(const Json& object, const char* name, bool& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_boolean()) return false;
  value = found->get<bool>();
  return true;
}

bool read(const Json& object, const char* name, std::array<unsigned, 3>& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array() || found->size() != value.size()) return false;
  return read((*found)[0], value[0]) && read((*found)[1], value[1]) && read((*found)[2], value[2]);
}

bool read(const Json& object, const char* name, std::vector<KernelParameter>& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return false;
  for (const Json& pair : *found) {
    KernelParameter parameter;
    if (!pair.is_array() || pair.size() != 2 || !read(pair[0], parameter.offset) ||
        !read(pair[1], parameter.bytes))
      return false;
    value.push_back(parameter);
  }
  return true;
}

// A fact that older entries lack.
template <class T>
bool read_if_there(const Json& object, const char* name, T& value) {
  return !object.contains(name) || read(object, name, value);
}

Json json_of(const std::vector<KernelParameter>& parameters) {
  auto json = Json::array();
  for (const auto& [offset, bytes] : parameters) json.push_back({offset, bytes});
  return json;
}

}  // namespace

Status read_cubin_facts(std::span<const std::byte> cubin, const CubinInfo& info,
                        ArtifactFacts& facts) {
  const auto kernel = std::find_if(info.kernels.begin(), info.kernels.end(),
                                   [&](const auto& k) { return k.symbol == facts.symbol; });
  if (kernel == info.kernels.end())
    return Error(ErrorCode::invalid_argument, "the cubin holds no kernel " + facts.symbol);
  KILN_TRY(const GridControl control, read_grid_control(cubin, info.architecture, facts.symbol));
  facts.usage.registers = kernel->registers;
  facts.usage.static_shared_bytes = kernel->static_shared_bytes;
  facts.parameters = kernel->parameters;
  facts.parameter_bytes = kernel->parameter_bytes;
  facts.bounds = kernel->bounds;
  facts.waits_on_grid = control.waits;
  facts.triggers_dependents = control.triggers;
  return {};
}

std::string to_json(const ArtifactFacts& facts) {
  const Json json = {
      {"kernel", facts.kernel},
      {"architecture", facts.architecture},
      {"symbol", facts.symbol},
      {"toolchain", facts.toolchain},
      {"registers", facts.usage.registers},
      {"static_shared_bytes", facts.usage.static_shared_bytes},
      {"local_bytes", facts.usage.local_bytes},
      {"spill_store_bytes", facts.usage.spill_store_bytes},
      {"spill_load_bytes", facts.usage.spill_load_bytes},
      {"parameters", json_of(facts.parameters)},
      {"parameter_bytes", facts.parameter_bytes},
      {"max_threads", facts.bounds.max_threads},
      {"block_threads", facts.bounds.block_threads},
      {"cluster_blocks", facts.bounds.cluster_blocks},
      {"max_cluster_blocks", facts.bounds.max_cluster_blocks},
      {"waits_on_grid", facts.waits_on_grid},
      {"triggers_dependents", facts.triggers_dependents},
      {"log", facts.log},
  };
  // A compiler log quotes source text, which need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<ArtifactFacts> facts_from_json(std::string_view text) {
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ArtifactFacts facts;
  if (!json.is_object() || !read(json, "kernel", facts.kernel) ||
      !read(json, "architecture", facts.architecture) || !read(json, "symbol", facts.symbol) ||
      !read(json, "toolchain", facts.toolchain) ||
      !read(json, "registers", facts.usage.registers) ||
      !read(json, "static_shared_bytes", facts.usage.static_shared_bytes) ||
      !read(json, "local_bytes", facts.usage.local_bytes) ||
      !read(json, "spill_store_bytes", facts.usage.spill_store_bytes) ||
      !read(json, "spill_load_bytes", facts.usage.spill_load_bytes) ||
      !read_if_there(json, "parameters", facts.parameters) ||
      !read_if_there(json, "parameter_bytes", facts.parameter_bytes) ||
      !read_if_there(json, "max_threads", facts.bounds.max_threads) ||
      !read_if_there(json, "block_threads", facts.bounds.block_threads) ||
      !read_if_there(json, "cluster_blocks", facts.bounds.cluster_blocks) ||
      !read_if_there(json, "max_cluster_blocks", facts.bounds.max_cluster_blocks) ||
      !read(json, "waits_on_grid", facts.waits_on_grid) ||
      !read_if_there(json, "triggers_dependents", facts.triggers_dependents) ||
      !read(json, "log", facts.log))
    return std::nullopt;
  return facts;
}

}  // namespace kiln
