// Cold compiles through Kiln beside bare NVRTC with the same program and flags, and verified hits
// from disk beside a bare read of the same file; no GPU needed.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "bench/rounds.hpp"
#include "kernel_src/dsv41_kv_insert/key.hpp"
#include "kernel_src/kernels.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/runtime.hpp"
#include "runtime/compile_service.hpp"
#include "runtime/toolkit_headers.hpp"
#include "support/kernels.hpp"
#include "support/temporary_directory.hpp"

namespace {

using namespace kiln;
using bench::fail;
using bench::must;

constexpr const char* kArchitecture = "sm_90a";

// A kernel whose machine code grows with `steps`.
std::string large_source(int steps) {
  return "extern \"C\" __global__ void entry(float* x) {\n"
         "  float a = x[threadIdx.x], b = x[threadIdx.x + 1];\n#pragma unroll\n"
         "  for (int i = 0; i < " +
         std::to_string(steps) +
         "; ++i) { a = a * b + x[i]; b = b * a - x[i + 7]; }\n"
         "  x[threadIdx.x] = a + b;\n}\n";
}

// A kernel with a table of `words` 4-byte words in its cubin: large, and soon compiled.
std::string table_source(int words) {
  std::string text = "__device__ int table[] = {";
  for (int i = 0; i < words; ++i) text += std::to_string(i * 37 % 1000) + ",";
  return text + "};\nextern \"C\" __global__ void entry(int* x) { *x = table[*x]; }\n";
}

struct Setup {
  NvrtcSearch search = find_nvrtc({}, process_environment());
  SourceSet sources{std::filesystem::path()};
  FileMemo memo;
};

// Everything that bare NVRTC needs to do the same work: create, compile, take the cubin.
void bare_compile(const NvrtcApi& api, const Program& program,
                  const std::vector<std::string>& arguments) {
  std::vector<const char*> texts, names, raw;
  for (std::size_t i = 1; i < program.closure.memory.size(); ++i) {
    texts.push_back(program.closure.memory[i].text->c_str());
    names.push_back(program.closure.memory[i].name.c_str());
  }
  for (const auto& argument : arguments) raw.push_back(argument.c_str());
  nvrtcProgram handle = nullptr;
  std::size_t size = 0;
  if (api.create_program(&handle, program.closure.memory.front().text->c_str(), "bare.cu",
                         static_cast<int>(names.size()), texts.data(),
                         names.data()) != NVRTC_SUCCESS ||
      api.compile_program(handle, static_cast<int>(raw.size()), raw.data()) != NVRTC_SUCCESS ||
      api.get_cubin_size(handle, &size) != NVRTC_SUCCESS)
    fail("bare NVRTC failed");
  std::string cubin(size, '\0');
  if (api.get_cubin(handle, cubin.data()) != NVRTC_SUCCESS) fail("bare NVRTC gave no cubin");
  static_cast<void>(api.destroy_program(&handle));
}

void compile_rows(bench::Report& report, Setup& setup, const KernelSpec& spec) {
  auto library = must(NvrtcLibrary::open(*setup.search.found));
  const auto toolchain = setup.search.found->toolchain();
  const auto program =
      std::make_shared<const Program>(must(make_program(spec, setup.sources, {}, setup.memo)));
  const auto arguments = nvrtc_arguments(*program, kArchitecture, toolchain);
  const test::TemporaryDirectory directory;
  auto store = must(cache::Store::open({.directory = directory.path() / "cache"}));
  Compiler compiler(setup.search);
  Counters counters;
  int serial = 0;
  std::vector<bench::Arm> arms = {
      {"bare NVRTC with the same flags", [&] { bare_compile(library.api(), *program, arguments); }},
      {"key, look-up, lock, compile, publish", [&] {
         // Another name gives another key each time, so that every call is cold.
         auto renamed = spec;
         renamed.name += std::to_string(serial++);
         CompileService service({}, &store, compiler, counters);
         CompileRequest request(std::make_shared<const Program>(
                                    must(make_program(renamed, setup.sources, {}, setup.memo))),
                                kArchitecture);
         const auto outcome = service.obtain(request);
         if (outcome.origin != Origin::compiled || !outcome.stored) fail("not a cold compile");
       }}};
  bench::run_rounds(arms, report.rounds(), 1);
  bench::add_pair(report, "cold compile of " + spec.name, arms[0], arms[1]);
}

void hit_rows(bench::Report& report, Setup& setup, const KernelSpec& spec) {
  const auto program =
      std::make_shared<const Program>(must(make_program(spec, setup.sources, {}, setup.memo)));
  const test::TemporaryDirectory directory;
  auto store = must(cache::Store::open({.directory = directory.path() / "cache"}));
  Compiler compiler(setup.search);
  Counters counters;
  CompileRequest first(program, kArchitecture);
  const auto cold = CompileService({}, &store, compiler, counters).obtain(first);
  if (!cold.status) fail(cold.status.error().message());
  const auto hex = cold.key.hex();
  const auto path = directory.path() / "cache/v1/e" / hex.substr(0, 2) / hex.substr(2);
  std::vector<char> buffer(std::filesystem::file_size(path));
  std::vector<bench::Arm> arms = {
      {"open, read, close",
       [&] {
         const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
         if (::read(file, buffer.data(), buffer.size()) != static_cast<ssize_t>(buffer.size()))
           fail("short read");
         ::close(file);
       }},
      {"key, look-up, verify, decode", [&] {
         CompileService service({}, &store, compiler, counters);
         CompileRequest request(program, kArchitecture);
         if (service.obtain(request).origin != Origin::disk) fail("not a hit");
       }}};
  bench::run_rounds(arms, report.rounds(), 20);
  bench::add_pair(report, "verified hit, entry of " + std::to_string(buffer.size()) + " bytes",
                  arms[0], arms[1]);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("compile", argc, argv, 41);
  Setup setup;
  if (!setup.search.found) fail(no_nvrtc_error(setup.search).message());
  for (const auto& source : kernels::embedded_sources())
    must(setup.sources.add(source.name, source.text));
  const auto add = [&](const std::string& name, const std::string& text) {
    must(setup.sources.add(name, text));
    return KernelSpec{.name = name, .source = name, .builtins = Builtins::minimal};
  };
  auto insert = kernels::dsv41_kv_insert::spec_of(
      {.heads = 16, .record = kernels::dsv41_kv_insert::Record::nvfp4, .page_slots = 128});
  for (const auto& spec :
       {add("small.cu", large_source(0)), insert, add("large.cu", large_source(560))})
    compile_rows(report, setup, spec);
  for (const int words : {0, 9000, 49000})
    hit_rows(report, setup, add("table" + std::to_string(words) + ".cu", table_source(words + 1)));
  return report.finish();
}
