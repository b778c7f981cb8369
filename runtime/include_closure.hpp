// Everything that NVRTC can read for one program, found before NVRTC runs.
//
// Conditionals are ignored, so the closure is a textual superset of what a compile reads.
//
// Files in memory. A registered or generated name wins in either form, by exact spelling. A quoted
// name is then looked for beside the including file among the registered ones, then in the roots,
// and is an error if it is nowhere. NVRTC itself looks for a quoted name that it was not handed in
// the folder part of the including file's name, which the working directory resolves. So each
// quoted spelling is handed over: under a spelling that is not a registered name lies a stub of one
// line, which includes the registered name, or the root's file as <./spelling>. The "./" keeps the
// stub from naming itself and no path of the machine enters the text; one file under two spellings
// stays one file for "#pragma once".
//
// Files on disk. A name in memory wins, then (quoted) the file's own folder, then the roots in
// order, then a registered name. NVRTC looks nowhere else, not even beside the includer's includer.
//
// Unknown inputs. Time macros, #embed, computed includes and what lies outside the roots make a
// program not cacheable. So do parts of such names that a ## anywhere in the closure could paste,
// unless the parts are the toolkit's. Toolkit files are granted two things: a computed
// __has_include (the toolkit wraps it in a macro; its literal uses are found), and a computed
// #include, for which all files of that toolkit root join the closure. The macros in it must be the
// toolkit's own.
//
// Places. A file below a root of the caller's has its path for __FILE__, by which the code can
// differ as well as hold it. Where such a file names that, or a macro or default argument that it
// may use does, the paths of those roots have a part in the key.
//
// Threads: a pure function of the sources and the disk.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"
#include "runtime/file_memo.hpp"
#include "runtime/include_roots.hpp"
#include "runtime/source_scan.hpp"
#include "runtime/source_set.hpp"

namespace kiln {

/// Goes before the root's include name when NVRTC is told the program's name. Absolute and absent:
/// NVRTC looks for quoted includes beside the program.
inline constexpr std::string_view kProgramPrefix = "/kiln-embedded/";

/// A text under the name that NVRTC is handed it by.
struct ProgramFile {
  std::string name{};
  std::shared_ptr<const std::string> text{};
  std::optional<cache::Digest> digest{};  ///< of the text, where it is known
};

struct DiskFile {
  std::string label{};  ///< root and relative path, such as "toolkit/0/cuda_fp16.h"
  cache::Digest digest{};
  FileStamp stamp{};  ///< before it was read; not in the key
  bool operator==(const DiskFile&) const = default;
};

struct IncludeClosure {
  /// The root, then in order of name the headers for nvrtcCreateProgram.
  std::vector<ProgramFile> memory{};
  std::vector<DiskFile> disk{};  ///< in order of label
  /// Of the paths of the roots that files came from, where those have a part in the key.
  std::optional<cache::Digest> place{};
  /// To be passed as -I, in order. Empty when no include leads to the disk.
  std::vector<std::filesystem::path> include_directories{};
  /// Includes that were found nowhere, in order; most stand in branches that are switched off.
  std::vector<std::string> unresolved{};
  /// Paths of files on disk that begin with a byte-order mark, which NVRTC cannot compile.
  std::vector<std::string> byte_order_marks{};
  bool cacheable = true;
  std::string why_not{};
  /// Nothing was looked for on disk, so that the same sources give the same closure.
  bool memory_only = true;
};

/// `generated` holds the texts made for this program, such as jit/key.cuh; `beside` the parts and
/// the places of what else the preprocessor reads: options and name expression.
/// Errors  invalid_argument for an unknown root or quoted include, for an absolute path, and for
///         one spelling with two meanings; not_cacheable under UnknownInputs::refuse; io_failed.
Result<IncludeClosure> resolve_includes(const SourceSet& sources, FileMemo& memo,
                                        std::string_view root_name,
                                        std::span<const ProgramFile> generated,
                                        std::span<const IncludeRoot> roots, UnknownInputs policy,
                                        const SourceScan& beside = {});

}  // namespace kiln
