#include "runtime/nvrtc_run.hpp"

#include "runtime/compile_environment.hpp"
#include "runtime/compiler.hpp"
#include "runtime/deep_stack.hpp"
#include "runtime/process_guard.hpp"

namespace kiln {
namespace {

// What NVRTC asks; it gets the CompileWatch.
int ask_to_stop(void* watch, void*) {
  return static_cast<const CompileWatch*>(watch)->should_stop() ? 1 : 0;
}

}  // namespace

NvrtcRun::~NvrtcRun() {
  if (program_ != nullptr) static_cast<void>(library_.api().destroy_program(&program_));
}

nvrtcResult NvrtcRun::create(const ProgramFile& root, std::span<const ProgramFile> headers) {
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const auto& header : headers) {
    texts.push_back(header.text->c_str());
    names.push_back(header.name.c_str());
  }
  const auto name = std::string(kProgramPrefix) + root.name;
  return library_.api().create_program(&program_, root.text->c_str(), name.c_str(),
                                       static_cast<int>(names.size()), texts.data(), names.data());
}

nvrtcResult NvrtcRun::add_name_expression(const std::string& expression) {
  return library_.api().add_name_expression(program_, expression.c_str());
}

nvrtcResult NvrtcRun::compile(const std::vector<std::string>& arguments,
                              const CompileWatch& watch) {
  const auto& api = library_.api();
  std::vector<const char*> raw;
  raw.reserve(arguments.size());
  for (const auto& argument : arguments) raw.push_back(argument.c_str());
  if (api.set_flow_callback != nullptr)
    api.set_flow_callback(program_, ask_to_stop, const_cast<CompileWatch*>(&watch));
  {
    const StackLimit limit;
    on_deep_stack([&] {
      const CompileEnvironment environment;
      result_ = api.compile_program(program_, static_cast<int>(raw.size()), raw.data());
    });
  }
  // NVRTC's sizes count the terminating zero.
  std::size_t size = 0;
  if (api.get_program_log_size(program_, &size) == NVRTC_SUCCESS && size != 0) {
    log_.assign(size, '\0');
    if (api.get_program_log(program_, log_.data()) != NVRTC_SUCCESS) log_.clear();
    while (!log_.empty() && log_.back() == '\0') log_.pop_back();
  }
  return result_;
}

}  // namespace kiln
