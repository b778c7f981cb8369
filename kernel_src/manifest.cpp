#include "kernel_src/manifest.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "kernel_src/kernels.hpp"
#include "kernel_src/key_from_json.hpp"
#include "kernel_src/known_kernels.hpp"
#include "kernel_src/parse_json.hpp"

namespace kiln::kernels {
namespace {

using nlohmann::json;
using Pointer = json::json_pointer;

constexpr int kSchema = 1;

std::string text_of(const json& parameter_value) {
  return parameter_value.is_string() ? parameter_value.get<std::string>() : parameter_value.dump();
}

bool is_listed(const std::vector<std::string>& texts, std::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// Where `value` stands among a parameter's choices, or their number. 2.0 and "2" are not 2.
std::size_t place_of(const json& choices, const json& value) {
  std::size_t place = 0;
  while (place < choices.size() &&
         (choices[place].type() != value.type() || choices[place] != value))
    ++place;
  return place;
}

// What is in force for one parameter, and what else could be.
struct Parameter {
  json value;
  std::vector<std::string> allowed;
};

// The values of each parameter for which a kernel is needed, as text.
using Admitted = std::map<std::string, std::vector<std::string>, std::less<>>;

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
    KILN_TRY(read_parameters(root / "parameters"));
    KILN_TRY(read_kernels(root / "kernels"));
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
      if (!is_listed(known, name))
        return fault(where / name, "no such member; known: " + joined(known));
    for (const auto& name : required)
      if (!object.contains(name))
        return fault(where / name, "is missing; the members are " + joined(known));
    return {};
  }

  Status read_parameters(const Pointer& where) {
    const auto found = document_.find("parameters");
    if (found != document_.end()) {
      if (!found->is_object()) return wrong(where, *found, "an object");
      for (const auto& [name, description] : found->items())
        KILN_TRY(read_parameter(name, description, where / name));
    }
    for (const auto& [name, value] : given_)
      if (!parameters_.contains(name))
        return Error(ErrorCode::invalid_argument,
                     file_ + ": has no parameter " + name + " (" + value + " was given)" +
                         (parameters_.empty() ? "" : "; known: " + joined(parameter_names())));
    return {};
  }

  Status read_parameter(const std::string& name, const json& description, const Pointer& where) {
    KILN_TRY(check_members(description, where, {"values"}, {"default"}));
    Parameter parameter;
    const auto& values = description["values"];
    const auto choices = where / "values";
    if (!values.is_array() || values.empty())
      return wrong(choices, values, "an array of whole numbers or texts that is not empty");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!is_text(values[i]) && !values[i].is_number_integer())
        return wrong(choices / i, values[i], "a whole number or a text that is not empty");
      const auto text = text_of(values[i]);
      if (is_listed(parameter.allowed, text))
        return fault(choices / i, shown(values[i]) + " is listed twice");
      parameter.allowed.push_back(text);
    }

    auto chosen = description.value("default", json());
    if (description.contains("default") && place_of(values, chosen) == values.size())
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
      return Error(ErrorCode::invalid_argument, file_ + ": the parameter " + name +
                                                    " has no default and no value was given; " +
                                                    "give one of " + joined(parameter.allowed));
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
      KILN_TRY(auto spec, read_kernel(kernels[i], where / i));
      auto& specs = manifest_.kernels;
      if (spec && std::find(specs.begin(), specs.end(), *spec) == specs.end())
        specs.push_back(*std::move(spec));
    }
    return {};
  }

  // Nothing where the parameters in force do not need it.
  Result<std::optional<KernelSpec>> read_kernel(const json& entry, const Pointer& where) const {
    KILN_TRY(check_members(entry, where, {"kernel", "key"}, {"purpose", "when"}));
    if (entry.contains("purpose") && !entry["purpose"].is_string())
      return wrong(where / "purpose", entry["purpose"], "a text");

    std::vector<std::string> names;
    const KnownKernel* kernel = nullptr;
    for (const auto& known : known_kernels()) {
      names.emplace_back(known.name);
      if (entry["kernel"] == known.name) kernel = &known;
    }
    if (kernel == nullptr)
      return wrong(where / "kernel", entry["kernel"],
                   "a known kernel: " + joined(names) +
                       "; kernels of your own are prewarmed from a recording (KILN_RECORD)");

    KILN_TRY(const auto admitted, read_when(entry, where / "when"));
    KILN_TRY(check_members(entry["key"], where / "key", kernel->fields()));
    json key = json::object();
    for (const auto& [field, value] : entry["key"].items()) {
      KILN_TRY(key[field], resolve(*kernel, field, value, admitted, where / "key" / field));
    }
    for (const auto& [name, value] : manifest_.parameters)
      if (!is_listed(admitted.at(name), value)) return std::optional<KernelSpec>();
    auto spec = kernel->make(key);
    if (!spec) return fault(where / "key", spec.error().message());
    return std::optional(*std::move(spec));
  }

  Result<Admitted> read_when(const json& entry, const Pointer& where) const {
    Admitted admitted;
    for (const auto& [name, parameter] : parameters_) admitted[name] = parameter.allowed;
    const auto when = entry.find("when");
    if (when == entry.end()) return admitted;
    if (!when->is_object() || when->empty())
      return wrong(where, *when, "an object of parameters, each with an array of its values");
    for (const auto& [name, values] : when->items()) {
      const auto place = where / name;
      if (!parameters_.contains(name))
        return fault(place, "no such parameter" + (parameters_.empty()
                                                       ? ", and the manifest has none"
                                                       : "; known: " + joined(parameter_names())));
      if (!values.is_array() || values.empty())
        return wrong(place, values, "an array of values of " + name + " that is not empty");
      const auto allowed = std::exchange(admitted[name], {});
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto choice = place_of(choices_of(name), values[i]);
        if (choice == allowed.size())
          return wrong(place / i, values[i], "one of " + joined(allowed));
        if (is_listed(admitted[name], allowed[choice]))
          return fault(place / i, shown(values[i]) + " is listed twice");
        admitted[name].push_back(allowed[choice]);
      }
    }
    return admitted;
  }

  // The literal that `value` stands for under the parameters in force, if they need the kernel. All
  // that it could stand for under others that do is checked as well, so that a manifest is wrong
  // for everybody or for nobody.
  Result<json> resolve(const KnownKernel& kernel, const std::string& field, const json& value,
                       const Admitted& admitted, const Pointer& where) const {
    const auto check = [&](const json& literal, const Pointer& place) -> Status {
      const auto allowed = kernel.check(field, literal);
      return allowed.empty() ? Status{} : wrong(place, literal, allowed);
    };
    if (!value.is_object()) {
      KILN_TRY(check(value, where));
      return value;
    }
    if (value.contains("parameter")) {
      KILN_TRY(check_members(value, where, {"parameter"}));
      KILN_TRY(const auto* parameter, find_parameter(value["parameter"], where / "parameter"));
      const auto& name = value["parameter"].get_ref<const std::string&>();
      for (const auto& choice : choices_of(name))
        if (is_listed(admitted.at(name), text_of(choice))) KILN_TRY(check(choice, where));
      return parameter->value;
    }
    KILN_TRY(check_members(value, where, {"by", "values"}));
    KILN_TRY(const auto* parameter, find_parameter(value["by"], where / "by"));
    const auto& choices = admitted.at(value["by"].get_ref<const std::string&>());
    KILN_TRY(check_members(value["values"], where / "values", choices));
    for (const auto& [choice, literal] : value["values"].items())
      KILN_TRY(check(literal, where / "values" / choice));
    return value["values"].value(text_of(parameter->value), json());
  }

  const json& choices_of(const std::string& parameter) const {
    return document_["parameters"][parameter]["values"];
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
  KILN_TRY(const auto document, parse_json(text, file));
  return Reader(document, file, given).read();
}

Result<Manifest> read_manifest_file(const std::filesystem::path& file,
                                    const ManifestParameters& given) {
  const auto unreadable = [&](const std::string& why) {
    return Error(
        ErrorCode::invalid_argument,
        "the manifest " + file.string() + " cannot be read: " + why + "; name another file");
  };
  // A pipe or a device could block, and has no size.
  std::error_code failed;
  const auto status = std::filesystem::status(file, failed);
  if (!std::filesystem::exists(status)) return unreadable(failed.message());
  if (!std::filesystem::is_regular_file(status)) return unreadable("it is not a file");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return unreadable(std::generic_category().message(errno));
  // Block by block: an iterator over the stream throws where a read fails.
  std::string text;
  for (std::array<char, 65536> bytes{}; stream;) {
    stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    text.append(bytes.data(), static_cast<std::size_t>(stream.gcount()));
  }
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
