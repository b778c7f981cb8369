// kiln bundle ls and kiln bundle verify: what is in a bundle, and whether all of it is whole and
// from whom it should be. Both read and check each entry.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/bundle_file.hpp"
#include "cli/distinctions.hpp"
#include "cli/entry_facts.hpp"
#include "cli/verbs.hpp"

namespace kiln::cli {
namespace {

enum class Told : unsigned char { all, damage };

Outcome run(const BundleArguments& arguments, Told told, Output& output) {
  auto opened = open_bundle(arguments);
  if (auto* failure = std::get_if<Failure>(&opened)) return std::move(*failure);
  const auto& bundle = std::get<cache::Bundle>(opened);

  auto entries = Json::array();
  auto damaged = Json::array();
  std::vector<std::string> lines;
  std::vector<MarkedRow> rows;
  for (const auto& each : bundle.entries()) {
    const auto found = bundle.find(each.name);
    if (!found) return bundle_failure(found.error());
    Json described = {{"key", each.name.hex()}, {"file_bytes", each.entry_bytes}};
    auto columns = each.name.hex() + "  ";
    MarkedRow row;
    if (found->entry) {
      const auto kernel = text_fact(facts_of(*found->entry), "kernel");
      described.update({{"kernel", kernel},
                        {"arch", each.architecture},
                        {"toolchain", each.toolchain},
                        {"sha256", each.entry_sha256.hex()},
                        {"constants", constants_of(found->entry->key_text())}});
      row = {kernel + '\n' + each.architecture, marks_of(found->entry->key_text())};
      columns += padded(bytes_text(each.entry_bytes), -10) + "  " +
                 padded(printable(each.architecture), 8) + "  " + printable(kernel);
    } else {
      described["damage"] = found->damage;
      columns += "damaged: " + printable(found->damage);
      damaged.push_back(described);
    }
    if (told == Told::all || !found->entry) {
      lines.push_back(std::move(columns));
      rows.push_back(std::move(row));
    }
    entries.push_back(std::move(described));
  }
  const auto apart = distinctions(rows);
  for (std::size_t i = 0; i < lines.size(); ++i) output.line(lines[i] + apart[i]);
  const auto bad = damaged.size();
  auto line = entries_text(entries.size()) + ", " + bytes_text(bundle.file_bytes()) + " in " +
              printable(arguments.file) + ", " + signer_text(bundle);
  if (told == Told::damage)
    line += bad == 0 ? ": all good" : ": " + std::to_string(bad) + " damaged; get the bundle anew";
  output.line(line);
  auto result = json_of(bundle);
  if (told == Told::all) {
    result["entries"] = std::move(entries);
  } else {
    result["checked"] = entries.size();
    result["damaged"] = std::move(damaged);
  }
  output.object(result);
  return told == Told::damage && bad != 0 ? ExitCode::failed : ExitCode::done;
}

}  // namespace

Verb add_bundle_ls(CLI::App& bundle) {
  auto& verb = add_verb(bundle, "ls", "List what is in a bundle, whoever signed it",
                        "Examples:\n"
                        "  kiln bundle ls kernels.kiln\n"
                        "  kiln bundle ls kernels.kiln --json\n"
                        "The sha256 of an entry is that of its file in a cache.");
  const auto arguments = std::make_shared<BundleArguments>();
  arguments->any_signer = true;
  add_bundle_file(verb, arguments->file);
  return {&verb, [arguments](Output& output) { return run(*arguments, Told::all, output); }};
}

Verb add_bundle_verify(CLI::App& bundle) {
  auto& verb = add_verb(
      bundle, "verify", "Check who signed a bundle, and every entry",
      "Examples:\n"
      "  kiln bundle verify kernels.kiln --signer kiln.key.pub\n"
      "  kiln bundle verify kernels.kiln --any-signer --json\n"
      "Exit codes: 0 all is good; 1 the bundle is refused or something is damaged; 2 usage; 3 no\n"
      "libsodium.");
  const auto arguments = std::make_shared<BundleArguments>();
  add_bundle_file(verb, arguments->file);
  add_signers(verb, *arguments);
  return {&verb, [arguments](Output& output) { return run(*arguments, Told::damage, output); }};
}

}  // namespace kiln::cli
