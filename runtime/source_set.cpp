#include "runtime/source_set.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/file_memo.hpp"

namespace kiln {
namespace {

Error bad_name(std::string_view name, const char* why) {
  std::string shown;
  for (const char c : name) shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return {ErrorCode::invalid_argument, "\"" + shown + "\" cannot be an include name: " + why +
                                           "; use a relative path such as \"kernels/scale.cu\""};
}

bool is_forbidden(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\' || c == '"' || c == '<' ||
         c == '>';
}

}  // namespace

Status check_include_name(std::string_view name) {
  if (name.empty()) return bad_name(name, "it is empty");
  if (name == kKeyHeaderName || name == kTensorMapHeaderName)
    return bad_name(name, "Kiln provides this header to each program");
  for (const char c : name)
    if (is_forbidden(c))
      return bad_name(name, "it has a control character, backslash, quote or angle bracket");
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (part.empty()) return bad_name(name, "it has an empty part");
    if (part == "." || part == "..") return bad_name(name, "it has a \".\" or \"..\" part");
    begin = end + 1;
  }
  return {};
}

Result<std::shared_ptr<const Source>> make_source(std::string_view name, std::string_view text) {
  const auto body = without_byte_order_mark(text);
  if (body.find('\0') != std::string_view::npos)
    return Error{ErrorCode::invalid_argument,
                 "the text of \"" + std::string(name) +
                     "\" has a zero byte, where the compiler would stop reading: remove it"};
  return std::make_shared<const Source>(Source{.text = std::make_shared<const std::string>(body),
                                               .digest = cache::digest_of(body),
                                               .scan = scan_source(body)});
}

SourceSet::SourceSet(std::filesystem::path override_directory)
    : override_directory_(std::move(override_directory)) {}

Status SourceSet::add(std::string_view name, std::string_view text) {
  if (auto named = check_include_name(name); !named) return named;
  KILN_TRY(auto source, make_source(name, text));
  const std::unique_lock lock(mutex_);
  const auto [at, added] = sources_.try_emplace(std::string(name), source);
  if (!added && *at->second->text != *source->text)
    return Error{ErrorCode::invalid_argument,
                 "\"" + std::string(name) +
                     "\" was added before with another text: use another include name"};
  if (added) generation_.fetch_add(1, std::memory_order_release);
  return {};
}

Result<std::shared_ptr<const Source>> SourceSet::find(std::string_view name) const {
  if (!override_directory_.empty() && check_include_name(name)) {
    const auto path = override_directory_.string() + '/' + std::string(name);
    // Whatever stands there was meant to be used: no silent return to the added text.
    if (probe_file(path).kind != FileKind::absent) {
      KILN_TRY(const auto text, read_whole_file(path));
      return make_source(name, text);
    }
  }
  const std::shared_lock lock(mutex_);
  const auto found = sources_.find(name);
  return found == sources_.end() ? std::shared_ptr<const Source>{} : found->second;
}

std::vector<std::string> SourceSet::names() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::string> names;
  names.reserve(sources_.size());
  for (const auto& [name, source] : sources_) names.push_back(name);
  return names;
}

}  // namespace kiln
