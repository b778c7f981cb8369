// The fields of an entry's canonical key text: one a line, "label length value", where the length
// counts the bytes of the value, which may be anything; and how two such texts differ.
//
// Threads: pure functions and values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"

namespace kiln {

struct KeyTextField {
  std::string label{};
  std::string value{};
};

/// The fields in order, up to the first that is of another form.
KILN_API std::vector<KeyTextField> key_text_fields(std::string_view key_text);

/// A source or header that went into the key.
struct KeyTextFile {
  std::string name{};
  std::string digest{};  ///< in hex
  bool on_disk = false;  ///< below an include directory; else a source by its include name
};

/// The files in order; the first one is the root.
KILN_API std::vector<KeyTextFile> key_text_files(std::string_view key_text);

/// One thing in which two keys differ.
struct KeyDifference {
  /// "kernel", "entry", "name expression", "constant", "source", "header", "same file" (two headers
  /// that are one through a link), "place" (a digest of the include directories, where headers name
  /// their own path), "architecture", "builtins", "option", "nvrtc" (its identity) or "schema";
  /// "order" when only the order of files or options differs; "text" when a key is of another form.
  std::string aspect{};
  /// Of the constant, file or option; else empty.
  std::string name{};
  /// What stands in the first and in the second key: a value, or the digest of a file's content.
  /// Empty optional: it is not in that key.
  std::optional<std::string> first{};
  std::optional<std::string> second{};
};

/// All differences, in the order of the first key; none for equal texts. The header of constants,
/// which is made of them, is left out where constants differ.
KILN_API std::vector<KeyDifference> key_differences(std::string_view first,
                                                    std::string_view second);

}  // namespace kiln
