#include "cli/source_request.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/kernel_scan.hpp"
#include "kiln/kernels/kernels.hpp"

namespace kiln::cli {
namespace {

constexpr const char* kDefaultEntry = "entry";

// "block=256", "block=256:u32", "causal=true". The runtime checks names, types and ranges.
Result<std::vector<KeyValue>> key_from(const std::vector<std::string>& fields) {
  std::vector<KeyValue> values;
  for (const auto& field : fields) {
    const auto equals = field.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == field.size())
      return Error(ErrorCode::invalid_argument,
                   "--key \"" + field +
                       "\" is no key field; write NAME=VALUE or NAME=VALUE:TYPE, such as "
                       "block=256, rows=7:u64 or causal=true");
    const auto value = field.substr(equals + 1);
    const auto colon = value.find(':');
    const auto number = value.substr(0, colon);
    const bool truth = number == "true" || number == "false";
    values.push_back({field.substr(0, equals),
                      colon != std::string::npos ? value.substr(colon + 1)
                      : truth                    ? "bool"
                                                 : "i32",
                      number});
  }
  return values;
}

Result<std::vector<std::string>> options_from(const SourceArguments& arguments) {
  // Those that this command has by another name.
  constexpr struct {
    std::string_view start;
    std::string_view instead;
  } kOwn[] = {{"-I", "-I DIR"},
              {"--include-path", "-I DIR"},
              {"-arch", "--arch ARCH"},
              {"--gpu-architecture", "--arch ARCH"}};
  auto options = arguments.options;
  for (const auto& option : options)
    for (const auto& own : kOwn)
      if (option.starts_with(own.start))
        return Error(ErrorCode::invalid_argument, "--option " + option +
                                                      " goes past the key; use " +
                                                      std::string(own.instead) + " of kiln itself");
  for (const auto& macro : arguments.macros) options.push_back("--define-macro=" + macro);
  if (!arguments.standard.empty()) options.push_back("--std=" + arguments.standard);
  if (arguments.line_info) options.emplace_back("--generate-line-info");
  if (arguments.debug) options.emplace_back("--device-debug");
  return options;
}

// Which kernel is meant when none is named: `entry`, or else the only one in the file.
std::optional<Failure> choose_kernel(const SourceFile& file, KernelSpec& spec) {
  const auto kernels = declared_kernels(file.text);
  const auto is_entry = [](const auto& kernel) {
    return kernel.is_c && kernel.name == kDefaultEntry;
  };
  if (std::any_of(kernels.begin(), kernels.end(), is_entry)) return std::nullopt;
  if (kernels.empty()) {
    // Included files may hold it.
    if (file.text.find("#include") != std::string::npos) return std::nullopt;
    return Failure{.exit = ExitCode::failed,
                   .code = "no_kernel",
                   .message = file.typed + (file.text.empty() ? " is empty" : " holds no kernel") +
                              "; declare one, such as extern \"C\" __global__ void entry(...)"};
  }
  if (kernels.size() > 1) {
    std::string names;
    for (const auto& kernel : kernels) names += (names.empty() ? "" : ", ") + kernel.name;
    return usage_failure(file.typed + " holds several kernels, " + names +
                         ", and none is extern \"C\" and called entry; name one with --entry NAME "
                         "or, where it is not extern \"C\", --name-expression NAME");
  }
  const auto& only = kernels.front();
  if (only.is_template)
    return usage_failure(file.typed + " holds the kernel " + only.name +
                         ", which is a template; name an instance of it, such as "
                         "--name-expression '" +
                         only.name + "<float>'");
  (only.is_c ? spec.entry : spec.name_expression) = only.name;
  return std::nullopt;
}

std::variant<KernelSpec, Failure> spec_from(const SourceArguments& arguments,
                                            const SourceFile& file) {
  KernelSpec spec{.name = std::filesystem::path(file.name).stem().string(), .source = file.name};
  // What has no key is compiled all the same, and the report says why it is not stored.
  spec.unknown_inputs = UnknownInputs::compile_without_storing;
  auto key = key_from(arguments.key);
  if (!key) return failure_of(key.error());
  spec.key = *std::move(key);
  auto options = options_from(arguments);
  if (!options) return failure_of(options.error());
  spec.options = *std::move(options);
  if (!arguments.entry.empty())
    spec.entry = arguments.entry;
  else if (!arguments.name_expression.empty())
    spec.name_expression = arguments.name_expression;
  else if (auto failure = choose_kernel(file, spec))
    return *std::move(failure);
  return spec;
}

// Why the kernel cannot be registered: the source's fault, or that of the command line, which would
// stand in the way of any source.
Failure refused(Runtime& runtime, KernelSpec spec, const SourceFile& file, const Error& error) {
  auto failure = failure_of(error);
  failure.message = as_typed(file, failure.message);
  constexpr std::string_view kCure = ". Add the file with Runtime::add_source";
  if (const auto at = failure.message.find(kCure); at != std::string::npos)
    failure.message.erase(at).append("; name the directory that it lies in with -I DIR");
  constexpr const char* kNoFault = "kiln_no_fault.cu";
  spec.source = kNoFault;
  if (error.code() == ErrorCode::invalid_argument && runtime.add_source(kNoFault, "") &&
      runtime.add(spec))
    failure.exit = ExitCode::failed;
  return failure;
}

std::optional<Failure> check_directories(const std::vector<std::string>& directories) {
  for (const auto& directory : directories) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(directory, ignored))
      return usage_failure("-I " + directory + " is no directory; name one that holds headers");
  }
  return std::nullopt;
}

}  // namespace

Choices add_source_options(CLI::App& verb, SourceArguments& arguments) {
  auto& entry = add_option(verb, "--entry", arguments.entry, "NAME",
                           "Symbol of the kernel [default entry, or the only kernel in FILE]");
  exclude(add_option(verb, "--name-expression", arguments.name_expression, "EXPR",
                     "The kernel as C++ names it, for one that is not extern \"C\""),
          entry);
  add_list(verb, "--key", arguments.key, "NAME=VALUE[:TYPE]",
           "A constant of \"jit/key.cuh\", repeated; TYPE is bool, i8 to i64, u8 to u64\n"
           "[default i32, or bool for true and false]");
  add_list(verb, "-D,--define", arguments.macros, "NAME[=VALUE]", "A macro, repeated");
  add_list(verb, "-I,--include", arguments.include_roots, "DIR",
           "A directory of headers, repeated");
  auto& standard =
      add_option(verb, "--std", arguments.standard, "NAME", "C++ standard: c++17, c++20 or c++23");
  add_flag(verb, "--lineinfo", arguments.line_info, "With line numbers, for profilers");
  add_flag(verb, "--debug", arguments.debug, "With debug information, without optimisation");
  add_list(verb, "--option", arguments.options, "OPTION",
           "Any other option of NVRTC, repeated: --option=-use_fast_math");
  return {&standard, {"c++17", "c++20", "c++23"}};
}

std::variant<SourceRequest, Failure> open_source(const SourceArguments& arguments,
                                                 const Settings& settings, LogSink log) {
  auto options = settings.runtime;
  auto read = read_source_file(arguments.file, options.source_directory);
  if (auto* failure = std::get_if<Failure>(&read)) return std::move(*failure);
  auto& file = std::get<SourceFile>(read);
  auto described = spec_from(arguments, file);
  if (auto* failure = std::get_if<Failure>(&described)) return std::move(*failure);
  auto& spec = std::get<KernelSpec>(described);
  if (auto failure = check_directories(arguments.include_roots)) return *std::move(failure);
  if (auto failure = bad_cache_directory(settings)) return *std::move(failure);

  options.source_directory = file.source_directory;
  if (!file.own_directory.empty()) options.include_roots.push_back(file.own_directory);
  options.include_roots.insert(options.include_roots.end(), arguments.include_roots.begin(),
                               arguments.include_roots.end());
  options.log = std::move(log);
  auto runtime = Runtime::open(options);
  if (!runtime) return failure_of(runtime.error());
  if (auto status = kernels::add_sources(*runtime); !status) return failure_of(status.error());
  if (!file.own_directory.empty())
    if (auto status = runtime->add_source(file.name, file.text); !status)
      return failure_of(status.error());
  const auto id = runtime->add(spec);
  if (!id) return refused(*runtime, spec, file, id.error());
  return SourceRequest{std::move(file), std::move(spec), *std::move(runtime), *id};
}

}  // namespace kiln::cli
