#include "runtime/nvrtc_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include "runtime/architecture.hpp"
#include "runtime/elf.hpp"
#include "runtime/version_text.hpp"

namespace kiln {
namespace {

Error cannot_load(const NvrtcFiles& files, std::string why) {
  // A worker is told which files, and not how they were found.
  const auto found =
      files.how_found.empty() ? std::string() : " (found through " + files.how_found + ")";
  return Error(ErrorCode::no_toolchain,
               "cannot load NVRTC from " + files.library.string() + found + ": " + std::move(why));
}

std::string loader_error() {
  const char* const text = ::dlerror();
  std::string why = text != nullptr ? text : "the loader gives no reason";
  // All that the loader says of a noexec mount, as of memory that it does not get.
  if (why.find("failed to map segment") != std::string::npos)
    why +=
        "; take it off a file system that is mounted noexec, or raise the limit on memory "
        "(ulimit -v)";
  return why;
}

// The build-id of the file behind a loaded library; empty when it cannot be told.
std::string build_id_of(void* library) {
  link_map* map = nullptr;
  if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  const auto object = read_shared_object(std::filesystem::path(map->l_name));
  return object ? object->build_id : std::string();
}

// Fills the table; the names of required functions that are not there end up in `missing`.
class Binder {
 public:
  explicit Binder(void* library) : library_(library) {}
  template <class Function>
  void optional(Function& slot, const char* name) {
    slot = reinterpret_cast<Function>(::dlsym(library_, name));
  }
  template <class Function>
  void required(Function& slot, const char* name) {
    optional(slot, name);
    if (slot == nullptr) missing_.append(missing_.empty() ? "" : ", ").append(name);
  }
  const std::string& missing() const noexcept { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string bind_all(void* library, NvrtcApi& api) {
  Binder binder(library);
  binder.required(api.version, "nvrtcVersion");
  binder.required(api.get_error_string, "nvrtcGetErrorString");
  binder.required(api.get_num_supported_archs, "nvrtcGetNumSupportedArchs");
  binder.required(api.get_supported_archs, "nvrtcGetSupportedArchs");
  binder.required(api.create_program, "nvrtcCreateProgram");
  binder.required(api.destroy_program, "nvrtcDestroyProgram");
  binder.required(api.add_name_expression, "nvrtcAddNameExpression");
  binder.required(api.compile_program, "nvrtcCompileProgram");
  binder.required(api.get_lowered_name, "nvrtcGetLoweredName");
  binder.required(api.get_program_log_size, "nvrtcGetProgramLogSize");
  binder.required(api.get_program_log, "nvrtcGetProgramLog");
  binder.required(api.get_cubin_size, "nvrtcGetCUBINSize");
  binder.required(api.get_cubin, "nvrtcGetCUBIN");
  binder.optional(api.set_flow_callback, "nvrtcSetFlowCallback");
  binder.optional(api.get_pch_heap_size, "nvrtcGetPCHHeapSize");
  binder.optional(api.set_pch_heap_size, "nvrtcSetPCHHeapSize");
  return binder.missing();
}

}  // namespace

Result<NvrtcLibrary> NvrtcLibrary::open(const NvrtcFiles& files) {
  // NVRTC asks for its builtins by bare name; once loaded, that name stands for these, whatever the
  // loader's path holds.
  void* const builtins = ::dlopen(files.builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (builtins == nullptr)
    return cannot_load(files, "its builtins " + files.builtins.string() + ": " + loader_error());
  void* const library = ::dlopen(files.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return cannot_load(files, loader_error());

  NvrtcApi api;
  if (const auto missing = bind_all(library, api); !missing.empty())
    return cannot_load(files, "it lacks " + missing);
  int major = 0;
  int minor = 0;
  if (const auto result = api.version(&major, &minor); result != NVRTC_SUCCESS)
    return cannot_load(files, std::string("nvrtcVersion gives ") + api.get_error_string(result));
  if (major != files.major || minor != files.minor)
    return cannot_load(files, "it says that it is " + version_text(major, minor) +
                                  ", but the builtins beside it are those of " +
                                  version_text(files.major, files.minor) +
                                  "; install one whole NVRTC");
  // Where this process already held builtins of that name, those of PyTorch's NVRTC for example, it
  // is with them that NVRTC compiles; what it made would stand under the name of ours.
  const auto bare = "libnvrtc-builtins.so." + version_text(files.major, files.minor);
  void* const used = ::dlopen(bare.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (used != builtins && build_id_of(used) != files.builtins_build_id)
    return cannot_load(files, "this process already holds another " + bare +
                                  "; name the NVRTC that it belongs to");
  return NvrtcLibrary(api, files);
}

std::vector<std::string> NvrtcLibrary::supported_architectures() const {
  int count = 0;
  if (api_.get_num_supported_archs(&count) != NVRTC_SUCCESS || count <= 0) return {};
  std::vector<int> numbers(static_cast<std::size_t>(count));
  if (api_.get_supported_archs(numbers.data()) != NVRTC_SUCCESS) return {};
  return with_suffixes(numbers, files_.major, files_.minor);
}

}  // namespace kiln
