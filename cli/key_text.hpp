// The fields of an entry's canonical key text: one a line, "label length value", where the length
// counts the bytes of the value, which may be anything.
//
// Threads: pure functions and values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

struct KeyTextField {
  std::string label{};
  std::string value{};
};

/// The fields in order, up to the first that is of another form.
std::vector<KeyTextField> key_text_fields(std::string_view key_text);

/// A source or header that went into the key.
struct KeyTextFile {
  std::string name{};
  std::string digest{};  ///< in hex
  bool on_disk = false;  ///< below an include directory; else a source by its include name
};

/// The files in order; the first one is the root.
std::vector<KeyTextFile> key_text_files(std::string_view key_text);

}  // namespace kiln::cli
