#include "runtime/compiler.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/architecture.hpp"
#include "runtime/artifact_facts.hpp"
#include "runtime/compile_log.hpp"
#include "runtime/cubin.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/fork_probe.hpp"
#include "runtime/message_text.hpp"
#include "runtime/process_guard.hpp"
#include "runtime/ptxas_report.hpp"
#include "runtime/version_text.hpp"

namespace kiln {
namespace {

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

Error compile_error(const Program& program, std::string_view architecture, const CompileKey& key,
                    const std::vector<std::string>& arguments, std::string log) {
  const auto& spec = program.spec;
  erase_all(log, std::string(kProgramPrefix));  // files go by their include names
  auto head = missing_header_help(log, program);
  if (head.empty() && !program.closure.byte_order_marks.empty())
    head = "header " + program.closure.byte_order_marks.front() +
           " begins with a byte-order mark, which NVRTC cannot compile; remove it";
  if (head.empty()) {
    head = first_fatal_line(log);
    head += cure_of(head, architecture);
  }
  if (head.empty()) head = "NVRTC gave no log";
  auto message =
      "kernel " + spec.name + " does not compile for " + std::string(architecture) + ": " + head;
  if (!spec.name_expression.empty())
    message += " [name expression \"" + spec.name_expression + "\"]";
  message += " [options: " + joined(arguments, " ") + "] [key " + key.name.hex() + "]";
  return Error(ErrorCode::compile_failed, std::move(message), std::move(log));
}

Error replaced_error(const NvrtcFiles& files) {
  return Error(ErrorCode::no_toolchain,
               "NVRTC " + files.library.string() +
                   " has been replaced since this Runtime was opened; open another one");
}

std::string supported_list(const NvrtcLibrary& library) {
  const auto& files = library.files();
  return "NVRTC " + version_text(files.major, files.minor) + " supports " +
         joined(library.supported_architectures(), " ");
}

Status check_supported(const NvrtcLibrary& library, const Program& program,
                       std::string_view architecture) {
  const auto supported = library.supported_architectures();
  if (std::find(supported.begin(), supported.end(), architecture) != supported.end()) return {};
  return Error(ErrorCode::unsupported,
               "kernel " + program.spec.name + ": architecture \"" + std::string(architecture) +
                   "\" is not supported by the installed compiler; " + supported_list(library));
}

// NVRTC's own choice of templates to instantiate would put symbols into another order than a
// compile without the header does.
void add_header_options(std::vector<std::string>& arguments) {
  arguments.emplace_back("--instantiate-templates-in-pch=false");
  arguments.emplace_back("--pch-messages=false");
}

// NVRTC's 256 MiB are too few for <cuda/std/...> of CUDA 13.5. It takes addresses, and memory only
// for as long as a header is made or used.
constexpr std::size_t kHeaderHeapBytes = std::size_t{512} << 20;

// Before the process's first header: a heap in use must not be replaced.
void enlarge_header_heap(const NvrtcApi& api) {
  static ForkMutex mutex;
  const std::lock_guard lock(mutex);
  std::size_t bytes = 0;
  if (api.get_pch_heap_size == nullptr || api.set_pch_heap_size == nullptr) return;
  if (api.get_pch_heap_size(&bytes) == NVRTC_SUCCESS && bytes < kHeaderHeapBytes)
    static_cast<void>(api.set_pch_heap_size(kHeaderHeapBytes));
}

// The program up to its "#pragma nv_hdrstop", as a header in the file `path`.
Status make_header(const NvrtcLibrary& nvrtc, const Program& program,
                   std::vector<std::string> arguments, const CompileWatch& watch,
                   const std::string& path) {
  const ProgramFile root{"shared_header.cu",
                         std::make_shared<const std::string>(shared_prefix(program))};
  enlarge_header_heap(nvrtc.api());
  NvrtcRun run(nvrtc);
  add_header_options(arguments);
  arguments.push_back("--create-pch=" + path);
  if (const auto result = run.create(root, shared_header_files(program)); result != NVRTC_SUCCESS)
    return Error(ErrorCode::compile_failed, nvrtc.api().get_error_string(result));
  const auto result = run.compile(arguments, watch);
  if (result != NVRTC_SUCCESS)
    return Error(ErrorCode::compile_failed, std::string(nvrtc.api().get_error_string(result)) +
                                                ": " + first_fatal_line(run.log()));
  // What is said of these headers belongs in the log of each kernel, which would not have it.
  if (const auto rest = read_ptxas_report(run.log(), {}).rest; !rest.empty())
    return Error(ErrorCode::compile_failed, "they compile with warnings: " + rest);
  return {};
}

Status read_cubin(const NvrtcApi& api, const NvrtcRun& run, const std::string& kernel,
                  const std::string& architecture, const std::string& log, Artifact& artifact) {
  std::size_t size = 0;
  if (api.get_cubin_size(run.handle(), &size) != NVRTC_SUCCESS || size == 0)
    return Error(ErrorCode::compile_failed,
                 "kernel " + kernel + ": NVRTC gave no machine code for " + architecture, log);
  auto cubin = std::make_shared<std::vector<char>>(size);
  if (const auto got = api.get_cubin(run.handle(), cubin->data()); got != NVRTC_SUCCESS)
    return Error(ErrorCode::compile_failed,
                 "kernel " + kernel + ": nvrtcGetCUBIN failed: " + api.get_error_string(got));
  artifact.cubin = reinterpret_cast<const std::byte*>(cubin->data());
  artifact.cubin_bytes = size;
  artifact.owner = std::move(cubin);
  return {};
}

Error no_such_symbol(const ArtifactFacts& wanted, const CubinInfo& info, std::string_view log) {
  std::string there;
  for (const auto& k : info.kernels) there.append(there.empty() ? "" : ", ").append(k.symbol);
  return Error(ErrorCode::compile_failed,
               "kernel " + wanted.kernel + " for " + wanted.architecture +
                   ": the program has no kernel with the symbol " + wanted.symbol +
                   (there.empty() ? "; it has none at all" : "; it has " + there) +
                   ". Declare it extern \"C\" __global__, or name it by a name expression",
               read_ptxas_report(log, wanted.symbol).rest);
}

// What a run that ended well has made. `facts` are those that were known before.
Result<Artifact> read_artifact(const NvrtcApi& api, const NvrtcRun& run, const Program& program,
                               const CompileKey& key, ArtifactFacts facts) {
  const auto& log = run.log();
  Artifact artifact{.key = key.name};
  if (auto status = read_cubin(api, run, facts.kernel, facts.architecture, log, artifact); !status)
    return status.error();
  const auto info = inspect_cubin({artifact.cubin, artifact.cubin_bytes});
  auto sound = info ? check_architecture(*info, facts.architecture) : Status(info.error());
  if (!sound)
    return Error(ErrorCode::compile_failed,
                 "kernel " + facts.kernel +
                     ": what NVRTC made is not what was asked for: " + sound.error().message(),
                 log);
  const auto kernel = std::find_if(info->kernels.begin(), info->kernels.end(),
                                   [&](const auto& k) { return k.symbol == facts.symbol; });
  if (kernel == info->kernels.end()) return no_such_symbol(facts, *info, log);

  auto report = read_ptxas_report(log, facts.symbol);
  facts.usage = report.usage;
  facts.log = without_directories(std::move(report.rest), program.closure);
  if (auto status = read_cubin_facts(*info, facts); !status)
    return Error(ErrorCode::compile_failed,
                 "kernel " + facts.kernel + " for " + facts.architecture +
                     ": what NVRTC made cannot be read: " + status.error().message(),
                 log);
  artifact.facts = std::move(facts);
  return artifact;
}

// NVRTC's own disk cache would write everything twice, and a hit in it hides the assembler's log.
void refuse_own_cache(std::vector<std::string>& arguments, int major, int minor) {
  if (std::pair(major, minor) >= std::pair(12, 9)) arguments.emplace_back("--no-cache");
}

// The first compile in a process has NVRTC's signal handlers in place to its end. One of nothing
// takes milliseconds for that, most of which the next is spared, and the others leave the handlers
// alone. It ends in PTX: with it NVRTC has made all that exit() takes away again.
void compile_nothing(const NvrtcLibrary& nvrtc) {
  const SignalActions before;
  NvrtcRun run(nvrtc);
  const ProgramFile nothing{"nothing.cu",
                            std::make_shared<const std::string>("__global__ void nothing() {}\n")};
  std::vector<std::string> arguments = {"--minimal"};
  refuse_own_cache(arguments, nvrtc.files().major, nvrtc.files().minor);
  if (run.create(nothing, {}) == NVRTC_SUCCESS) static_cast<void>(run.compile(arguments, {}));
  before.put_back();
}

// Once in each forked child.
Status check_after_fork(const NvrtcLibrary& nvrtc) {
  static std::atomic<unsigned> answered{0};
  const auto generation = fork_generation();
  if (answered.load() == generation) return {};
  if (!answers_after_fork(nvrtc, compile_nothing)) {
    lose_compiler();
    return Error(ErrorCode::no_toolchain,
                 "NVRTC cannot be used here: this process was forked while a thread, of whichever "
                 "library, was inside it. Fork before, or start a new process");
  }
  answered.store(generation);
  return {};
}

}  // namespace

Error compile_stopped(const std::string& kernel, std::string_view architecture) {
  return Error(ErrorCode::not_ready,
               "kernel " + kernel + " for " + std::string(architecture) +
                   ": its compile was stopped before its end; ask for it again");
}

std::vector<std::string> nvrtc_arguments(const Program& program, std::string_view architecture,
                                         const ToolchainId& toolchain) {
  std::vector<std::string> arguments = {"--gpu-architecture=" + std::string(architecture)};
  arguments.insert(arguments.end(), program.options.arguments.begin(),
                   program.options.arguments.end());
  if (program.spec.builtins == Builtins::minimal) arguments.emplace_back("--minimal");
  // The source of the spill and stack figures; it changes the log, not the code.
  arguments.emplace_back("--ptxas-options=-v");
  refuse_own_cache(arguments, toolchain.major, toolchain.minor);
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
      return replaced_error(*search_.found);
    const InCompiler inside;
    // Never destroyed: exit() may come while a thread is here.
    static constinit ForkMutex first_use;
    static auto& used = *new std::set<std::string>;
    const std::lock_guard one_at_a_time(first_use);
    auto name = search_.found->library.string() + '\n' + now->toolchain().to_text();
    const bool is_first = !used.contains(name);
    if (is_first) end_compiles_at_exit();
    auto opened = NvrtcLibrary::open(*search_.found);
    if (is_first) end_compiles_at_exit();
    if (!opened) return opened.error();
    if (auto status = check_after_fork(*opened); !status) return status.error();
    library_ = std::make_unique<NvrtcLibrary>(*std::move(opened));
    if (is_first) {
      compile_nothing(*library_);
      end_compiles_at_exit();
      used.insert(std::move(name));
    }
    loaded_.store(true, std::memory_order_release);
  }
  if (auto status = check_after_fork(*library_); !status) return status.error();
  return library_.get();
}

Status Compiler::check_target(std::string_view architecture) {
  const auto parsed = parse_architecture(architecture);
  if (parsed) return {};
  auto message = parsed.error().message();
  if (const auto nvrtc = library()) message += "; " + supported_list(**nvrtc);
  return Error(parsed.error().code(), std::move(message));
}

Result<std::unique_ptr<NvrtcRun>> Compiler::run_alone(const NvrtcLibrary& nvrtc,
                                                      const Program& program,
                                                      const std::vector<std::string>& arguments,
                                                      CompileWatch& watch) {
  const auto& spec = program.spec;
  const auto& files = program.closure.memory;
  auto run = std::make_unique<NvrtcRun>(nvrtc);
  if (const auto result = run->create(files.front(), std::span(files).subspan(1));
      result != NVRTC_SUCCESS) {
    watch.passing = true;
    return Error(ErrorCode::compile_failed,
                 "kernel " + spec.name +
                     ": nvrtcCreateProgram failed: " + nvrtc.api().get_error_string(result));
  }
  if (!spec.name_expression.empty())
    if (const auto result = run->add_name_expression(spec.name_expression); result != NVRTC_SUCCESS)
      return Error(ErrorCode::compile_failed,
                   "kernel " + spec.name + ": NVRTC refuses the name expression \"" +
                       spec.name_expression + "\": " + nvrtc.api().get_error_string(result) +
                       "; name a __global__ function, such as scale<float>");
  run->compile(arguments, watch);
  return run;
}

std::unique_ptr<NvrtcRun> Compiler::run_with_header(const NvrtcLibrary& nvrtc,
                                                    const Program& program,
                                                    std::vector<std::string> arguments,
                                                    const ToolchainId& toolchain,
                                                    CompileWatch& watch) {
  const auto name = shared_header_of(program, arguments, toolchain);
  if (!name) return nullptr;
  const auto header = headers_.get(
      *name,
      [&](const std::string& path) { return make_header(nvrtc, program, arguments, watch, path); },
      watch.stop, watch.header_trouble);
  if (header == nullptr) return nullptr;
  add_header_options(arguments);
  arguments.push_back("--use-pch=" + header->path());
  auto run = run_alone(nvrtc, program, arguments, watch);
  if (run && (*run)->log().find(header->path()) != std::string::npos) {
    headers_.give_up(*name);
    watch.header_trouble = first_fatal_line((*run)->log());
    return nullptr;
  }
  // An error of the program's own is told as it is without the header.
  if (!run || (*run)->result() != NVRTC_SUCCESS) return nullptr;
  watch.header_shared = true;
  return *std::move(run);
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
  if (process_is_ending()) {
    watch.passing = true;
    return compile_stopped(program.spec.name, architecture);
  }
  KILN_TRY(const auto* const nvrtc, library());
  // A worker may have been started after the key was made.
  if (nvrtc->files().toolchain() != toolchain) return replaced_error(nvrtc->files());
  const auto& api = nvrtc->api();
  const auto& spec = program.spec;
  if (auto status = check_version(program.options, toolchain.major, toolchain.minor); !status)
    return Error(status.code(), "kernel " + spec.name + ": " + status.error().message());
  if (auto status = check_supported(*nvrtc, program, architecture); !status) return status.error();

  const auto arguments = nvrtc_arguments(program, architecture, toolchain);
  std::unique_ptr<NvrtcRun> run;
  if (watch.share_header) run = run_with_header(*nvrtc, program, arguments, toolchain, watch);
  if (run == nullptr && !watch.should_stop()) {
    KILN_TRY(run, run_alone(*nvrtc, program, arguments, watch));
  }
  auto log = run != nullptr ? run->log() : std::string();
  if (run == nullptr || run->result() != NVRTC_SUCCESS) {
    // The callback is asked before anything else may be wrong.
    if (run == nullptr || watch.should_stop()) {
      watch.passing = true;
      return compile_stopped(spec.name, architecture);
    }
    const auto result = run->result();
    const bool of_the_program = result == NVRTC_ERROR_COMPILATION ||
                                result == NVRTC_ERROR_INVALID_OPTION ||
                                result == NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
    watch.passing =
        !of_the_program || ran_out_of_memory(log) || !lost_header(log, program.closure).empty();
    if (log.empty()) log = api.get_error_string(result);
    return compile_error(program, architecture, key, arguments, std::move(log));
  }

  ArtifactFacts facts{.kernel = spec.name,
                      .architecture = std::string(architecture),
                      .symbol = spec.entry,
                      .toolchain = toolchain.to_text()};
  if (!spec.name_expression.empty()) {
    const char* lowered = nullptr;
    if (api.get_lowered_name(run->handle(), spec.name_expression.c_str(), &lowered) !=
            NVRTC_SUCCESS ||
        lowered == nullptr)
      return compile_error(program, architecture, key, arguments,
                           "error: the name expression names no kernel of this program\n" + log);
    facts.symbol = lowered;
  }
  return read_artifact(api, *run, program, key, std::move(facts));
}

}  // namespace kiln
