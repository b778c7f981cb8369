#include "runtime/include_closure.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "runtime/message_text.hpp"

namespace kiln {
namespace {

struct MemoryFile {
  std::string name;
  std::shared_ptr<const Source> source;
};

struct FoundFile {
  const RootFile* place = nullptr;
  std::shared_ptr<const ScannedFile> content;
};

// What NVRTC gets under one spelling.
struct Meaning {
  std::string target;  // the spelling itself, or what a stub leads to
  std::string stub;    // empty for the file itself
  std::string where;   // the first place that needs it
};

std::string place_in(std::string_view file, unsigned line) {
  return std::string(file) + ':' + std::to_string(line);
}

class Resolver {
 public:
  Resolver(const SourceSet& sources, FileMemo& memo, std::span<const ProgramFile> generated,
           std::span<const IncludeRoot> roots, const SourceScan& beside)
      : sources_(sources),
        memo_(memo),
        generated_(generated),
        roots_(roots),
        parts_(beside.parts),
        has_place_(beside.lends_place) {
    if (parts_.line != 0) pasted_at_ = "an option or name expression";
  }

  Result<IncludeClosure> run(std::string_view root_name, UnknownInputs policy) {
    KILN_TRY(auto root, look_up(root_name));
    if (!root)
      return Error{ErrorCode::invalid_argument,
                   "no source is named " + quote(root_name) + ": add it with Runtime::add_source"};
    memory_.push_back({std::string(root_name), std::move(root)});
    for (std::size_t memory = 0, disk = 0; memory < memory_.size() || disk < disk_.size();) {
      // Memory first: what is handed over must be known when files on disk are resolved.
      const auto status = memory < memory_.size() ? follow_memory(memory++) : follow_disk(disk++);
      if (!status) return status.error();
    }
    // Another file in its place, or none, would make another kernel.
    if (const auto& trouble = roots_.trouble(); !trouble) return trouble.error();
    // A spelling that another file gave a meaning is in memory for all: no look-up leaks out.
    for (const auto& [spelling, error] : missing_)
      if (!meanings_.contains(spelling)) return error;
    if (const auto status = check_meanings(); !status) return status.error();
    if (!pasted_at_.empty())
      for (const auto name : parts_.names())
        note_unknown(pasted_at_ + " pastes tokens by ##, which can make " + std::string(name) +
                     " of parts that the sources and options hold");
    if (!why_not_.empty() && policy == UnknownInputs::refuse)
      return Error{ErrorCode::not_cacheable,
                   why_not_ +
                       ": change it, or set KernelSpec::unknown_inputs to "
                       "compile_without_storing"};
    return finish();
  }

 private:
  Result<std::shared_ptr<const Source>> look_up(std::string_view name) {
    for (const auto& file : generated_)
      if (file.name == name) return make_source(name, *file.text);
    return sources_.find(name);
  }

  const RootFile* locate(const std::string& spelling) {
    asked_disk_ = true;
    return roots_.locate(spelling);
  }

  const RootFile* place(std::size_t root, const std::string& relative) {
    asked_disk_ = true;
    return roots_.place(root, relative);
  }

  void note_unknown(std::string reason) {
    if (why_not_.empty()) why_not_ = std::move(reason);
  }

  void note_time_macro(const SourceScan& scan, std::string_view file) {
    if (scan.time_macro)
      note_unknown(place_in(file, scan.time_macro->line) + " uses " + scan.time_macro->name +
                   ", which differs from compile to compile");
  }

  void note_unknown(const UnknownUse& use, std::string_view file) {
    const char* what = use.kind == UnknownKind::embed ? " embeds a file by #embed "
                       : use.kind == UnknownKind::computed_include
                           ? " includes a name that only the preprocessor can compute, "
                           : " asks by __has_include for a name that only the preprocessor can "
                             "compute, ";
    note_unknown(place_in(file, use.line) + what + '\'' + use.text + '\'');
  }

  // Any ## counts, also that of a toolkit's macro, which the program's own parts may go through.
  void note_parts(const SourceScan& scan, std::string_view file, bool toolkit) {
    if (pasted_at_.empty() && scan.parts.line != 0) pasted_at_ = place_in(file, scan.parts.line);
    if (!toolkit) parts_ = parts_.with(scan.parts);
  }

  // By position, since the list grows meanwhile; the source is kept alive by the copy.
  Status follow_memory(std::size_t index) {
    const auto file = memory_[index];
    const auto& scan = file.source->scan;
    note_time_macro(scan, file.name);
    note_parts(scan, file.name, false);
    has_place_ = has_place_ || scan.lends_place;
    for (const auto& use : scan.unknowns) {
      note_unknown(use, file.name);
      if (use.kind == UnknownKind::computed_include) computes_includes_ = true;
    }
    for (const auto& use : scan.includes)
      if (auto status = from_memory(file.name, use, index == 0); !status) return status;
    return {};
  }

  Status from_memory(const std::string& file, const IncludeUse& use, bool is_root) {
    const auto where = place_in(file, use.line);
    if (use.spelling.starts_with('/'))
      return Error{ErrorCode::invalid_argument,
                   where + " includes the absolute path " + quote(use.spelling) +
                       ": add the file with Runtime::add_source, or its folder to "
                       "RuntimeOptions::include_roots, and include it by a relative name"};
    if (use.kind == IncludeKind::include_next)
      note_unknown(where + " uses #include_next outside the include roots");
    KILN_TRY(auto exact, look_up(use.spelling));
    if (exact) return hand_over(use.spelling, std::move(exact), where);

    const bool quoted = use.form == IncludeForm::quoted;
    const auto neighbour =
        quoted ? normal_path(std::string(directory_part(file)) + use.spelling) : std::nullopt;
    if (neighbour && *neighbour != use.spelling) {
      KILN_TRY(auto beside, look_up(*neighbour));
      if (beside) {
        if (auto status = hand_over(*neighbour, std::move(beside), where); !status) return status;
        return add_stub(use.spelling, *neighbour, '"' + *neighbour + '"', where);
      }
    }
    if (const auto* found = locate(use.spelling)) {
      if (auto status = reach(*found, where); !status) return status;
      if (!quoted) return {};
      if (use.spelling.find('>') != std::string::npos)
        return Error{ErrorCode::invalid_argument,
                     where + " includes " + quote(use.spelling) + ": rename it without a '>'"};
      return add_stub(use.spelling, found->label, "<./" + use.spelling + '>', where);
    }
    if (use.kind == IncludeKind::include_next) return {};
    if (!quoted) {
      if (use.kind == IncludeKind::include) unresolved_.insert(use.spelling);
      return {};
    }
    // The root's own folder does not exist, so the answer there is always no.
    if (use.kind == IncludeKind::has_include && is_root) return {};
    missing_.push_back({use.spelling, not_found(where, use, neighbour)});
    return {};
  }

  Error not_found(const std::string& where, const IncludeUse& use,
                  const std::optional<std::string>& neighbour) const {
    auto message =
        where +
        (use.kind == IncludeKind::has_include ? " asks by __has_include for " : " includes ") +
        quote(use.spelling) + ", which was not found; tried the sources " + quote(use.spelling);
    if (neighbour && *neighbour != use.spelling) message += " and " + quote(*neighbour);
    for (std::size_t root = 0; root < roots_.size(); ++root)
      message +=
          (root == 0 ? ", then the files " : ", ") + quote(roots_.path(root) + '/' + use.spelling);
    return {ErrorCode::invalid_argument,
            message +
                ". Add the file with Runtime::add_source, or its folder to "
                "RuntimeOptions::include_roots" +
                (use.kind == IncludeKind::has_include ? ", or ask with <...>" : "")};
  }

  Status hand_over(const std::string& name, std::shared_ptr<const Source> source,
                   const std::string& where) {
    if (meanings_.try_emplace(name, Meaning{name, {}, where}).second)
      memory_.push_back({name, std::move(source)});
    return {};
  }

  Status add_stub(const std::string& spelling, const std::string& target,
                  const std::string& header_name, const std::string& where) {
    const auto [at, added] =
        meanings_.try_emplace(spelling, Meaning{target, "#include " + header_name + '\n', where});
    return added || at->second.target == target ? Status{}
                                                : two_meanings(spelling, at->second, target, where);
  }

  static Error two_meanings(const std::string& spelling, const Meaning& known,
                            const std::string& other, const std::string& where) {
    return {ErrorCode::invalid_argument,
            quote(spelling) + " means " + quote(known.target) + " in " + known.where + " and " +
                quote(other) + " in " + where +
                ", but the compiler takes one file for one spelling: include the first by its "
                "whole name"};
  }

  Status reach(const RootFile& place, const std::string& where) {
    if (place.outside)
      note_unknown(where + " includes " + quote(place.path) +
                   ", which lies outside the include roots");
    if (!reached_.insert(place.label).second) return {};
    KILN_TRY(auto content, memo_.get(place.path, place.stamp));
    disk_.push_back({&place, std::move(content)});
    return {};
  }

  Status follow_disk(std::size_t index) {
    const auto file = disk_[index];
    if (file.place->outside) return {};  // not cacheable already, and ".." might never end
    const auto& scan = file.content->scan;
    const bool toolkit = roots_.is_toolkit(file.place->root);
    note_time_macro(scan, file.place->path);
    note_parts(scan, file.place->path, toolkit);
    has_place_ = has_place_ || (!toolkit && scan.names_place);
    for (const auto& use : scan.unknowns) {
      if (!toolkit || use.kind == UnknownKind::embed) {
        note_unknown(use, file.place->path);
      } else if (use.kind == UnknownKind::computed_include) {
        if (auto status = reach_all(file.place->root); !status) return status;
      }
    }
    for (const auto& use : scan.includes)
      if (auto status = from_disk(*file.place, use); !status) return status;
    return {};
  }

  Status reach_all(std::size_t root) {
    if (!whole_roots_.insert(root).second) return {};
    KILN_TRY(const auto files, roots_.all_files(root));
    for (const auto* file : files)
      if (auto status = reach(*file, roots_.path(root)); !status) return status;
    return {};
  }

  const RootFile* locate_from_disk(const RootFile& file, const IncludeUse& use) {
    if (use.form == IncludeForm::quoted && use.kind != IncludeKind::include_next) {
      auto beside = std::string(directory_part(file.relative)) + use.spelling;
      if (const auto* found = place(file.root, beside)) return found;
    }
    return locate(use.spelling);
  }

  Status from_disk(const RootFile& file, const IncludeUse& use) {
    const auto where = place_in(file.path, use.line);
    if (use.kind == IncludeKind::include_next)
      for (std::size_t root = 0; root < roots_.size(); ++root)
        if (const auto* found = place(root, use.spelling))
          if (auto status = reach(*found, where); !status) return status;
    if (meanings_.contains(use.spelling)) return {};
    if (use.spelling.starts_with('/')) {
      note_unknown(where + " includes the absolute path " + quote(use.spelling));
      return {};
    }
    if (const auto* found = locate_from_disk(file, use)) return reach(*found, where);
    KILN_TRY(auto exact, look_up(use.spelling));
    if (exact) return hand_over(use.spelling, std::move(exact), where);
    if (use.kind == IncludeKind::include) unresolved_.insert(use.spelling);
    return {};
  }

  // A stub answers to its spelling everywhere, also where the same spelling means another file.
  Status check_meanings() {
    const bool any_stub = std::any_of(meanings_.begin(), meanings_.end(),
                                      [](const auto& entry) { return !entry.second.stub.empty(); });
    if (!any_stub) return {};
    const auto check = [&](const IncludeUse& use, const RootFile* meant,
                           const std::string& file) -> Status {
      const auto known = meanings_.find(use.spelling);
      if (known == meanings_.end() || known->second.stub.empty()) return {};
      if (meant == nullptr || meant->label == known->second.target) return {};
      return two_meanings(use.spelling, known->second, meant->label, place_in(file, use.line));
    };
    for (const auto& file : memory_)
      for (const auto& use : file.source->scan.includes)
        if (use.form == IncludeForm::angle)
          if (auto status = check(use, locate(use.spelling), file.name); !status) return status;
    for (const auto& file : disk_)
      for (const auto& use : file.content->scan.includes)
        if (meanings_.contains(use.spelling))
          if (auto status = check(use, locate_from_disk(*file.place, use), file.place->path);
              !status)
            return status;
    return {};
  }

  // As it is handed over, which is how __FILE__ has it.
  std::optional<cache::Digest> place_digest() const {
    std::string text;
    for (std::size_t root = 0; has_place_ && root < roots_.size(); ++root)
      if (!roots_.is_toolkit(root) &&
          std::any_of(disk_.begin(), disk_.end(),
                      [&](const auto& found) { return found.place->root == root; }))
        text += roots_.path(root) + '\0';
    if (text.empty()) return std::nullopt;
    return cache::digest_of(text);
  }

  Result<IncludeClosure> finish() {
    IncludeClosure closure;
    const auto file = [](const std::string& name, const Source& source) {
      return ProgramFile{name, source.text, source.digest};
    };
    closure.memory.push_back(file(memory_[0].name, *memory_[0].source));
    std::map<std::string, ProgramFile, std::less<>> headers;
    for (std::size_t i = 1; i < memory_.size(); ++i)
      headers.try_emplace(memory_[i].name, file(memory_[i].name, *memory_[i].source));
    for (const auto& [spelling, meaning] : meanings_)
      if (!meaning.stub.empty())
        headers.try_emplace(
            spelling, ProgramFile{spelling, std::make_shared<const std::string>(meaning.stub)});
    // What a computed name may be is not known: everything that has a name is on offer.
    if (computes_includes_) {
      for (const auto& header : generated_) headers.try_emplace(header.name, header);
      for (const auto& name : sources_.names()) {
        KILN_TRY(const auto source, sources_.find(name));
        if (source) headers.try_emplace(name, file(name, *source));
      }
    }
    for (auto& [name, header] : headers) closure.memory.push_back(std::move(header));
    for (const auto& found : disk_) {
      closure.disk.push_back({found.place->label, found.content->digest, found.content->stamp});
      if (found.content->scan.byte_order_mark)
        closure.byte_order_marks.push_back(found.place->path);
    }
    std::sort(closure.disk.begin(), closure.disk.end(),
              [](const DiskFile& a, const DiskFile& b) { return a.label < b.label; });
    if (!closure.disk.empty() || computes_includes_)
      for (std::size_t root = 0; root < roots_.size(); ++root)
        closure.include_directories.emplace_back(roots_.path(root));
    closure.unresolved.assign(unresolved_.begin(), unresolved_.end());
    closure.place = place_digest();
    closure.cacheable = why_not_.empty();
    closure.why_not = std::move(why_not_);
    closure.memory_only = !asked_disk_ && !computes_includes_;
    return closure;
  }

  const SourceSet& sources_;
  FileMemo& memo_;
  std::span<const ProgramFile> generated_;
  IncludeRoots roots_;
  std::vector<MemoryFile> memory_;
  std::vector<FoundFile> disk_;
  std::map<std::string, Meaning, std::less<>> meanings_;
  std::unordered_set<std::string> reached_;
  std::set<std::size_t> whole_roots_;
  std::vector<std::pair<std::string, Error>> missing_;
  std::set<std::string> unresolved_;
  std::string why_not_;
  PasteParts parts_;
  bool has_place_;         // the code can differ by the path of a file
  std::string pasted_at_;  // the first ##; empty for none
  bool computes_includes_ = false;
  bool asked_disk_ = false;
};

}  // namespace

Result<IncludeClosure> resolve_includes(const SourceSet& sources, FileMemo& memo,
                                        std::string_view root_name,
                                        std::span<const ProgramFile> generated,
                                        std::span<const IncludeRoot> roots, UnknownInputs policy,
                                        const SourceScan& beside) {
  return Resolver(sources, memo, generated, roots, beside).run(root_name, policy);
}

}  // namespace kiln
