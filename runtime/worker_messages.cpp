#include "runtime/worker_messages.hpp"

#include <cstring>
#include <filesystem>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kiln/version.hpp"
#include "runtime/artifact_facts.hpp"

namespace kiln {
namespace {

// Both walk one list of members, so that what is written is what is read.
class Writer {
 public:
  void operator()(std::uint64_t number) {
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    text_.append(bytes, sizeof number);
  }
  void operator()(std::string_view text) {
    (*this)(std::uint64_t{text.size()});
    text_.append(text);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  void operator()(std::uint64_t& number) {
    number = 0;
    if (text_.size() < sizeof number) {
      failed_ = true;
      return;
    }
    std::memcpy(&number, text_.data(), sizeof number);
    text_.remove_prefix(sizeof number);
  }
  void operator()(std::string& text) {
    std::uint64_t size = 0;
    (*this)(size);
    if (size > text_.size()) failed_ = true;
    if (failed_) return;
    text.assign(text_.substr(0, size));
    text_.remove_prefix(size);
  }
  /// Of a list; no list is longer than what is left, since each element takes bytes.
  std::size_t count() {
    std::uint64_t number = 0;
    (*this)(number);
    if (number > text_.size()) failed_ = true;
    return failed_ ? 0 : static_cast<std::size_t>(number);
  }
  bool whole() const { return !failed_ && text_.empty(); }

 private:
  std::string_view text_;
  bool failed_ = false;
};

template <class T, class Each>
void walk(Writer& writer, const std::vector<T>& list, Each each) {
  writer(std::uint64_t{list.size()});
  for (const auto& element : list) each(element);
}
template <class T, class Each>
void walk(Reader& reader, std::vector<T>& list, Each each) {
  list.resize(reader.count());
  for (auto& element : list) each(element);
}

void walk_number(Writer& writer, int number) {
  writer(static_cast<std::uint64_t>(number));
}
void walk_number(Reader& reader, int& number) {
  std::uint64_t read = 0;
  reader(read);
  number = static_cast<int>(read);
}
void walk_path(Writer& writer, const std::filesystem::path& path) {
  writer(path.native());
}
void walk_path(Reader& reader, std::filesystem::path& path) {
  std::string text;
  reader(text);
  path = std::move(text);
}
void walk_shared(Writer& writer, const std::shared_ptr<const std::string>& text) {
  writer(*text);
}
void walk_shared(Reader& reader, std::shared_ptr<const std::string>& text) {
  std::string read;
  reader(read);
  text = std::make_shared<const std::string>(std::move(read));
}

// How keys are made is a part of it: entries are shared by versions that make them alike.
std::string own_version() {
  return std::string(version()) + ", keys " + std::to_string(kKeySchema);
}

// `Job` is a WorkerJob, const for the writer.
template <class Walker, class Job>
void walk_job(Walker& walker, Job& job) {
  walker(job.nvrtc);
  walk_number(walker, job.toolchain.major);
  walk_number(walker, job.toolchain.minor);
  walker(job.toolchain.nvrtc_build_id);
  walker(job.toolchain.builtins_build_id);
  walker(job.architecture);
  walker(job.key.high);
  walker(job.key.low);
  auto& spec = job.program.spec;
  walker(spec.name);
  walker(spec.entry);
  walker(spec.name_expression);
  auto& options = job.program.options;
  walk(walker, options.arguments, [&](auto& argument) { walker(argument); });
  walk(walker, options.needs, [&](auto& need) {
    walker(need.option);
    walk_number(walker, need.major);
    walk_number(walker, need.minor);
  });
  auto& closure = job.program.closure;
  walk(walker, closure.memory, [&](auto& file) {
    walker(file.name);
    walk_shared(walker, file.text);
  });
  const auto paths = [&](auto& path) { walk_path(walker, path); };
  walk(walker, closure.disk, [&](auto& file) {
    walker(file.label);
    walker(file.digest.high);
    walker(file.digest.low);
  });
  walk(walker, closure.include_directories, paths);
  walk(walker, closure.byte_order_marks, [&](auto& path) { walker(path); });
  walk(walker, job.program.searched_directories, paths);
  walk(walker, job.program.skipped_toolkits, [&](auto& text) { walker(text); });
}

}  // namespace

std::string encode(const WorkerJob& job) {
  Writer writer;
  writer(own_version());
  walk_job(writer, job);
  writer(std::uint64_t{job.program.spec.builtins == Builtins::minimal});
  writer(std::uint64_t{job.share_header});
  return writer.take();
}

bool is_of_another_kiln(std::string_view message) {
  std::string version;
  Reader reader(message);
  reader(version);
  return version != own_version();
}

std::optional<WorkerJob> decode_job(std::string_view message) {
  WorkerJob job;
  Reader reader(message);
  std::string version;
  reader(version);
  walk_job(reader, job);
  std::uint64_t minimal = 0, share_header = 0;
  reader(minimal);
  reader(share_header);
  job.share_header = share_header != 0;
  job.program.spec.builtins = minimal != 0 ? Builtins::minimal : Builtins::full;
  if (!reader.whole() || job.program.closure.memory.empty()) return std::nullopt;
  return job;
}

std::string encode(const WorkerAnswer& answer) {
  Writer writer;
  writer(std::uint64_t{answer.passing});
  writer(answer.peak_bytes);
  writer(std::uint64_t{answer.header_shared});
  writer(answer.header_trouble);
  writer(static_cast<std::uint64_t>(answer.status.code()));
  if (!answer.status) {
    writer(answer.status.error().message());
    writer(answer.status.error().detail());
  } else {
    writer(to_json(answer.artifact->facts));
    writer({reinterpret_cast<const char*>(answer.artifact->cubin), answer.artifact->cubin_bytes});
  }
  return writer.take();
}

std::optional<WorkerAnswer> decode_answer(std::string_view message) {
  WorkerAnswer answer;
  Reader reader(message);
  std::uint64_t passing = 0, code = 0;
  reader(passing);
  reader(answer.peak_bytes);
  std::uint64_t header_shared = 0;
  reader(header_shared);
  answer.header_shared = header_shared != 0;
  reader(answer.header_trouble);
  reader(code);
  answer.passing = passing != 0;
  std::string first, second;
  reader(first);
  reader(second);
  if (!reader.whole()) return std::nullopt;
  if (code != 0) {
    answer.status = Error(static_cast<ErrorCode>(code), std::move(first), std::move(second));
    return answer;
  }
  auto facts = facts_from_json(first);
  if (!facts) return std::nullopt;
  const auto owner = std::make_shared<std::string>(std::move(second));
  answer.artifact = Artifact{.facts = *std::move(facts),
                             .cubin = reinterpret_cast<const std::byte*>(owner->data()),
                             .cubin_bytes = owner->size(),
                             .owner = owner};
  return answer;
}

std::string framed(std::string_view message) {
  Writer writer;
  writer(message);
  return writer.take();
}

std::uint64_t frame_size(std::string_view head) {
  std::uint64_t size = 0;
  std::memcpy(&size, head.data(), sizeof size);
  return size;
}

}  // namespace kiln
