// Compiles with exceptions: nlohmann-json reports faults of the text by them, caught in parse().
#include "kernel_src/manifest.hpp"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "kernel_src/kernels.hpp"
#include "kernel_src/key_from_json.hpp"
#include "kernel_src/known_kernels.hpp"

namespace kiln::kernels {
namespace {

using nlohmann::json;
using Pointer = json::json_pointer;

constexpr int kSchema = 1;
// Far beyond what a manifest needs. Messages show values by recursion, which a deep one would
// crash.
constexpr int kMostNested = 64;

// "line 3, column 7" of the byte at `offset`, both counted from 1.
std::string position_of(std::string_view text, std::size_t offset) {
  const auto before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto line_start = before.rfind('\n');
  const auto column =
      line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// The reason in nlohmann's text, which leads with its own error number and, for syntax, position.
std::string reason_of(std::string_view what) {
  for (const std::string_view lead : {"] ", "column "})
    if (const auto at = what.find(lead); at != std::string_view::npos) what.remove_prefix(at);
  const auto start = what.find(what.starts_with("] ") ? "] " : ": ");
  return std::string(start == std::string_view::npos ? what : what.substr(start + 2));
}

// Reads text and tells how far: the parser's callback is given no position.
class TracedByte {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TracedByte(const char* at, const char*& reached) : at_(at), reached_(&reached) {}
  reference operator*() const { return *at_; }
  TracedByte& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const TracedByte& other) const { return at_ == other.at_; }
  bool operator!=(const TracedByte& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

Result<json> parse(std::string_view text, std::string_view file) {
  const auto fault = [&](std::size_t offset, const std::string& what) {
    return Error(ErrorCode::invalid_argument,
                 std::string(file) + ": " + position_of(text, offset) + ": " + what);
  };
  const char* reached = text.data();
  // The last byte that was read.
  const auto offset = [&] {
    return reached == text.data() ? 0 : static_cast<std::size_t>(reached - text.data()) - 1;
  };

  // The first fault that the parser itself does not mind: too many brackets, and members with the
  // same name, of which it keeps the last.
  std::optional<Error> first;
  std::vector<std::set<std::string>> open;
  const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (first) return true;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMostNested)
      first = fault(offset(), "is nested deeper than " + std::to_string(kMostNested) + " levels");
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
      first = fault(offset(),
                    "the member \"" + parsed.get<std::string>() + "\" appears twice in one object");
    return true;
  };
  try {
    auto document = json::parse(TracedByte(text.data(), reached),
                                TracedByte(text.data() + text.size(), reached), look);
    if (first) return *first;
    return document;
  } catch (const json::parse_error& error) {
    if (first) return *first;
    // `byte` counts from 1 and is the last byte that was read.
    return fault(error.byte == 0 ? 0 : error.byte - 1, reason_of(error.what()));
  } catch (const json::exception& error) {
    // Such as a number that no double holds.
    if (first) return *first;
    return fault(offset(), reason_of(error.what()));
  }
}

std::string text_of(const json& parameter_value) {
  return parameter_value.is_string() ? parameter_value.get<std::string>() : parameter_value.dump();
}

// What is in force for one parameter, and what else could be.
struct Parameter {
  json value;
  std::vector<std::string> allowed;
};

class Reader {
 public:
  Reader(const json& document, std::string_view file, const ManifestParameters& given)
      : document_(document), file_(file), given_(given) {}

  Result<Manifest> read() {
    const Pointer root;
    // First, because another schema may have other members.
    if (document_.is_object() && document_.contains("schema") && document_["schema"] != kSchema)
      return wrong(root / "schema", document_["schema"], std::to_string(kSchema));
    if (auto status =
            check_members(document_, root, {"schema", "model", "kernels"}, {"parameters"});
        !status)
      return status.error();
    if (!is_text(document_["model"]))
      return wrong(root / "model", document_["model"], "a text that is not empty");
    manifest_.model = document_["model"].get<std::string>();
    if (auto status = read_parameters(root / "parameters"); !status) return status.error();
    if (auto status = read_kernels(root / "kernels"); !status) return status.error();
    return std::move(manifest_);
  }

 private:
  static bool is_text(const json& value) {
    return value.is_string() && !value.get_ref<const std::string&>().empty();
  }

  Error fault(const Pointer& where, const std::string& what) const {
    const auto pointer = where.to_string();
    return Error(ErrorCode::invalid_argument,
                 file_ + ": at " + (pointer.empty() ? "the top" : pointer) + ": " + what);
  }
  Error wrong(const Pointer& where, const json& value, const std::string& allowed) const {
    return fault(where, "is " + shown(value) + ", must be " + allowed);
  }

  // An object with all of the `required` members and none but these and the `optional` ones.
  Status check_members(const json& object, const Pointer& where,
                       const std::vector<std::string>& required,
                       const std::vector<std::string>& optional = {}) const {
    auto known = required;
    known.insert(known.end(), optional.begin(), optional.end());
    if (!object.is_object())
      return wrong(where, object, "an object with the members " + joined(known));
    for (const auto& [name, value] : object.items())
      if (std::find(known.begin(), known.end(), name) == known.end())
        return fault(where / name, "no such member; known: " + joined(known));
    for (const auto& name : required)
      if (!object.contains(name)) return fault(where / name, "is missing");
    return {};
  }

  Status read_parameters(const Pointer& where) {
    const auto found = document_.find("parameters");
    if (found != document_.end()) {
      if (!found->is_object()) return wrong(where, *found, "an object");
      for (const auto& [name, description] : found->items())
        if (auto status = read_parameter(name, description, where / name); !status) return status;
    }
    for (const auto& [name, value] : given_)
      if (!parameters_.contains(name))
        return Error(ErrorCode::invalid_argument,
                     file_ + ": has no parameter " + name + " (" + value + " was given)" +
                         (parameters_.empty() ? "" : "; known: " + joined(parameter_names())));
    return {};
  }

  Status read_parameter(const std::string& name, const json& description, const Pointer& where) {
    if (auto status = check_members(description, where, {"values"}, {"default"}); !status)
      return status;
    Parameter parameter;
    const auto& values = description["values"];
    const auto choices = where / "values";
    if (!values.is_array() || values.empty())
      return wrong(choices, values, "an array of whole numbers or texts that is not empty");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!is_text(values[i]) && !values[i].is_number_integer())
        return wrong(choices / i, values[i], "a whole number or a text that is not empty");
      const auto text = text_of(values[i]);
      if (std::find(parameter.allowed.begin(), parameter.allowed.end(), text) !=
          parameter.allowed.end())
        return fault(choices / i, shown(values[i]) + " is listed twice");
      parameter.allowed.push_back(text);
    }

    auto chosen = description.value("default", json());
    if (description.contains("default") &&
        std::find(values.begin(), values.end(), chosen) == values.end())
      return wrong(where / "default", chosen, "one of " + joined(parameter.allowed));
    if (const auto given = given_.find(name); given != given_.end()) {
      const auto choice =
          std::find(parameter.allowed.begin(), parameter.allowed.end(), given->second);
      if (choice == parameter.allowed.end())
        return Error(ErrorCode::invalid_argument, file_ + ": the parameter " + name + " is \"" +
                                                      given->second + "\", must be one of " +
                                                      joined(parameter.allowed));
      chosen = values[static_cast<std::size_t>(choice - parameter.allowed.begin())];
    } else if (!description.contains("default")) {
      return Error(ErrorCode::invalid_argument,
                   file_ + ": the parameter " + name + " has no default and no value was given; " +
                       "it must be one of " + joined(parameter.allowed));
    }
    manifest_.parameters.emplace(name, text_of(chosen));
    parameter.value = std::move(chosen);
    parameters_.emplace(name, std::move(parameter));
    return {};
  }

  std::vector<std::string> parameter_names() const {
    std::vector<std::string> names;
    for (const auto& [name, parameter] : parameters_) names.push_back(name);
    return names;
  }

  Status read_kernels(const Pointer& where) {
    const auto& kernels = document_["kernels"];
    if (!kernels.is_array() || kernels.empty())
      return wrong(where, kernels, "an array of kernels that is not empty");
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      auto spec = read_kernel(kernels[i], where / i);
      if (!spec) return spec.error();
      auto& specs = manifest_.kernels;
      if (std::find(specs.begin(), specs.end(), *spec) == specs.end())
        specs.push_back(*std::move(spec));
    }
    return {};
  }

  Result<KernelSpec> read_kernel(const json& entry, const Pointer& where) const {
    if (auto status = check_members(entry, where, {"kernel", "key"}, {"purpose"}); !status)
      return status.error();
    if (entry.contains("purpose") && !entry["purpose"].is_string())
      return wrong(where / "purpose", entry["purpose"], "a text");

    std::vector<std::string> names;
    const KnownKernel* kernel = nullptr;
    for (const auto& known : known_kernels()) {
      names.emplace_back(known.name);
      if (entry["kernel"] == known.name) kernel = &known;
    }
    if (kernel == nullptr)
      return wrong(where / "kernel", entry["kernel"], "a known kernel: " + joined(names));

    if (auto status = check_members(entry["key"], where / "key", kernel->fields()); !status)
      return status.error();
    json key = json::object();
    for (const auto& [field, value] : entry["key"].items()) {
      KILN_TRY(key[field], resolve(*kernel, field, value, where / "key" / field));
    }
    auto spec = kernel->make(key);
    if (!spec) return fault(where / "key", spec.error().message());
    return spec;
  }

  // The literal that `value` stands for under the parameters in force. All that it could stand for
  // under others is checked as well, so that a manifest is wrong for everybody or for nobody.
  Result<json> resolve(const KnownKernel& kernel, const std::string& field, const json& value,
                       const Pointer& where) const {
    const auto check = [&](const json& literal, const Pointer& place) -> Status {
      const auto allowed = kernel.check(field, literal);
      return allowed.empty() ? Status{} : wrong(place, literal, allowed);
    };
    if (!value.is_object()) {
      if (auto status = check(value, where); !status) return status.error();
      return value;
    }
    if (value.contains("parameter")) {
      if (auto status = check_members(value, where, {"parameter"}); !status) return status.error();
      KILN_TRY(const auto* parameter, find_parameter(value["parameter"], where / "parameter"));
      const auto& choices =
          document_["parameters"][value["parameter"].get<std::string>()]["values"];
      for (const auto& choice : choices)
        if (auto status = check(choice, where); !status) return status.error();
      return parameter->value;
    }
    if (auto status = check_members(value, where, {"by", "values"}); !status) return status.error();
    KILN_TRY(const auto* parameter, find_parameter(value["by"], where / "by"));
    if (auto status = check_members(value["values"], where / "values", parameter->allowed); !status)
      return status.error();
    for (const auto& [choice, literal] : value["values"].items())
      if (auto status = check(literal, where / "values" / choice); !status) return status.error();
    return value["values"][text_of(parameter->value)];
  }

  Result<const Parameter*> find_parameter(const json& name, const Pointer& where) const {
    if (name.is_string())
      if (const auto found = parameters_.find(name.get_ref<const std::string&>());
          found != parameters_.end())
        return &found->second;
    return wrong(where, name,
                 parameters_.empty() ? "a parameter, and the manifest has none"
                                     : "one of the parameters " + joined(parameter_names()));
  }

  const json& document_;
  const std::string file_;
  const ManifestParameters& given_;
  std::map<std::string, Parameter, std::less<>> parameters_;
  Manifest manifest_;
};

}  // namespace

Result<Manifest> read_manifest(std::string_view text, std::string_view file,
                               const ManifestParameters& given) {
  KILN_TRY(const auto document, parse(text, file));
  return Reader(document, file, given).read();
}

Result<Manifest> read_manifest_file(const std::filesystem::path& file,
                                    const ManifestParameters& given) {
  const auto unreadable = [&](const std::string& why) {
    return Error(ErrorCode::invalid_argument,
                 "the manifest " + file.string() + " cannot be read: " + why);
  };
  // A pipe or a device could block, and has no size.
  std::error_code failed;
  const auto status = std::filesystem::status(file, failed);
  if (!std::filesystem::exists(status)) return unreadable(failed.message());
  if (!std::filesystem::is_regular_file(status)) return unreadable("it is not a file");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return unreadable("it cannot be opened");
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) return unreadable("an error while reading");
  return read_manifest(text, file.string(), given);
}

std::vector<std::string> model_names() {
  // The files are named for the models: a test holds them to it.
  std::vector<std::string> names;
  for (const auto& manifest : embedded_manifests())
    names.push_back(std::filesystem::path(manifest.name).stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Result<Manifest> model_manifest(std::string_view model, const ManifestParameters& given) {
  for (const auto& manifest : embedded_manifests())
    if (std::filesystem::path(manifest.name).stem() == model)
      return read_manifest(manifest.text, model, given);
  return Error(ErrorCode::invalid_argument,
               "there is no model \"" + std::string(model) + "\"; known: " + joined(model_names()));
}

}  // namespace kiln::kernels
