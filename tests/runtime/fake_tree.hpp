// A directory tree of made-up files for the searches, and made-up shared libraries to put in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "kiln/options.hpp"
#include "runtime/elf.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::test {

/// A directory of made-up files that exists as long as the object.
class FakeTree : public TemporaryDirectory {
 public:
  void write(std::string_view name, std::string_view bytes) const {
    make_parent(name);
    write_file(*this / name, bytes);
  }
  void link(std::string_view name, const std::filesystem::path& target) const {
    make_parent(name);
    std::error_code ignored;
    std::filesystem::create_symlink(target, *this / name, ignored);
  }

 private:
  void make_parent(std::string_view name) const {
    std::error_code ignored;
    std::filesystem::create_directories((*this / name).parent_path(), ignored);
  }
};

/// An environment of these variables alone.
inline EnvironmentReader environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

inline void put(std::string& bytes, std::size_t at, std::uint64_t value, std::size_t size) {
  if (bytes.size() < at + size) bytes.resize(at + size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i) & 0xFF);
}

struct LibraryFacts {
  std::string soname{};
  std::string build_id{};  ///< raw bytes; empty: no note
  std::uint16_t machine = kElfMachineHere;
  std::uint16_t type = kElfTypeShared;
  bool note_by_section_only = false;  ///< as patchelf leaves it
};

/// The smallest file that says these things: one loaded segment, a dynamic section, a note.
inline std::string library_bytes(const LibraryFacts& facts) {
  std::string b(
      "\x7F"
      "ELF\x02\x01\x01",
      7);
  put(b, 16, facts.type, 2);
  put(b, 18, facts.machine, 2);
  put(b, 32, 64, 8);
  put(b, 54, 56, 2);
  put(b, 56, 3, 2);
  constexpr std::size_t kDynamic = 256;
  constexpr std::size_t kNote = 320;
  constexpr std::size_t kStrings = 400;
  const auto segment = [&](std::size_t index, std::uint32_t type, std::size_t offset,
                           std::size_t size) {
    const std::size_t at = 64 + index * 56;
    put(b, at, type, 4);
    put(b, at + 8, offset, 8);
    put(b, at + 16, 0x1000 + offset, 8);  // addresses differ from offsets
    put(b, at + 32, size, 8);
  };
  const std::size_t note_bytes = facts.build_id.empty() ? 0 : 16 + facts.build_id.size();
  const std::size_t end = kStrings + 1 + facts.soname.size() + 1;
  segment(0, 1, 0, end);
  segment(1, 2, kDynamic, 48);
  segment(2, 4, facts.note_by_section_only ? 64 : kNote, note_bytes);
  put(b, kDynamic, 5, 8);  // string table
  put(b, kDynamic + 8, 0x1000 + kStrings, 8);
  put(b, kDynamic + 16, facts.soname.empty() ? 1 : 14, 8);
  put(b, kDynamic + 24, 1, 8);
  put(b, kDynamic + 40, 0, 8);
  put(b, kStrings + 1, 0, 1);
  if (note_bytes != 0) {
    put(b, kNote, 4, 4);
    put(b, kNote + 4, facts.build_id.size(), 4);
    put(b, kNote + 8, 3, 4);
    b.replace(kNote + 12, 4, std::string("GNU\0", 4));
    b.replace(kNote + 16, facts.build_id.size(), facts.build_id);
  }
  b.resize(end, '\0');
  b.replace(kStrings + 1, facts.soname.size(), facts.soname);
  if (facts.note_by_section_only) {
    const std::size_t sections = b.size();
    put(b, 40, sections, 8);
    put(b, 58, 64, 2);
    put(b, 60, 1, 2);
    put(b, sections + 4, 7, 4);
    put(b, sections + 24, kNote, 8);
    put(b, sections + 32, note_bytes, 8);
    put(b, sections + 63, 0, 1);
  }
  return b;
}

/// Puts an NVRTC of this version into `directory` of `tree`, under the names that it has there.
inline void put_nvrtc(const FakeTree& tree, const std::string& directory, int major, int minor) {
  const auto m = std::to_string(major);
  const auto version = m + "." + std::to_string(minor);
  tree.write(directory + "/libnvrtc.so." + m,
             library_bytes({.soname = "libnvrtc.so." + m, .build_id = "lib" + version}));
  tree.write(directory + "/libnvrtc-builtins.so." + version,
             library_bytes(
                 {.soname = "libnvrtc-builtins.so." + version, .build_id = "builtins" + version}));
}

}  // namespace kiln::test
