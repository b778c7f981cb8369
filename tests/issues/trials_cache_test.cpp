// Public faults of other kernel caches, tried on ours: T2, T10, T13, T16, T19, T20.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kiln/cache/store.hpp"
#include "runtime/compiler.hpp"
#include "runtime/nvrtc_library.hpp"
#include "runtime/nvrtc_run.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

using Trial = RuntimeFixture;

constexpr std::string_view kTemplate = R"(
typedef decltype(sizeof(0)) size_t;
template <class T> __global__ void k(T* p) { *p = static_cast<T>(sizeof(T)); }
)";

// Kiln without any NVRTC: what is in the cache must do.
RuntimeOptions without_nvrtc(RuntimeOptions options, const std::filesystem::path& absent) {
  options.nvrtc = absent;
  return options;
}

// T2: a hit needs no compiler and no demangling, however the template is spelled.
TEST_F(Trial, T2_EverySpellingOfATemplateResolvesFromAHitWithoutNvrtc) {
  const std::array spellings = {"k<unsigned long>", "k<size_t>", "k< unsigned   long >",
                                "&k<unsigned long>"};
  std::set<std::string> symbols;
  {
    auto runtime = open();
    for (const auto* spelling : spellings) {
      const auto artifact = compile(runtime, kTemplate, {.name_expression = spelling});
      ASSERT_TRUE(artifact) << spelling << ": " << message_of(artifact);
      symbols.insert(artifact->facts.symbol);
    }
  }
  EXPECT_EQ(symbols.size(), 1u);
  auto warm = open(without_nvrtc(options(), directory_ / "absent"));
  for (const auto* spelling : spellings) {
    const auto artifact = compile(warm, kTemplate, {.name_expression = spelling});
    ASSERT_TRUE(artifact) << spelling << ": " << message_of(artifact);
    EXPECT_EQ(artifact->facts.symbol, *symbols.begin());
  }
  EXPECT_EQ(warm.counters().disk_hits, spellings.size());
  EXPECT_EQ(warm.counters().compiles, 0u);
}

TEST_F(Trial, T2_AMisspelledNameIsATypedErrorAndStoresNothing) {
  const auto artifact = compile(kTemplate, {.name_expression = "kk<int>"});
  ASSERT_FALSE(artifact);
  EXPECT_EQ(artifact.error().code(), ErrorCode::compile_failed);
  EXPECT_NE(artifact.error().message().find("kk<int>"), std::string::npos);
  EXPECT_EQ(entries(), 0u);
}

// The headers of a kernel are in its key: with them here and the compiler gone, it still hits.
TEST_F(Trial, T2_AKernelWithToolkitHeadersHitsWithoutNvrtc) {
  const std::string text =
      "#include <cuda_fp16.h>\nextern \"C\" __global__ void entry(__half* p) { *p = *p + *p; }\n";
  const auto cold = compile(text);
  if (!cold && cold.error().message().find("cuda_fp16.h") != std::string::npos)
    GTEST_SKIP() << message_of(cold);
  ASSERT_TRUE(cold) << message_of(cold);
  auto without = open(without_nvrtc(options(), directory_ / "absent"));
  const auto warm = compile(without, text);
  ASSERT_TRUE(warm) << message_of(warm);
  EXPECT_EQ(warm->key, cold->key);
}

// T19: no driver is needed to fill a cache, and no architecture is ever guessed.
TEST_F(Trial, T19_ACacheIsFilledAndServesWithoutADriver) {
  for (const std::uint64_t compiles : {2u, 0u}) {
    auto runtime = open();
    ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    ASSERT_TRUE(runtime.add(scale_spec(1)));
    const auto report = runtime.warmup({.architectures = {"sm_90a", "sm_100a"}});
    ASSERT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->failed, 0u);
    EXPECT_EQ(runtime.counters().compiles, compiles);
    EXPECT_EQ(report->nvrtc_loaded, compiles > 0);
  }
}

// T20: the key holds the target and nothing of the machine; a foreign entry is noticed.
TEST_F(Trial, T20_EntriesOfTwoArchitecturesShareACacheAndAreNeverMixed) {
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
  const auto id = runtime.add(scale_spec(1));
  ASSERT_TRUE(id);
  const auto hopper = runtime.artifact(*id, "sm_90a");
  const auto blackwell = runtime.artifact(*id, "sm_100a");
  const auto plain = runtime.artifact(*id, "sm_90");
  ASSERT_TRUE(hopper && blackwell && plain);
  EXPECT_NE(hopper->key, blackwell->key);
  EXPECT_NE(hopper->key, plain->key);

  std::filesystem::remove(entry_path(hopper->key));
  std::filesystem::copy_file(entry_path(blackwell->key), entry_path(hopper->key));
  auto later = open();
  ASSERT_TRUE(later.add_source("scale.cu", kScaleSource));
  const auto again = later.artifact(*later.add(scale_spec(1)), "sm_90a");
  ASSERT_TRUE(again) << message_of(again);
  EXPECT_EQ(cubin_of(*again), cubin_of(*hopper));
  EXPECT_EQ(later.counters().compiles, 1u);
  EXPECT_EQ(warnings_.size(), 1u) << ::testing::PrintToString(warnings_);
}

TEST_F(Trial, T20_AnEntryWhoseCodeIsForAnotherTargetNeverReachesTheDriver) {
  cache::Digest key;
  std::string key_text, facts;
  std::vector<std::byte> foreign;
  {
    auto runtime = open();
    ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    const auto id = runtime.add(scale_spec(1));
    const auto hopper = runtime.artifact(*id, "sm_90a");
    const auto blackwell = runtime.artifact(*id, "sm_100a");
    ASSERT_TRUE(hopper && blackwell);
    key = hopper->key;
    foreign.assign(blackwell->cubin, blackwell->cubin + blackwell->cubin_bytes);
  }
  // A well-formed entry of the right name with the other architecture's code in it.
  auto store = cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store);
  {
    const auto entry = store->read(key);
    ASSERT_TRUE(entry);
    key_text = entry->key_text();
    facts = entry->facts();
  }
  std::filesystem::remove(entry_path(key));
  ASSERT_TRUE(store->publish(key_text, facts, foreign));
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
  const auto artifact = runtime.artifact(*runtime.add(scale_spec(1)), "sm_90a");
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_EQ(runtime.counters().compiles, 1u);
  EXPECT_EQ(artifact->facts.architecture, "sm_90a");
  EXPECT_NE(std::vector(artifact->cubin, artifact->cubin + artifact->cubin_bytes), foreign);
  EXPECT_EQ(warnings_.size(), 1u) << ::testing::PrintToString(warnings_);
  // It is repaired, so the next process hits.
  auto next = open();
  ASSERT_TRUE(next.add_source("scale.cu", kScaleSource));
  ASSERT_TRUE(next.artifact(*next.add(scale_spec(1)), "sm_90a"));
  EXPECT_EQ(next.counters().compiles, 0u);
}

// T10: whatever became of an entry, it is compiled again, with one warning, and repaired.
TEST_F(Trial, T10_EveryDamageIsRepairedByOneCompile) {
  using Bytes = std::string;
  struct {
    const char* name;
    void (*apply)(const std::filesystem::path& entry, Bytes bytes, const Bytes& other);
  } const damages[] = {
      {"cut to nothing", [](auto& p, Bytes, auto&) { write_file(p, ""); }},
      {"cut to a byte", [](auto& p, Bytes b, auto&) { write_file(p, b.substr(0, 1)); }},
      {"cut to half", [](auto& p, Bytes b, auto&) { write_file(p, b.substr(0, b.size() / 2)); }},
      {"cut by a byte", [](auto& p, Bytes b, auto&) { write_file(p, b.substr(0, b.size() - 1)); }},
      {"flipped in front",
       [](auto& p, Bytes b, auto&) {
         b.front() ^= 1;
         write_file(p, b);
       }},
      {"flipped in the middle",
       [](auto& p, Bytes b, auto&) {
         b[b.size() / 2] ^= 1;
         write_file(p, b);
       }},
      {"flipped at the end",
       [](auto& p, Bytes b, auto&) {
         b.back() ^= 1;
         write_file(p, b);
       }},
      {"junk appended", [](auto& p, Bytes b, auto&) { write_file(p, b + "junk"); }},
      {"another entry", [](auto& p, Bytes, auto& other) { write_file(p, other); }},
      {"a directory",
       [](auto& p, Bytes, auto&) {
         std::filesystem::remove(p);
         std::filesystem::create_directories(p / "full");
       }},
      {"a fifo",
       [](auto& p, Bytes, auto&) {
         std::filesystem::remove(p);
         ASSERT_EQ(::mkfifo(p.c_str(), 0666), 0);
       }},
      {"a dangling link",
       [](auto& p, Bytes, auto&) {
         std::filesystem::remove(p);
         std::filesystem::create_symlink("nowhere", p);
       }},
  };
  const int count = static_cast<int>(std::size(damages));
  std::vector<cache::Digest> keys;
  std::vector<std::string> cubins;
  const auto run = [&](std::uint64_t compiles, std::size_t warnings) {
    warnings_.clear();
    auto runtime = open();
    ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    for (int i = 0; i < count; ++i) {
      const auto artifact = runtime.artifact(*runtime.add(scale_spec(i)), "sm_90a");
      ASSERT_TRUE(artifact) << damages[i].name << ": " << message_of(artifact);
      if (static_cast<int>(keys.size()) < count) {
        keys.push_back(artifact->key);
        cubins.push_back(cubin_of(*artifact));
      }
      EXPECT_EQ(cubin_of(*artifact), cubins[static_cast<std::size_t>(i)]) << damages[i].name;
    }
    EXPECT_EQ(runtime.counters().compiles, compiles);
    EXPECT_EQ(warnings_.size(), warnings) << ::testing::PrintToString(warnings_);
  };
  run(static_cast<std::uint64_t>(count), 0);
  const auto other = read_file(entry_path(keys.back()));
  for (std::size_t i = 0; i < keys.size(); ++i)
    damages[i].apply(entry_path(keys[i]), read_file(entry_path(keys[i])), other);
  run(static_cast<std::uint64_t>(count), static_cast<std::size_t>(count));
  run(0, 0);
}

// A header that vanishes while its program compiles ends in an error, not in another try for ever.
TEST_F(Trial, T13_AHeaderThatVanishesDuringTheCompileIsAnError) {
  const auto root = directory_ / "include";
  std::filesystem::create_directories(root);
  write_file(root / "gone.h", "#define GONE 1\n");
  auto with = options();
  with.include_roots = {root};
  auto runtime = open(with);
  ASSERT_TRUE(runtime.add_source(
      "trial.cu",
      "#include \"gone.h\"\nextern \"C\" __global__ void entry(float* x) {\n"
      "  float a = x[0];\n#pragma unroll\n"
      "  for (int i = 0; i < 400; ++i) a = a * x[i] + x[i + 7];\n  *x = a;\n}\n"));
  const auto id = runtime.add({.name = "trial", .source = "trial.cu"});
  ASSERT_TRUE(id) << message_of(id);
  std::atomic<bool> done{false};
  std::thread remover([&] {
    // The lock file appears right before the compile begins.
    while (!std::filesystem::exists(cache_ / "v1" / "lock") && !done) std::this_thread::yield();
    std::filesystem::remove(root / "gone.h");
  });
  const auto artifact = runtime.artifact(*id, "sm_90a");
  done = true;
  remover.join();
  EXPECT_FALSE(artifact);
  EXPECT_EQ(entries(), 0u);
}

// A child forked in the middle of a compile makes its own, or is told promptly that it cannot.
TEST_F(Trial, T16_AChildForkedDuringACompileNeverHangs) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "the sanitizers' allocator does not survive a fork beside another thread";
#endif
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source(
      "trial.cu",
      "extern \"C\" __global__ void entry(float* x) {\n  float a = x[0];\n"
      "#pragma unroll\n  for (int i = 0; i < 400; ++i) a = a * x[i] + x[i + 7];\n"
      "  *x = a;\n}\n"));
  const auto id = runtime.add({.name = "trial", .source = "trial.cu"});
  ASSERT_TRUE(id);
  std::thread compiler([&] { EXPECT_TRUE(runtime.artifact(*id, "sm_90a")); });
  while (!std::filesystem::exists(cache_ / "v1" / "lock")) std::this_thread::yield();
  const pid_t child = start_child([&] {
    ::alarm(10);
    const auto artifact = runtime.artifact(*id, "sm_90a");
    return artifact || artifact.error().code() == ErrorCode::no_toolchain ? 0 : 1;
  });
  compiler.join();
  EXPECT_EQ(wait_for(child), 0);
}

// Somebody else's thread, of whom Kiln knows nothing, may be inside NVRTC as well.
TEST_F(Trial, T16_AChildForkedDuringSomebodyElsesCompileNeverHangs) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "the sanitizers' allocator does not survive a fork beside another thread";
#endif
  auto runtime = open();
  ASSERT_TRUE(compile(runtime, "extern \"C\" __global__ void entry() {}\n"));
  ASSERT_TRUE(runtime.add_source("other.cu", "extern \"C\" __global__ void entry(int*) {}\n"));
  const auto id = runtime.add({.name = "other", .source = "other.cu"});
  ASSERT_TRUE(id);
  const auto nvrtc = NvrtcLibrary::open(*installed_nvrtc().found);
  ASSERT_TRUE(nvrtc);
  std::atomic<bool> begun{false};
  std::thread somebody([&] {
    std::string text = "__global__ void a(float* x) {\n";
    for (int i = 0; i < 600; ++i) text += "  x[" + std::to_string(i) + "] *= 2;\n";
    const ProgramFile root{"a.cu", std::make_shared<const std::string>(text + "}\n")};
    NvrtcRun run(*nvrtc);
    static_cast<void>(run.create(root, {}));
    begun = true;
    static_cast<void>(run.compile({"--gpu-architecture=sm_90a"}, {}));
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const int code = in_child([&] {
    ::alarm(10);
    const auto artifact = runtime.artifact(*id, "sm_90a");
    return artifact || artifact.error().code() == ErrorCode::no_toolchain ? 0 : 1;
  });
  somebody.join();
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(runtime.artifact(*id, "sm_90a"));
}

}  // namespace
}  // namespace kiln::test
