#include "runtime/artifact_facts.hpp"

#include <nlohmann/json.hpp>

namespace kiln {
namespace {

using Json = nlohmann::json;

bool read(const Json& object, const char* name, std::string& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return false;
  value = found->get<std::string>();
  return true;
}

bool read(const Json& object, const char* name, unsigned& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return false;
  value = found->get<unsigned>();
  return true;
}

bool read(const Json& object, const char* name, bool& value) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_boolean()) return false;
  value = found->get<bool>();
  return true;
}

}  // namespace

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
      {"waits_on_grid", facts.waits_on_grid},
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
      !read(json, "waits_on_grid", facts.waits_on_grid) || !read(json, "log", facts.log))
    return std::nullopt;
  return facts;
}

}  // namespace kiln
