#include "cli/kernel_scan.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

namespace kiln::cli {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

// Words, "C" with its quotes, and single characters; without comments, other literals and
// directives.
std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  bool line_start = true;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    std::size_t end = at + 1;
    if (c == '\n') {
      line_start = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      // nothing
    } else if (text.substr(at, 2) == "//" || (c == '#' && line_start)) {
      // A directive or a comment of one line; a backslash carries both over its end.
      for (end = at; end < text.size() && text[end] != '\n'; ++end)
        if (text[end] == '\\' && end + 1 < text.size()) ++end;
    } else if (text.substr(at, 2) == "/*") {
      end = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
    } else if (text.substr(at, 2) == "R\"") {
      const auto open = std::min(text.find('(', at), text.size() - 1);
      const auto close = ")" + std::string(text.substr(at + 2, open - at - 2)) + "\"";
      end = std::min(text.find(close, open), text.size() - close.size()) + close.size();
      end = std::max(end, at + 2);
    } else if (c == '"' || (c == '\'' && (at == 0 || !is_word(text[at - 1])))) {
      while (end < text.size() && text[end] != c && text[end] != '\n')
        end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      tokens.push_back(text.substr(at, end - at));
    } else {
      if (is_word(c))
        while (end < text.size() && is_word(text[end])) ++end;
      tokens.push_back(text.substr(at, end - at));
      line_start = false;
    }
    at = end;
  }
  return tokens;
}

class Scan {
 public:
  explicit Scan(std::vector<std::string_view> tokens) : tokens_(std::move(tokens)) {}

  std::vector<DeclaredKernel> run() {
    for (std::size_t at = 0; at < tokens_.size(); ++at) {
      const auto token = tokens_[at];
      if (token == "{") {
        open(at);
      } else if (token == "}") {
        if (!scopes_.empty()) scopes_.pop_back();
        declaration_ = at + 1;
      } else if (token == ";") {
        declaration_ = at + 1;
      } else if (token == "__global__") {
        kernel(at);
      }
    }
    return std::move(kernels_);
  }

 private:
  struct Scope {
    std::string name{};  // of a namespace, with "::"
    bool is_c = false;
  };

  bool declaration_has(std::string_view word, std::size_t end) const {
    return std::find(tokens_.begin() + static_cast<std::ptrdiff_t>(declaration_),
                     tokens_.begin() + static_cast<std::ptrdiff_t>(end),
                     word) != tokens_.begin() + static_cast<std::ptrdiff_t>(end);
  }

  void open(std::size_t at) {
    Scope scope;
    if (declaration_has("namespace", at)) {
      for (auto i = declaration_; i < at; ++i)
        if (tokens_[i] != "namespace" && tokens_[i] != "inline" && is_word(tokens_[i].front()))
          scope.name += std::string(tokens_[i]) + "::";
    } else if (at >= 2 && tokens_[at - 1] == "\"C\"" && tokens_[at - 2] == "extern") {
      scope.is_c = true;
    }
    scopes_.push_back(std::move(scope));
    declaration_ = at + 1;
  }

  // The name is the word before the first parenthesis that is not an attribute's.
  void kernel(std::size_t at) {
    for (auto i = at + 1; i + 1 < tokens_.size(); ++i) {
      const auto token = tokens_[i];
      if (token == ";" || token == "{" || token == "}") return;
      if (tokens_[i + 1] != "(" || !is_word(token.front())) continue;
      if (token.starts_with("__") || token == "alignas" || token == "decltype") {
        i = closing(i + 1);
        continue;
      }
      DeclaredKernel found{.name = std::string(token)};
      std::string outer;
      for (const auto& scope : scopes_) {
        outer += scope.name;
        found.is_c = found.is_c || scope.is_c;
      }
      found.is_c = found.is_c || declaration_has("\"C\"", at);
      found.is_template = declaration_has("template", at);
      if (!found.is_c) found.name = outer + found.name;
      const bool known = std::any_of(kernels_.begin(), kernels_.end(),
                                     [&](const auto& other) { return other.name == found.name; });
      if (!known) kernels_.push_back(std::move(found));
      return;
    }
  }

  std::size_t closing(std::size_t at) const {
    for (int depth = 0; at < tokens_.size(); ++at) {
      if (tokens_[at] == "(") ++depth;
      if (tokens_[at] == ")" && --depth == 0) return at;
    }
    return at;
  }

  const std::vector<std::string_view> tokens_;
  std::vector<Scope> scopes_;
  std::vector<DeclaredKernel> kernels_;
  std::size_t declaration_ = 0;  // where the one at hand begins
};

}  // namespace

std::vector<DeclaredKernel> declared_kernels(std::string_view source) {
  return Scan(tokens_of(source)).run();
}

}  // namespace kiln::cli
