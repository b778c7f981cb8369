// The shipped sources with a few texts of them replaced, for tests that are seen to fail without
// what these texts do.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernel_src/kernels.hpp"
#include "kiln/runtime.hpp"

namespace kiln::test {

/// A text that a file below kernel_src holds once, and what takes its place.
struct SourceEdit {
  std::string_view file, text, instead;
};

/// Adds all sources, edited.
/// Errors  invalid_argument for a text that its file does not hold once; as Runtime::add_source
inline Status add_changed_sources(Runtime& runtime, std::span<const SourceEdit> edits) {
  std::size_t made = 0;
  for (const SourceText& source : kernels::embedded_sources()) {
    std::string text(source.text);
    for (const SourceEdit& edit : edits) {
      if (source.name != "kernel_src/" + std::string(edit.file)) continue;
      const auto at = text.find(edit.text);
      if (at == std::string::npos || text.find(edit.text, at + 1) != std::string::npos)
        return Error(ErrorCode::invalid_argument,
                     std::string(edit.file) + " does not hold once: " + std::string(edit.text));
      text.replace(at, edit.text.size(), edit.instead);
      ++made;
    }
    if (Status added = runtime.add_source(source.name, text); !added) return added;
  }
  if (made != edits.size())
    return Error(ErrorCode::invalid_argument, "of " + std::to_string(edits.size()) + " edits " +
                                                  std::to_string(made) + " have their file");
  return {};
}

}  // namespace kiln::test
