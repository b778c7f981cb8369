#include "runtime/shared_header.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "runtime/fork_generation.hpp"
#include "runtime/source_set.hpp"
#include "runtime/trimmed.hpp"

namespace kiln {
namespace {

// Between asking whether to stop.
constexpr std::chrono::milliseconds kTick{20};
// As much as the heap that NVRTC is given for a header.
constexpr std::uint64_t kRoomMebibytes = 512;

// The words of a directive, however its spaces are set; empty for a line that is none.
std::vector<std::string_view> directive(std::string_view line) {
  if (!line.starts_with('#')) return {};
  std::vector<std::string_view> words;
  for (line = trimmed(line.substr(1)); !line.empty();) {
    const auto end = std::min(line.find_first_of(" \t<"), line.size());
    words.push_back(line.substr(0, std::max<std::size_t>(end, 1)));
    line = trimmed(line.substr(words.back().size()));
    if (line.starts_with('<')) {
      words.push_back(line);
      break;
    }
  }
  return words;
}

// Of the toolkit, and of nothing that comes before it.
bool is_toolkit_header(const IncludeClosure& closure, std::string_view name) {
  for (const auto& file : closure.memory)
    if (file.name == name) return false;
  bool found = false;
  for (const auto& file : closure.disk) {
    // "toolkit/0/cuda_fp16.h": what follows the second slash is the name.
    const std::string_view label = file.label;
    const auto slash = label.find('/', label.find('/') + 1);
    if (slash == std::string_view::npos || label.substr(slash + 1) != name) continue;
    if (!label.starts_with("toolkit/")) return false;
    found = true;
  }
  return found;
}

bool may_stand_before(const IncludeClosure& closure, const std::vector<std::string_view>& words) {
  if (words.size() == 2 && words[0] == "include") {
    const auto name = words[1];
    return name.starts_with('<') && name.ends_with('>') &&
           is_toolkit_header(closure, name.substr(1, name.size() - 2));
  }
  if (words.size() == 2 && words[0] == "pragma") return words[1] == "once";
  return words.size() >= 2 && words[0] == "define";
}

Error no_file(const char* what) {
  return Error(ErrorCode::io_failed, std::string(what) + ": " + std::strerror(errno));
}

// NVRTC maps a file of its own into its heap and writes another; where there is no room for a page
// of them, the process ends by SIGBUS, and beyond the limit on files by SIGXFSZ.
Status has_room(const std::filesystem::path& directory) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur >> 20 < kRoomMebibytes)
    return Error(ErrorCode::io_failed, "a file may have " + std::to_string(limit.rlim_cur >> 20) +
                                           " MiB, and NVRTC may take " +
                                           std::to_string(kRoomMebibytes) +
                                           "; raise the limit (ulimit -f)");
  struct ::statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0) return no_file(directory.c_str());
  const auto mebibytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize >> 20;
  if (mebibytes >= kRoomMebibytes) return {};
  return Error(ErrorCode::io_failed,
               "the file system of " + directory.string() + " has " + std::to_string(mebibytes) +
                   " MiB free, and NVRTC may take " + std::to_string(kRoomMebibytes) +
                   "; make room there, or name another directory by TMPDIR");
}

// Made in a directory of our own, and open, but for its name, when it comes back.
Result<std::shared_ptr<const SharedHeader>> make_file(const SharedHeaders::Make& make) {
  std::error_code failure;
  const auto parent = std::filesystem::temp_directory_path(failure);
  if (failure) return Error(ErrorCode::io_failed, "the directory for temporary files is missing");
  if (auto status = has_room(parent); !status) return status.error();
  auto directory = (parent / (unfinished_header_prefix(::getpid()) + "XXXXXX")).string();
  if (::mkdtemp(directory.data()) == nullptr) return no_file(directory.c_str());
  const auto path = directory + "/header";
  const auto status = make(path);
  const int file = status ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1;
  const auto missing = no_file("NVRTC made no file");
  ::unlink(path.c_str());
  ::rmdir(directory.c_str());
  if (!status) return status.error();
  if (file < 0) return missing;
  return std::shared_ptr<const SharedHeader>(std::make_shared<SharedHeader>(file));
}

}  // namespace

std::string unfinished_header_prefix(pid_t process) {
  // Containers and hosts that share the directory number their processes alike.
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::error_code ignored;
  const auto place =
      std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string() + host.data();
  return "kiln-header-" + cache::digest_of(place).hex().substr(0, 8) + "-" +
         std::to_string(process) + "-";
}

std::string_view shared_prefix(const Program& program) {
  const std::string_view text = *program.closure.memory.front().text;
  bool includes = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    auto line = trimmed(text.substr(at, end - at));
    at = end + 1;
    // What would need a lexer is left alone: comments of several lines and beside a directive,
    // spliced lines, literals.
    if (line.ends_with('\\') || line.find("/*") != std::string_view::npos) return {};
    if (line.empty() || line.starts_with("//")) continue;
    if (line.find("//") != std::string_view::npos || line.find('"') != std::string_view::npos)
      return {};
    const auto words = directive(line);
    if (words == std::vector<std::string_view>{"pragma", "nv_hdrstop"})
      return includes ? text.substr(0, std::min(at, text.size())) : std::string_view();
    if (!may_stand_before(program.closure, words)) return {};
    includes = includes || words[0] == "include";
  }
  return {};
}

bool forbids_shared_header(std::string_view option) {
  // Lines of the sources get into the code, and a header knows them by its own.
  return option.starts_with("--device-debug") || option.starts_with("--generate-line-info");
}

std::vector<ProgramFile> shared_header_files(const Program& program) {
  std::vector<ProgramFile> files;
  const auto& memory = program.closure.memory;
  for (std::size_t i = 1; i < memory.size(); ++i)
    if (memory[i].name != kKeyHeaderName) files.push_back(memory[i]);
  return files;
}

std::optional<cache::Digest> shared_header_of(const Program& program,
                                              const std::vector<std::string>& arguments,
                                              const ToolchainId& toolchain) {
  if (!program.closure.cacheable || program.closure.disk.empty() ||
      std::any_of(arguments.begin(), arguments.end(), forbids_shared_header))
    return std::nullopt;
  const auto prefix = shared_prefix(program);
  if (prefix.empty()) return std::nullopt;
  std::string text;
  const auto add = [&](std::string_view part) {
    text.append(std::to_string(part.size())).append(" ").append(part).append("\n");
  };
  add(toolchain.to_text());
  add(prefix);
  for (const auto& argument : arguments) add(argument);
  for (const auto& file : shared_header_files(program)) {
    add(file.name);
    add(cache::digest_of(*file.text).hex());
  }
  for (const auto& file : program.closure.disk) {
    add(file.label);
    add(file.digest.hex());
  }
  return cache::digest_of(text);
}

void remove_unfinished_headers(pid_t process) {
  std::error_code ignored;
  const auto parent = std::filesystem::temp_directory_path(ignored);
  std::vector<std::filesystem::path> found;
  const auto prefix = unfinished_header_prefix(process);
  for (std::filesystem::directory_iterator at(parent, ignored), end; at != end && !ignored;
       at.increment(ignored))
    if (at->path().filename().native().starts_with(prefix)) found.push_back(at->path());
  for (const auto& directory : found) std::filesystem::remove_all(directory, ignored);
}

SharedHeader::~SharedHeader() {
  ::close(file_);
}

std::string SharedHeader::path() const {
  return "/proc/self/fd/" + std::to_string(file_);
}

std::shared_ptr<const SharedHeader> SharedHeaders::get(const cache::Digest& name, const Make& make,
                                                       const std::function<bool()>& stop,
                                                       std::string& trouble) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto [at, is_new] = slots_.try_emplace(name);
    auto& slot = at->second;
    // What a parent made, or was making, is not this process's.
    if (is_new || slot.generation != fork_generation()) {
      slot = {.making = true, .generation = fork_generation()};
      break;
    }
    if (!slot.making) return slot.header;
    if (stop && stop()) return nullptr;
    made_.wait_for(lock, kTick);
  }
  lock.unlock();
  auto made = make_file(make);
  lock.lock();
  // clear() may have come in between.
  auto& slot = slots_[name];
  slot = {.generation = fork_generation(), .header = made ? *made : nullptr};
  made_.notify_all();
  if (!made) trouble = made.error().message();
  return slot.header;
}

void SharedHeaders::give_up(const cache::Digest& name) {
  const std::lock_guard lock(mutex_);
  if (const auto slot = slots_.find(name); slot != slots_.end()) slot->second.header = nullptr;
}

void SharedHeaders::clear() {
  const std::lock_guard lock(mutex_);
  for (auto slot = slots_.begin(); slot != slots_.end();)
    slot = slot->second.making ? std::next(slot) : slots_.erase(slot);
}

}  // namespace kiln
