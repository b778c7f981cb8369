#include "runtime/artifact_facts.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "runtime/grid_control.hpp"

namespace kiln {
namespace {

using SortedJson = nlohmann::json;

// Takes each fact from the text as it comes: to build the document first would be half of the time
// that a hit takes.
class FactsReader {
 public:
  ArtifactFacts facts{};

  FactsReader() = default;
  FactsReader(const FactsReader&) = delete;  // its fields are those of its own facts
  FactsReader& operator=(const FactsReader&) = delete;

  bool complete() const {
    return std::all_of(fields_.begin(), fields_.end(),
                       [](const Field& field) { return field.seen || field.newer; });
  }

  // What nlohmann::json::sax_parse() calls; false ends it.
  bool key(std::string& name) {
    if (depth_ != 1) return true;
    const auto found = std::find_if(fields_.begin(), fields_.end(),
                                    [&](const Field& field) { return field.name == name; });
    field_ = found == fields_.end() ? nullptr : &*found;
    return field_ == nullptr || !std::exchange(field_->seen, true);
  }
  bool string(std::string& value) {
    return take<std::string>([&](std::string& to) { to = std::move(value); });
  }
  bool boolean(bool value) {
    return take<bool>([&](bool& to) { to = value; });
  }
  bool number_unsigned(std::uint64_t value) {
    if (field_ != nullptr && value > UINT32_MAX) return false;
    if (depth_ > 1 && field_ != nullptr) numbers_.push_back(static_cast<unsigned>(value));
    return depth_ > 1 || take<unsigned>([&](unsigned& to) { to = static_cast<unsigned>(value); });
  }
  bool number_integer(std::int64_t) { return field_ == nullptr; }  // negative
  bool number_float(double, const std::string&) { return field_ == nullptr; }
  bool null() { return field_ == nullptr; }
  bool binary(const SortedJson::binary_t&) { return false; }
  bool start_object(std::size_t) { return ++depth_ == 1 || field_ == nullptr; }
  bool end_object() { return --depth_, true; }
  bool start_array(std::size_t) {
    return ++depth_ > 1 && (field_ == nullptr || (is<Three>() && depth_ == 2) ||
                            (is<Parameters>() && depth_ <= 3 && numbers_.empty()));
  }
  bool end_array() {
    const auto numbers = std::exchange(numbers_, {});
    --depth_;
    if (is<Three>()) {
      if (numbers.size() != 3) return false;
      std::copy(numbers.begin(), numbers.end(), std::get<Three*>(field_->to)->begin());
    } else if (is<Parameters>() && depth_ == 2) {
      if (numbers.size() != 2) return false;
      std::get<Parameters*>(field_->to)->push_back({numbers[0], numbers[1]});
    } else if (is<Parameters>()) {
      return numbers.empty();
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const SortedJson::exception&) { return false; }

 private:
  using Three = std::array<unsigned, 3>;
  using Parameters = std::vector<KernelParameter>;
  struct Field {
    std::string_view name;
    std::variant<std::string*, unsigned*, bool*, Three*, Parameters*> to;
    bool newer = false;  // than the oldest entries, which lack it
    bool seen = false;
  };

  template <class T>
  bool is() const {
    return field_ != nullptr && std::holds_alternative<T*>(field_->to);
  }
  // A fact of that kind, not within another one; what nobody knows is passed over.
  template <class T, class Put>
  bool take(const Put& put) {
    if (field_ == nullptr) return depth_ != 0;
    if (depth_ != 1 || !is<T>()) return false;
    put(*std::get<T*>(field_->to));
    return true;
  }

  std::array<Field, 18> fields_{{
      {"kernel", &facts.kernel},
      {"architecture", &facts.architecture},
      {"symbol", &facts.symbol},
      {"toolchain", &facts.toolchain},
      {"registers", &facts.usage.registers},
      {"static_shared_bytes", &facts.usage.static_shared_bytes},
      {"local_bytes", &facts.usage.local_bytes},
      {"spill_store_bytes", &facts.usage.spill_store_bytes},
      {"spill_load_bytes", &facts.usage.spill_load_bytes},
      {"parameters", &facts.parameters, true},
      {"parameter_bytes", &facts.parameter_bytes, true},
      {"max_threads", &facts.bounds.max_threads, true},
      {"block_threads", &facts.bounds.block_threads, true},
      {"cluster_blocks", &facts.bounds.cluster_blocks, true},
      {"max_cluster_blocks", &facts.bounds.max_cluster_blocks, true},
      {"waits_on_grid", &facts.waits_on_grid},
      {"triggers_dependents", &facts.triggers_dependents, true},
      {"log", &facts.log},
  }};
  Field* field_ = nullptr;  // whose value comes next, or is being read
  int depth_ = 0;           // objects and arrays that are open
  std::vector<unsigned> numbers_{};
};

SortedJson json_of(const std::vector<KernelParameter>& parameters) {
  auto json = SortedJson::array();
  for (const auto& [offset, bytes] : parameters) json.push_back({offset, bytes});
  return json;
}

}  // namespace

Status read_cubin_facts(const CubinInfo& info, ArtifactFacts& facts) {
  const auto kernel = std::find_if(info.kernels.begin(), info.kernels.end(),
                                   [&](const auto& k) { return k.symbol == facts.symbol; });
  if (kernel == info.kernels.end())
    return Error(ErrorCode::invalid_argument, "the cubin holds no kernel " + facts.symbol);
  KILN_TRY(const GridControl control,
           read_grid_control(info.sections, info.symbols, info.architecture, facts.symbol));
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
  const SortedJson json = {
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
  return json.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
}

std::optional<ArtifactFacts> facts_from_json(std::string_view text) {
  FactsReader reader;
  if (!SortedJson::sax_parse(text, &reader) || !reader.complete()) return std::nullopt;
  return std::move(reader.facts);
}

}  // namespace kiln
