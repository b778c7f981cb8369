#include "kiln/record.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "kiln/cache/digest.hpp"

namespace kiln {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kKind = "kiln recording";
constexpr int kSchema = 1;
// Far beyond what a recording needs. Messages show values by recursion, which a deep one would
// crash.
constexpr int kMostNested = 16;
constexpr std::string_view kMarkOfEditors = "\xef\xbb\xbf";  // UTF-8's byte-order mark

std::string text_of(const Json& json, int indent = -1) {
  // A source need not be UTF-8; one that is not has no recording that compiles to the same key.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const KernelSpec& spec) {
  Json json = {{"name", spec.name}, {"source", spec.source}};
  for (const auto& variant : spec.variants)
    json["variants"].push_back({{"arch", variant.architecture}, {"source", variant.source}});
  if (spec.name_expression.empty())
    json["entry"] = spec.entry;
  else
    json["name_expression"] = spec.name_expression;
  for (const auto& field : spec.key)
    json["key"].push_back({{"name", field.name}, {"type", field.type}, {"value", field.value}});
  if (!spec.options.empty()) json["options"] = spec.options;
  if (spec.builtins == Builtins::minimal) json["minimal"] = true;
  if (spec.oldest_sm != 0) json["oldest_sm"] = spec.oldest_sm;
  if (spec.unknown_inputs == UnknownInputs::compile_without_storing) json["unstored"] = true;
  return json;
}

// Reads members, and remembers the first that is not what it must be.
class Reader {
 public:
  template <class T>
  void take(const Json& object, const char* name, T& value, bool required = false) {
    const auto found = object.find(name);
    if (found == object.end()) {
      if (required) fault(name, "is missing");
      return;
    }
    if (!assign(*found, value)) fault(name, "is " + text_of(*found).substr(0, 60));
  }
  const Json* list(const Json& object, const char* name, bool required = false) {
    const auto found = object.find(name);
    if (found == object.end()) {
      if (required) fault(name, "is missing");
      return nullptr;
    }
    if (!found->is_array()) fault(name, "is no list");
    return found->is_array() ? &*found : nullptr;
  }
  /// An object with none but the `known` members: one that is not read could change the code.
  bool is_object(const Json& value, const char* name, std::initializer_list<const char*> known) {
    if (!value.is_object()) fault(name, "holds what is no object");
    if (!value.is_object()) return false;
    for (const auto& [member, ignored] : value.items())
      if (std::find(known.begin(), known.end(), member) == known.end())
        fault(member.c_str(), "is no member of " + std::string(name));
    return true;
  }
  void fault(const char* name, const std::string& what) {
    if (fault_.empty()) fault_ = std::string("\"") + name + "\" " + what;
  }
  const std::string& first_fault() const { return fault_; }

 private:
  static bool assign(const Json& json, std::string& value) {
    if (json.is_string()) value = json.get<std::string>();
    return json.is_string();
  }
  static bool assign(const Json& json, bool& value) {
    if (json.is_boolean()) value = json.get<bool>();
    return json.is_boolean();
  }
  static bool assign(const Json& json, int& value) {
    const auto wide = json.is_number_integer() ? json.get<std::int64_t>() : -1;
    const bool fits = wide >= 0 && wide <= std::numeric_limits<int>::max();
    if (fits) value = static_cast<int>(wide);
    return fits;
  }
  static bool assign(const Json& json, std::vector<std::string>& value) {
    if (!json.is_array()) return false;
    for (const auto& element : json) {
      if (!element.is_string()) return false;
      value.push_back(element.get<std::string>());
    }
    return true;
  }
  std::string fault_;
};

RecordedKernel kernel_of(const Json& json, Reader& reader) {
  RecordedKernel kernel;
  auto& spec = kernel.spec;
  if (!reader.is_object(json, "kernels",
                        {"name", "source", "variants", "entry", "name_expression", "key", "options",
                         "minimal", "oldest_sm", "unstored", "architectures"}))
    return kernel;
  reader.take(json, "name", spec.name, true);
  reader.take(json, "source", spec.source, true);
  reader.take(json, "entry", spec.entry);
  reader.take(json, "name_expression", spec.name_expression);
  reader.take(json, "options", spec.options);
  reader.take(json, "oldest_sm", spec.oldest_sm);
  reader.take(json, "architectures", kernel.architectures, true);
  bool minimal = false, unstored = false;
  reader.take(json, "minimal", minimal);
  reader.take(json, "unstored", unstored);
  if (minimal) spec.builtins = Builtins::minimal;
  if (unstored) spec.unknown_inputs = UnknownInputs::compile_without_storing;
  if (const auto* const variants = reader.list(json, "variants"))
    for (const auto& variant : *variants) {
      if (!reader.is_object(variant, "variants", {"arch", "source"})) continue;
      auto& added = spec.variants.emplace_back();
      reader.take(variant, "arch", added.architecture, true);
      reader.take(variant, "source", added.source, true);
    }
  if (const auto* const fields = reader.list(json, "key"))
    for (const auto& field : *fields) {
      if (!reader.is_object(field, "key", {"name", "type", "value"})) continue;
      auto& added = spec.key.emplace_back();
      reader.take(field, "name", added.name, true);
      reader.take(field, "type", added.type, true);
      reader.take(field, "value", added.value, true);
    }
  return kernel;
}

void add_architectures(RecordedKernel& kernel, const std::vector<std::string>& architectures) {
  auto& known = kernel.architectures;
  known.insert(known.end(), architectures.begin(), architectures.end());
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
}

// One of each kernel, in an order that is the same whatever they were put together from.
void put_in_order(Recording& recording) {
  std::map<std::string, RecordedKernel> by_text;
  for (auto& kernel : recording.kernels) {
    const auto [known, is_new] = by_text.try_emplace(text_of(json_of(kernel.spec)));
    if (is_new) known->second.spec = std::move(kernel.spec);
    add_architectures(known->second, kernel.architectures);
  }
  recording.kernels.clear();
  for (auto& [text, kernel] : by_text) recording.kernels.push_back(std::move(kernel));
}

// One line for a kernel on one architecture, the same for equal ones.
std::vector<std::string> lines_of(const Recording& recording) {
  std::vector<std::string> lines;
  for (const auto& [name, text] : recording.sources)
    lines.push_back("source " + name + ", text " + cache::digest_of(text).hex());
  for (const auto& kernel : recording.kernels) {
    std::string line = kernel.spec.name;
    for (const auto& field : kernel.spec.key) line += " " + field.name + "=" + field.value;
    auto rest = json_of(kernel.spec);
    for (const char* shown : {"name", "key"}) rest.erase(shown);
    for (const auto& architecture : kernel.architectures)
      lines.push_back("kernel " + line + " " + architecture + " " + text_of(rest));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

std::string to_json(const Recording& recording) {
  Json json = {{"kind", kKind}, {"schema", kSchema}, {"sources", Json::object()}};
  for (const auto& [name, text] : recording.sources) json["sources"][name] = text;
  json["kernels"] = Json::array();
  for (const auto& kernel : recording.kernels) {
    auto entry = json_of(kernel.spec);
    entry["architectures"] = kernel.architectures;
    json["kernels"].push_back(std::move(entry));
  }
  return text_of(json, 1) + "\n";
}

bool is_recording(std::string_view text) noexcept {
  if (text.starts_with(kMarkOfEditors)) text.remove_prefix(kMarkOfEditors.size());
  // The member stands first, as to_json() writes it.
  const auto at = text.find("\"kind\"");
  return at != std::string_view::npos && text.find(kKind, at) != std::string_view::npos &&
         text.find_first_not_of("{ \t\r\n") == at;
}

Result<Recording> read_recording(std::string_view text, const std::string& file) {
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorCode::invalid_argument,
                 file + " is no recording that can be read: " + what + "; record it anew");
  };
  bool too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMostNested;
    return !too_deep;
  };
  const auto json = Json::parse(text, look, /*allow_exceptions=*/false);
  if (too_deep) return wrong("it is nested too deep");
  if (!json.is_object()) return wrong("it is no JSON object");
  Reader reader;
  std::string kind;
  int schema = 0;
  reader.take(json, "kind", kind, true);
  reader.take(json, "schema", schema, true);
  if (kind != kKind) reader.fault("kind", "is not \"" + std::string(kKind) + '"');
  if (schema != kSchema)
    reader.fault("schema", "is " + std::to_string(schema) + ", not " + std::to_string(kSchema));
  // After these two, because another schema may have other members.
  reader.is_object(json, "a recording", {"kind", "schema", "sources", "kernels"});
  Recording recording;
  if (const auto sources = json.find("sources"); sources == json.end() || !sources->is_object())
    reader.fault("sources", "is no object");
  else
    for (const auto& [name, source] : sources->items()) {
      if (!source.is_string())
        reader.fault("sources", "holds what is no text");
      else
        recording.sources[name] = source.get<std::string>();
    }
  if (const auto* const kernels = reader.list(json, "kernels", true))
    for (const auto& kernel : *kernels) recording.kernels.push_back(kernel_of(kernel, reader));
  if (!reader.first_fault().empty()) return wrong(reader.first_fault());
  put_in_order(recording);
  return recording;
}

Status merge(Recording& into, const Recording& from) {
  for (const auto& [name, text] : from.sources)
    if (const auto known = into.sources.find(name);
        known != into.sources.end() && known->second != text)
      return Error(ErrorCode::invalid_argument,
                   "the source " + name +
                       " has another text in each recording: they are of two builds; keep them "
                       "apart and replay each");
  into.sources.insert(from.sources.begin(), from.sources.end());
  into.kernels.insert(into.kernels.end(), from.kernels.begin(), from.kernels.end());
  put_in_order(into);
  return {};
}

std::vector<std::string> difference(const Recording& before, const Recording& after) {
  const auto old_lines = lines_of(before), new_lines = lines_of(after);
  std::vector<std::string> gone, added, lines;
  std::set_difference(old_lines.begin(), old_lines.end(), new_lines.begin(), new_lines.end(),
                      std::back_inserter(gone));
  std::set_difference(new_lines.begin(), new_lines.end(), old_lines.begin(), old_lines.end(),
                      std::back_inserter(added));
  for (const auto& line : gone) lines.push_back("- " + line);
  for (const auto& line : added) lines.push_back("+ " + line);
  return lines;
}

}  // namespace kiln
