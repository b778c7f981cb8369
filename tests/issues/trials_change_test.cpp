// Public faults of other kernel caches, tried on ours: T13, what may change under a cache.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "kiln/explain.hpp"
#include "runtime/toolkit_headers.hpp"
#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

using Trial = RuntimeFixture;
using FakeTrial = FakeCompilerFixture;

// T13, T32: a release of NVRTC is in the key by its content, and where it lies is not.
// tests/install/nvrtc_matrix.sh names two real ones.
TEST_F(Trial, T13_AnotherReleaseOfNvrtcMissesAndTheFormerHitsAgainThroughALink) {
  const char* const named = std::getenv("KILN_NVRTC");
  const char* const other_named = std::getenv("KILN_OTHER_NVRTC");
  const std::filesystem::path one = named ? named : installed_nvrtc().found->library.string();
  const std::filesystem::path other = other_named ? other_named : KILN_FAKE_NVRTC;
  const auto with = [&](const std::filesystem::path& nvrtc) {
    auto changed = options();
    changed.nvrtc = nvrtc;
    return changed;
  };
  const std::string text = "extern \"C\" __global__ void entry(int* p) { *p = 1; }\n";
  const auto run = [&](const std::filesystem::path& nvrtc, std::uint64_t compiles) {
    auto runtime = open(with(nvrtc));
    const auto artifact = compile(runtime, text);
    EXPECT_TRUE(artifact) << message_of(artifact);
    EXPECT_EQ(runtime.counters().compiles, compiles) << nvrtc;
    return artifact ? std::pair(artifact->key, cubin_of(*artifact))
                    : std::pair(cache::Digest{}, std::string());
  };
  const auto first = run(one, 1);
  {
    auto runtime = open(with(other));
    ASSERT_TRUE(runtime.add_source("trial.cu", text));
    const auto why =
        runtime.explain(*runtime.add({.name = "trial", .source = "trial.cu"}), "sm_90a");
    ASSERT_TRUE(why && why->nearest) << message_of(why);
    EXPECT_EQ(why->nearest->key, first.first);
    for (const auto& difference : why->nearest->differences)
      EXPECT_TRUE(difference.aspect == "nvrtc" || difference.aspect == "builtins")
          << difference.aspect;
  }
  const auto second = run(other, 1);
  EXPECT_NE(second.first, first.first);
  EXPECT_NE(second.second, first.second);
  EXPECT_EQ(run(one, 0), first);
  EXPECT_EQ(run(other, 0), second);
  const auto folder = std::filesystem::is_directory(one) ? one : one.parent_path();
  std::filesystem::create_directory_symlink(folder, directory_ / "linked");
  EXPECT_EQ(run(directory_ / "linked" / (folder == one ? "" : one.filename()), 0), first);
}

// T13: each change of what the compiler reads, then each undone.
TEST_F(Trial, T13_EveryChangeMissesIsNamedAndHitsAgainOnceItIsUndone) {
  const auto early = directory_ / "early", late = directory_ / "late";
  std::filesystem::create_directories(early);
  std::filesystem::create_directories(late);
  write_file(late / "value.h", "#define VALUE 1\n");
  auto with = options();
  with.include_roots = {early, late};
  std::string define = "-DMORE=10";
  const auto run = [&](std::uint64_t compiles, const std::string& field) {
    auto runtime = open(with);
    const std::string text =
        "#include <value.h>\nextern \"C\" __global__ void entry(int* p) { *p = VALUE + MORE; }\n";
    EXPECT_TRUE(runtime.add_source("trial.cu", text));
    const auto id = runtime.add({.name = "trial", .source = "trial.cu", .options = {define}});
    if (!field.empty()) {
      const auto why = runtime.explain(*id, "sm_90a");
      EXPECT_TRUE(why && why->nearest) << message_of(why);
      std::set<std::string> fields;
      if (why && why->nearest)
        for (const auto& difference : why->nearest->differences) fields.insert(difference.aspect);
      EXPECT_EQ(fields, std::set<std::string>{field});
    }
    const auto artifact = runtime.artifact(*id, "sm_90a");
    EXPECT_TRUE(artifact) << message_of(artifact);
    EXPECT_EQ(runtime.counters().compiles, compiles);
    return artifact ? cubin_of(*artifact) : std::string();
  };
  const auto first = run(1, "");
  std::set<std::string> answers = {first};
  const auto undone = [&] { EXPECT_EQ(run(0, ""), first); };

  // A header that was not there before and is found first now: it shadows the other.
  write_file(early / "value.h", "#define VALUE 2\n");
  answers.insert(run(1, "header"));
  std::filesystem::remove(early / "value.h");
  undone();
  // A root that is named earlier.
  std::filesystem::create_directories(directory_ / "first");
  write_file(directory_ / "first" / "value.h", "#define VALUE 8\n");
  with.include_roots = {directory_ / "first", early, late};
  answers.insert(run(1, "header"));
  with.include_roots = {early, late};
  undone();
  define = "-DMORE=30";
  answers.insert(run(1, "option"));
  define = "-DMORE=10";
  undone();
  write_file(late / "value.h", "#define VALUE 4\n");
  answers.insert(run(1, "header"));
  write_file(late / "value.h", "#define VALUE 1\n");
  undone();
  EXPECT_EQ(answers.size(), 5u) << "an old answer was given";
}

// T13: a header of the toolkit itself, of a copy, edited in place with its size and time restored.
TEST_F(Trial, T13_AChangedHeaderOfTheToolkitMissesIsNamedAndHitsAgainOnceItIsUndone) {
  namespace fs = std::filesystem;
  const auto nvrtc = installed_nvrtc();
  const auto headers = find_toolkit_headers(*nvrtc.found, process_environment());
  if (headers.roots.empty()) GTEST_SKIP() << "no toolkit headers beside NVRTC";
  const fs::path toolkit = directory_ / "toolkit";
  fs::create_directories(toolkit / "lib64");
  const auto library = nvrtc.found->library;
  for (const auto& file : fs::directory_iterator(library.parent_path()))
    if (file.path().filename().string().starts_with("libnvrtc"))
      fs::create_symlink(file.path(), toolkit / "lib64" / file.path().filename());
  fs::create_directories(toolkit / "include");
  for (const auto& file : fs::directory_iterator(headers.roots.front())) {
    const auto copy = toolkit / "include" / file.path().filename();
    if (file.is_directory())
      fs::create_directory_symlink(file.path(), copy);
    else
      fs::copy_file(file.path(), copy);
  }
  auto with = options();
  with.nvrtc = toolkit / "lib64" / library.filename();
  const auto run = [&](std::uint64_t compiles, const std::string& named) {
    auto runtime = open(with);
    EXPECT_TRUE(runtime.add_source(
        "trial.cu",
        "#include <math_constants.h>\nextern \"C\" __global__ void entry(float* p) "
        "{ *p = CUDART_PI_F; }\n"));
    const auto id = runtime.add({.name = "trial", .source = "trial.cu"});
    const auto why = runtime.explain(*id, "sm_90a");
    EXPECT_TRUE(why) << message_of(why);
    EXPECT_EQ(why && why->nearest, !named.empty());
    if (why && why->nearest && !named.empty()) {
      EXPECT_EQ(why->nearest->differences.size(), 1u);
      EXPECT_EQ(why->nearest->differences[0].aspect, "header");
      EXPECT_NE(why->nearest->differences[0].name.find(named), std::string::npos)
          << why->nearest->differences[0].name;
    }
    const auto artifact = runtime.artifact(*id, "sm_90a");
    EXPECT_TRUE(artifact) << message_of(artifact);
    EXPECT_EQ(runtime.counters().compiles, compiles);
    return artifact ? cubin_of(*artifact) : std::string();
  };
  const auto first = run(1, "");
  const auto header = toolkit / "include" / "math_constants.h";
  const auto text = read_file(header);
  const auto time = fs::last_write_time(header);
  auto changed = text;
  const auto at = changed.find("3.141592654F");
  ASSERT_NE(at, std::string::npos) << "pi stands elsewhere now";
  changed[at] = '2';
  write_file(header, changed);
  fs::last_write_time(header, time);
  EXPECT_TRUE(run(1, "math_constants.h") != first) << "an old answer was given";
  write_file(header, text);
  EXPECT_TRUE(run(0, "") == first);
  // A reinstall touches all of them.
  for (const auto& file : fs::directory_iterator(toolkit / "include"))
    if (!file.is_symlink()) fs::last_write_time(file, time - std::chrono::hours(1000));
  EXPECT_TRUE(run(0, "") == first);
}

// T13: what the compiler read in between belongs to no key. The next compile finds nothing changed.
TEST_F(FakeTrial, T13_AHeaderThatChangesAndIsBackBeforeTheCompileEndsIsCompiledAgain) {
  const auto header = directory_ / "include" / "value.h";
  std::filesystem::create_directories(header.parent_path());
  write_file(header, "#define VALUE 1\n");
  auto with = fake_options();
  with.include_roots = {header.parent_path()};
  auto runtime = open(with);
  const auto gate = directory_ / "gate";
  ASSERT_TRUE(runtime.add_source(
      "a.cu", "// a\n// fake: deaf until " + gate.string() + "\n#include <value.h>\n"));
  const auto id = runtime.add({.name = "a", .source = "a.cu"});
  ASSERT_TRUE(id) << message_of(id);
  std::thread editor([&] {
    const HeldCompile held(gate);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (begun("a") == 0 && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    write_file(header, "#define VALUE 2\n");
    write_file(header, "#define VALUE 1\n");
  });
  const auto artifact = runtime.artifact(*id, kArch);
  editor.join();
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_EQ(begun("a"), 2u);
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(runtime.counters().compiles, 1u);
}

// T13: such as one that a tool writes again and again, or a file system whose inodes are new at
// each look.
TEST_F(FakeTrial, T13_AHeaderThatChangesDuringEachCompileIsNamedAndNobodyHangs) {
  const auto header = directory_ / "include" / "value.h";
  std::filesystem::create_directories(header.parent_path());
  write_file(header, "#define VALUE 0\n");
  auto with = fake_options();
  with.include_roots = {header.parent_path()};
  auto runtime = open(with);
  ASSERT_TRUE(runtime.add_source("a.cu", "// a\n// fake: slow 200\n#include <value.h>\n"));
  const auto id = runtime.add({.name = "a", .source = "a.cu"});
  ASSERT_TRUE(id) << message_of(id);
  std::atomic<bool> done{false};
  std::thread editor([&] {
    for (std::size_t seen = 0; !done;) {
      const auto now = begun("a");
      if (now != seen) write_file(header, "#define VALUE " + std::to_string(now) + "\n");
      seen = now;
      // A thread that never sleeps waits longest for a processor, and then comes after the compile.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto report = runtime.warmup({.architectures = {kArch}});
  done = true;
  editor.join();
  ASSERT_TRUE(report) << message_of(report);
  const auto& status = report->kernels[0].status;
  EXPECT_EQ(status.code(), ErrorCode::io_failed);
  EXPECT_NE(status.error().message().find("value.h"), std::string::npos)
      << status.error().message();
  EXPECT_EQ(begun("a"), 8u);
  EXPECT_EQ(entries(), 0u);
  EXPECT_TRUE(runtime.artifact(*id, kArch)) << "nothing of it is remembered";
}

}  // namespace
}  // namespace kiln::test
