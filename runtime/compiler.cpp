#include "runtime/compiler.hpp"

#include <algorithm>
#include <utility>

#include "runtime/architecture.hpp"
#include "runtime/artifact_facts.hpp"
#include "runtime/cubin.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/ptxas_report.hpp"
#include "runtime/version_text.hpp"

namespace kiln {
namespace {

// Owns an nvrtcProgram.
class NvrtcProgram {
 public:
  explicit NvrtcProgram(const NvrtcLibrary& library) : library_(library) {}
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;
  ~NvrtcProgram() {
    if (program_ != nullptr) static_cast<void>(library_.api().destroy_program(&program_));
  }
  nvrtcProgram* out() noexcept { return &program_; }
  nvrtcProgram get() const noexcept { return program_; }

 private:
  const NvrtcLibrary& library_;
  nvrtcProgram program_ = nullptr;
};

// NVRTC's sizes count the terminating zero.
template <class Size, class Get>
std::string text_of(nvrtcProgram program, Size size_of, Get get) {
  std::size_t size = 0;
  if (size_of(program, &size) != NVRTC_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (get(program, text.data()) != NVRTC_SUCCESS) return {};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const auto& part : parts) text.append(text.empty() ? "" : " ").append(part);
  return text;
}

void erase_all(std::string& text, const std::string& part) {
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
}

// The directories that headers came from must not end up in an entry.
std::string without_directories(std::string text, const IncludeClosure& closure) {
  // The longest first: one root may lie in another.
  auto directories = closure.include_directories;
  std::sort(directories.begin(), directories.end(),
            [](const auto& a, const auto& b) { return a.native().size() > b.native().size(); });
  for (const auto& directory : directories) erase_all(text, directory.string() + "/");
  erase_all(text, std::string(kProgramPrefix));
  return text;
}

// Names the header when the failure is a missing one: the usual first stumble of NVRTC users.
std::string missing_header_help(std::string_view log, const Program& program) {
  constexpr std::string_view kMarks[] = {"could not open source file \"",
                                         "cannot open source file \""};
  for (const auto mark : kMarks) {
    const auto at = log.find(mark);
    if (at == std::string_view::npos) continue;
    const auto begin = at + mark.size();
    const auto name = std::string(log.substr(begin, log.find('"', begin) - begin));
    std::string searched;
    for (const auto& directory : program.searched_directories)
      searched.append(searched.empty() ? "" : ", ").append(directory.string());
    auto help =
        "header <" + name + "> was not found among the added sources nor in " +
        (searched.empty() ? std::string("any directory, since no include root is set") : searched);
    for (const auto& skipped : program.skipped_toolkits) help += "; not looked in: " + skipped;
    if (name.find('.') == std::string::npos && name.find('/') == std::string::npos)
      help += "; NVRTC has no C++ standard library: include <cuda/std/" + name +
              "> of the CUDA toolkit instead";
    return help;
  }
  return {};
}

// What NVRTC asks; it gets the CompileWatch.
int ask_to_stop(void* watch, void*) {
  return static_cast<const CompileWatch*>(watch)->should_stop() ? 1 : 0;
}

Error compile_error(const Program& program, std::string_view architecture, const CompileKey& key,
                    const std::vector<std::string>& arguments, std::string log) {
  const auto& spec = program.spec;
  erase_all(log, std::string(kProgramPrefix));  // files go by their include names
  auto head = missing_header_help(log, program);
  if (head.empty() && !program.closure.byte_order_marks.empty())
    head = "header " + program.closure.byte_order_marks.front() +
           " begins with a byte-order mark, which NVRTC cannot compile; remove it";
  if (head.empty()) head = first_fatal_line(log);
  if (head.empty()) head = "NVRTC gave no log";
  auto message =
      "kernel " + spec.name + " does not compile for " + std::string(architecture) + ": " + head;
  if (!spec.name_expression.empty())
    message += " [name expression \"" + spec.name_expression + "\"]";
  message += " [options: " + joined(arguments) + "] [key " + key.name.hex() + "]";
  return Error(ErrorCode::compile_failed, std::move(message), std::move(log));
}

std::string supported_list(const NvrtcLibrary& library) {
  const auto& files = library.files();
  return "NVRTC " + version_text(files.major, files.minor) + " supports " +
         joined(library.supported_architectures());
}

Status check_supported(const NvrtcLibrary& library, const Program& program,
                       std::string_view architecture) {
  const auto supported = library.supported_architectures();
  if (std::find(supported.begin(), supported.end(), architecture) != supported.end()) return {};
  return Error(ErrorCode::unsupported,
               "kernel " + program.spec.name + ": architecture \"" + std::string(architecture) +
                   "\" is not a target of the installed compiler; " + supported_list(library));
}

}  // namespace

Error compile_stopped(const std::string& kernel, std::string_view architecture) {
  return Error(ErrorCode::not_ready, "kernel " + kernel + " for " + std::string(architecture) +
                                         ": its compile was stopped before its end");
}

std::vector<std::string> nvrtc_arguments(const Program& program, std::string_view architecture,
                                         const ToolchainId& toolchain) {
  std::vector<std::string> arguments = {"--gpu-architecture=" + std::string(architecture)};
  arguments.insert(arguments.end(), program.options.arguments.begin(),
                   program.options.arguments.end());
  if (program.spec.builtins == Builtins::minimal) arguments.emplace_back("--minimal");
  // The source of the spill and stack figures; it changes the log, not the code.
  arguments.emplace_back("--ptxas-options=-v");
  // NVRTC's own disk cache would write everything twice, and a hit in it hides the assembler's log.
  if (toolchain.major > 12 || (toolchain.major == 12 && toolchain.minor >= 9))
    arguments.emplace_back("--no-cache");
  for (const auto& directory : program.closure.include_directories)
    arguments.push_back("--include-path=" + directory.string());
  return arguments;
}

Result<const NvrtcLibrary*> Compiler::library() {
  const std::lock_guard lock(mutex_);
  if (library_ == nullptr) {
    if (!search_.found) return no_nvrtc_error(search_);
    // The keys were made from the files as they were then.
    const auto now = examine_nvrtc(search_.found->library);
    if (!now || now->toolchain() != search_.found->toolchain())
      return Error(ErrorCode::no_toolchain,
                   "NVRTC " + search_.found->library.string() +
                       " has been replaced since this Runtime was opened; open another one");
    auto opened = NvrtcLibrary::open(*search_.found);
    if (!opened) return opened.error();
    library_ = std::make_unique<NvrtcLibrary>(*std::move(opened));
    loaded_.store(true, std::memory_order_release);
  }
  return library_.get();
}

Status Compiler::check_target(std::string_view architecture) {
  const auto parsed = parse_architecture(architecture);
  if (parsed) return {};
  auto message = parsed.error().message();
  if (const auto nvrtc = library()) message += "; " + supported_list(**nvrtc);
  return Error(parsed.error().code(), std::move(message));
}

Result<Artifact> Compiler::compile(const Program& program, std::string_view architecture,
                                   const CompileKey& key, const ToolchainId& toolchain,
                                   CompileWatch& watch) {
  if (compiler_lost_in_fork())
    return Error(ErrorCode::no_toolchain,
                 "kernel " + program.spec.name +
                     " is not in the cache and cannot be compiled here: this process was forked "
                     "while another thread was compiling. Fork before, or start a new process");
  const InCompiler inside;
  KILN_TRY(const auto* const nvrtc, library());
  const auto& api = nvrtc->api();
  const auto& spec = program.spec;
  if (auto status = check_version(program.options, toolchain.major, toolchain.minor); !status)
    return Error(status.code(), "kernel " + spec.name + ": " + status.error().message());
  if (auto status = check_supported(*nvrtc, program, architecture); !status) return status.error();

  const auto& files = program.closure.memory;
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (std::size_t i = 1; i < files.size(); ++i) {
    texts.push_back(files[i].text->c_str());
    names.push_back(files[i].name.c_str());
  }
  const auto root_name = std::string(kProgramPrefix) + files.front().name;
  NvrtcProgram handle(*nvrtc);
  if (const auto result =
          api.create_program(handle.out(), files.front().text->c_str(), root_name.c_str(),
                             static_cast<int>(names.size()), texts.data(), names.data());
      result != NVRTC_SUCCESS) {
    watch.passing = true;
    return Error(
        ErrorCode::compile_failed,
        "kernel " + spec.name + ": nvrtcCreateProgram failed: " + api.get_error_string(result));
  }
  if (!spec.name_expression.empty()) {
    if (const auto result = api.add_name_expression(handle.get(), spec.name_expression.c_str());
        result != NVRTC_SUCCESS)
      return Error(ErrorCode::compile_failed,
                   "kernel " + spec.name + ": NVRTC refuses the name expression \"" +
                       spec.name_expression + "\": " + api.get_error_string(result));
  }

  const auto arguments = nvrtc_arguments(program, architecture, toolchain);
  std::vector<const char*> raw;
  for (const auto& argument : arguments) raw.push_back(argument.c_str());
  if (watch.stop && api.set_flow_callback != nullptr)
    api.set_flow_callback(handle.get(), ask_to_stop, &watch);
  const auto result = api.compile_program(handle.get(), static_cast<int>(raw.size()), raw.data());
  auto log = text_of(handle.get(), api.get_program_log_size, api.get_program_log);
  if (result != NVRTC_SUCCESS) {
    // The callback is asked before anything else may be wrong.
    if (watch.should_stop()) {
      watch.passing = true;
      return compile_stopped(spec.name, architecture);
    }
    watch.passing = result != NVRTC_ERROR_COMPILATION && result != NVRTC_ERROR_INVALID_OPTION &&
                    result != NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
    if (log.empty()) log = api.get_error_string(result);
    return compile_error(program, architecture, key, arguments, std::move(log));
  }

  ArtifactFacts facts{.kernel = spec.name,
                      .architecture = std::string(architecture),
                      .symbol = spec.entry,
                      .toolchain = toolchain.to_text()};
  if (!spec.name_expression.empty()) {
    const char* lowered = nullptr;
    if (api.get_lowered_name(handle.get(), spec.name_expression.c_str(), &lowered) !=
            NVRTC_SUCCESS ||
        lowered == nullptr)
      return compile_error(program, architecture, key, arguments,
                           "error: the name expression names no kernel of this program\n" + log);
    facts.symbol = lowered;
  }

  std::size_t size = 0;
  if (api.get_cubin_size(handle.get(), &size) != NVRTC_SUCCESS || size == 0)
    return Error(
        ErrorCode::compile_failed,
        "kernel " + spec.name + ": NVRTC gave no machine code for " + std::string(architecture),
        std::move(log));
  auto cubin = std::make_shared<std::vector<char>>(size);
  if (const auto got = api.get_cubin(handle.get(), cubin->data()); got != NVRTC_SUCCESS)
    return Error(ErrorCode::compile_failed,
                 "kernel " + spec.name + ": nvrtcGetCUBIN failed: " + api.get_error_string(got));

  Artifact artifact{.key = key.name};
  artifact.cubin = reinterpret_cast<const std::byte*>(cubin->data());
  artifact.cubin_bytes = size;
  artifact.owner = cubin;
  const auto info = inspect_cubin({artifact.cubin, artifact.cubin_bytes});
  auto sound = info ? check_architecture(*info, architecture) : Status(info.error());
  if (!sound)
    return Error(ErrorCode::compile_failed,
                 "kernel " + spec.name +
                     ": what NVRTC made is not what was asked for: " + sound.error().message(),
                 std::move(log));
  const auto kernel = std::find_if(info->kernels.begin(), info->kernels.end(),
                                   [&](const auto& k) { return k.symbol == facts.symbol; });
  if (kernel == info->kernels.end()) {
    std::string there;
    for (const auto& k : info->kernels) there.append(there.empty() ? "" : ", ").append(k.symbol);
    return Error(ErrorCode::compile_failed,
                 "kernel " + spec.name + " for " + facts.architecture +
                     ": the program has no kernel with the symbol " + facts.symbol +
                     (there.empty() ? "; it has none at all" : "; it has " + there) +
                     ". Declare it extern \"C\" __global__, or name it by a name expression",
                 read_ptxas_report(log, facts.symbol).rest);
  }

  auto report = read_ptxas_report(log, facts.symbol);
  facts.usage = report.usage;
  facts.log = without_directories(std::move(report.rest), program.closure);
  if (auto status = read_cubin_facts({artifact.cubin, artifact.cubin_bytes}, *info, facts); !status)
    return Error(ErrorCode::compile_failed,
                 "kernel " + spec.name + " for " + facts.architecture +
                     ": what NVRTC made cannot be read: " + status.error().message(),
                 std::move(log));
  artifact.facts = std::move(facts);
  return artifact;
}

}  // namespace kiln
