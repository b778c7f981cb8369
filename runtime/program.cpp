#include "runtime/program.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <utility>

#include "runtime/key_header.hpp"
#include "runtime/source_scan.hpp"
#include "runtime/tensor_map_header.hpp"

namespace kiln {
namespace {

constexpr std::string_view kToolchain = "toolchain";
constexpr std::size_t kUsualKeyBytes = 512;

// One field a line: label, length of the value in bytes, value. The length makes any value safe,
// line ends included, and two different lists of fields never give one text.
void add(std::string& text, std::string_view label, std::initializer_list<std::string_view> value) {
  std::size_t size = 0;
  for (const auto part : value) size += part.size();
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.begin(), digits.end(), size).ptr;
  text.append(label) += ' ';
  text.append(digits.begin(), end) += ' ';
  for (const auto part : value) text.append(part);
  text += '\n';
}

void add(std::string& text, std::string_view label, std::string_view value) {
  add(text, label, {value});
}

// Labels hold no "//", so that two lists never give one text.
std::vector<std::string> same_files(const std::vector<DiskFile>& disk) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, const std::string*> first;
  std::vector<std::string> same;
  for (const auto& file : disk) {
    const auto [at, is_new] = first.try_emplace({file.stamp.device, file.stamp.inode}, &file.label);
    if (!is_new) same.push_back(file.label + " // " + *at->second);
  }
  return same;
}

Error bad_spec(const KernelSpec& spec, const std::string& what) {
  return Error(ErrorCode::invalid_argument,
               "kernel " + (spec.name.empty() ? "(unnamed)" : spec.name) + ": " + what);
}

// The first sentence of an error says which kernel it is about.
Error about(const KernelSpec& spec, const Error& error) {
  return Error(error.code(), "kernel " + spec.name + ": " + error.message(),
               std::string(error.detail()));
}

}  // namespace

Result<Program> make_program(const KernelSpec& spec, const SourceSet& sources,
                             std::span<const IncludeRoot> roots, FileMemo& memo) {
  if (spec.name.empty()) return bad_spec(spec, "KernelSpec::name is empty; give it a name");
  if (spec.source.empty())
    return bad_spec(spec, "KernelSpec::source is empty; name the root file added by add_source");
  if (spec.name_expression.empty() && spec.entry.empty())
    return bad_spec(spec, "neither an entry symbol nor a name expression is given");

  for (const auto& text : {spec.name, spec.entry, spec.name_expression})
    if (text.find('\0') != std::string::npos)
      return bad_spec(spec, "a name, entry or name expression holds a zero byte; remove it");
  const auto expression = scan_source(spec.name_expression);
  if (expression.time_macro || !expression.unknowns.empty() || !expression.includes.empty())
    return Error(
        ErrorCode::not_cacheable,
        "kernel " + spec.name + ": the name expression \"" + spec.name_expression +
            "\" asks for the time or for files, so it has no compile key; name fixed values");

  Program program{.spec = spec};
  auto options = canonical_options(spec.options);
  if (!options) return about(spec, options.error());
  program.options = *std::move(options);
  const auto& dated = program.options.time_macro;
  if (!dated.empty() && spec.unknown_inputs == UnknownInputs::refuse)
    return Error(
        ErrorCode::not_cacheable,
        "kernel " + spec.name + ": the option " + dated +
            " uses the time of the compile, so the kernel has no compile key. Pass a fixed "
            "text, or set UnknownInputs::compile_without_storing");

  auto header = make_key_header(spec.key);
  if (!header) return about(spec, header.error());
  static const auto tensor_map_header = std::make_shared<const std::string>(kTensorMapHeader);
  const ProgramFile provided[] = {
      {std::string(kKeyHeaderName), std::make_shared<const std::string>(*std::move(header)), {}},
      {std::string(kTensorMapHeaderName), tensor_map_header, {}}};
  const SourceScan beside{.parts = program.options.parts.with(expression.parts),
                          .lends_place = program.options.lends_place};
  auto closure =
      resolve_includes(sources, memo, spec.source, provided, roots, spec.unknown_inputs, beside);
  if (!closure) return about(spec, closure.error());
  program.closure = *std::move(closure);
  program.same_files = same_files(program.closure.disk);
  if (!dated.empty() && program.closure.cacheable) {
    program.closure.cacheable = false;
    program.closure.why_not = "the option " + dated + " uses the time of the compile";
  }
  for (const auto& root : roots) program.searched_directories.push_back(root.path);
  return program;
}

CompileKey key_of(const Program& program, std::string_view architecture,
                  const ToolchainId& toolchain) {
  const auto& spec = program.spec;
  std::string text;
  text.reserve(kUsualKeyBytes);
  add(text, "schema", std::to_string(kKeySchema));
  add(text, "kernel", spec.name);
  if (spec.name_expression.empty())
    add(text, "entry", spec.entry);
  else
    add(text, "name-expression", spec.name_expression);
  for (const auto& field : spec.key)
    add(text, "field", {field.name, " ", field.type, " ", field.value});
  for (const auto& file : program.closure.memory)
    add(text, "source",
        {file.name, " ", (file.digest ? *file.digest : cache::digest_of(*file.text)).hex()});
  for (const auto& file : program.closure.disk)
    add(text, "header", {file.label, " ", file.digest.hex()});
  for (const auto& same : program.same_files) add(text, "same-file", same);
  if (program.closure.place) add(text, "place", program.closure.place->hex());
  add(text, "architecture", architecture);
  add(text, "builtins", spec.builtins == Builtins::minimal ? "minimal" : "full");
  for (const auto& option : program.options.arguments) add(text, "option", option);
  add(text, kToolchain, toolchain.to_text());  // last: toolchain_in() looks for it there
  const auto name = cache::digest_of(text);
  return {std::move(text), name};
}

std::optional<ToolchainId> toolchain_in(std::string_view key_text) {
  const auto label = "\n" + std::string(kToolchain) + " ";
  const auto at = key_text.rfind(label);
  if (at == std::string_view::npos || !key_text.ends_with('\n')) return std::nullopt;
  auto line = key_text.substr(at + label.size());
  line.remove_suffix(1);
  const auto length_end = line.find(' ');
  if (length_end == std::string_view::npos) return std::nullopt;
  return ToolchainId::from_text(line.substr(length_end + 1));
}

}  // namespace kiln
