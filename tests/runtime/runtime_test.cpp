// The whole road up to loading, with the real compiler and no device.
#include "kiln/runtime.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "kiln/cache/store.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

constexpr std::string_view kArchitecture = "sm_90a";

// Every Runtime here knows the source of scale_spec().
class RuntimeTest : public RuntimeFixture {
 protected:
  Runtime open() { return open(options()); }
  static Runtime open(RuntimeOptions options) {
    auto runtime = RuntimeFixture::open(std::move(options));
    EXPECT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    return runtime;
  }

  // Registers `text` as a root file of its own and compiles it.
  static Result<Artifact> compile(Runtime& runtime, const std::string& text, KernelSpec spec = {}) {
    static std::atomic<int> serial{0};
    if (spec.source.empty()) spec.source = "source" + std::to_string(serial++) + ".cu";
    if (spec.name.empty()) spec.name = "kernel";
    if (auto status = runtime.add_source(spec.source, text); !status) return status.error();
    KILN_TRY(const auto id, runtime.add(spec));
    return runtime.artifact(id, kArchitecture);
  }
};

TEST_F(RuntimeTest, RegisteringCompilesNothingAndWritesNothing) {
  auto runtime = open();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(runtime.add(scale_spec(i)));
  EXPECT_EQ(runtime.counters(), RuntimeCounters{});
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

TEST_F(RuntimeTest, AnEqualSpecGivesTheSameIdAndAnotherKeyAnother) {
  auto runtime = open();
  const auto first = runtime.add(scale_spec(1));
  const auto again = runtime.add(scale_spec(1));
  const auto other = runtime.add(scale_spec(2));
  ASSERT_TRUE(first && again && other);
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
}

TEST_F(RuntimeTest, WarmupSaysWhereEachKernelCameFrom) {
  const WarmupOptions two{.architectures = {"sm_90a", "sm_100a", "sm_90a"}};
  auto cold = open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cold.add(scale_spec(i)));
  const auto first = cold.warmup(two);
  ASSERT_TRUE(first) << message_of(first);
  EXPECT_EQ(first->requested, 6u);
  EXPECT_EQ(first->compiled, 6u);
  EXPECT_EQ(first->hits + first->waited + first->failed + first->not_stored, 0u);
  EXPECT_TRUE(first->nvrtc_loaded);
  const auto again = cold.warmup(two);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->hits, 6u);
  for (const auto& kernel : again->kernels) EXPECT_EQ(kernel.origin, Origin::memory);

  auto warm = open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(warm.add(scale_spec(i)));
  const auto second = warm.warmup(two);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->hits, 6u);
  EXPECT_FALSE(second->nvrtc_loaded);
  EXPECT_EQ(second->toolchain, first->toolchain);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(second->kernels[i].origin, Origin::disk);
    EXPECT_EQ(second->kernels[i].key, first->kernels[i].key);
    EXPECT_EQ(second->kernels[i].cubin_bytes, first->kernels[i].cubin_bytes);
    EXPECT_GT(second->kernels[i].cubin_bytes, 0u);
  }
}

TEST_F(RuntimeTest, ProgressOnlyGrowsAndEndsWithEverything) {
  auto runtime = open();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(runtime.add(scale_spec(i)));
  std::vector<std::size_t> done;
  ASSERT_TRUE(runtime.warmup(
      {.architectures = {"sm_90a"}, .jobs = 4, .progress = [&](const Progress& progress) {
         EXPECT_EQ(progress.requested, 6u);
         // What begins to compile is told of as well.
         if (progress.latest == nullptr && !done.empty()) {
           EXPECT_EQ(progress.done, done.back());
           return;
         }
         done.push_back(progress.done);
       }}));
  EXPECT_EQ(done, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(RuntimeTest, AFailureStopsNoOtherAndKeepsItsLogForLaterCallers) {
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source("broken.cu", "extern \"C\" __global__ void entry() { no_such; }"));
  const auto broken = runtime.add(plain_spec("broken.cu"));
  ASSERT_TRUE(broken && runtime.add(scale_spec(1)));
  const auto report = runtime.warmup({.architectures = {"sm_90a"}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->failed, 1u);
  EXPECT_EQ(report->compiled, 1u);
  const auto& error = report->kernels[0].status.error();
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  for (const auto* part : {"plain", "sm_90a", "no_such", "--gpu-architecture=sm_90a"})
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  EXPECT_NE(error.message().find(report->kernels[0].key.hex()), std::string::npos);
  EXPECT_NE(error.detail().find("no_such"), std::string_view::npos);
  const auto later = runtime.artifact(*broken, "sm_90a");
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().detail(), error.detail());
  EXPECT_EQ(runtime.counters().failed_compiles, 1u);
}

TEST_F(RuntimeTest, UnknownNamesAreRefusedWhenRegistering) {
  auto runtime = open();
  EXPECT_NE(message_of(runtime.add(plain_spec("absent.cu"))).find("absent.cu"), std::string::npos);
  ASSERT_TRUE(runtime.add_source("user.cu", "#include \"no/such.cuh\"\n"));
  const auto missing = runtime.add(plain_spec("user.cu"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(missing.error().message().find("no/such.cuh"), std::string::npos);
  auto spec = scale_spec(0);
  spec.options = {"-arch=sm_80"};
  EXPECT_EQ(runtime.add(spec).error().code(), ErrorCode::invalid_argument);
  spec.options = {"-I/usr/include"};
  EXPECT_EQ(runtime.add(spec).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(runtime.counters(), RuntimeCounters{});
}

TEST_F(RuntimeTest, TargetsThatGiveNoCodeAreOneTypedErrorWithTheCure) {
  auto runtime = open();
  const auto id = runtime.add(scale_spec(1));
  ASSERT_TRUE(id);
  for (const auto* architecture : {"sm_", "90", "sm_90x", ""})
    EXPECT_EQ(runtime.artifact(*id, architecture).error().code(), ErrorCode::invalid_argument)
        << architecture;
  for (const auto* architecture : {"compute_90", "sm_80a", "sm_999"}) {
    const auto artifact = runtime.artifact(*id, architecture);
    ASSERT_FALSE(artifact) << architecture;
    EXPECT_EQ(artifact.error().code(), ErrorCode::unsupported) << architecture;
    EXPECT_NE(artifact.error().message().find("sm_90a"), std::string::npos)
        << artifact.error().message();
  }
}

TEST_F(RuntimeTest, AnotherToolchainThanTheInstalledOneIsNamedWithTheCure) {
  auto given = options();
  given.toolchain = "12.1";
  const auto error_of = [&](const RuntimeOptions& wanted) {
    auto runtime = open(wanted);
    const auto artifact = runtime.artifact(*runtime.add(scale_spec(1)), "sm_90a");
    EXPECT_FALSE(artifact);
    EXPECT_EQ(artifact.error().code(), ErrorCode::no_toolchain);
    return artifact.error().message();
  };
  const auto unknown = error_of(given);
  ASSERT_TRUE(cache::Store::open({.directory = cache_})
                  ->add_record("toolchain", "nvrtc 12.1 12 builtins 34"));
  for (const auto& message : {unknown, error_of(given)}) {
    EXPECT_NE(message.find("RuntimeOptions::toolchain"), std::string::npos) << message;
    EXPECT_NE(message.find("12.1"), std::string::npos) << message;
    EXPECT_EQ(message.find("not found"), std::string::npos) << message;
  }
}

TEST_F(RuntimeTest, TheEntryMustBeThere) {
  auto runtime = open();
  const auto artifact =
      compile(runtime, "extern \"C\" __global__ void other() {}", {.name = "kernel"});
  ASSERT_FALSE(artifact);
  EXPECT_EQ(artifact.error().code(), ErrorCode::compile_failed);
  EXPECT_NE(artifact.error().message().find("it has other"), std::string::npos);
  EXPECT_EQ(runtime.counters().compiles, 0u);
}

TEST_F(RuntimeTest, FactsTellWhatTheCodeUses) {
  auto runtime = open();
  const auto waits = compile(runtime,
                             "extern \"C\" __global__ void entry(int* p) {\n"
                             "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
                             "  __shared__ int s[100]; s[threadIdx.x] = *p; __syncthreads();\n"
                             "  *p = s[99 - threadIdx.x]; }");
  ASSERT_TRUE(waits) << message_of(waits);
  EXPECT_TRUE(waits->facts.waits_on_grid);
  EXPECT_FALSE(waits->facts.triggers_dependents);
  EXPECT_EQ(waits->facts.parameters, (std::vector<KernelParameter>{{0, 8}}));
  EXPECT_EQ(waits->facts.parameter_bytes, 8u);
  EXPECT_EQ(waits->facts.usage.static_shared_bytes, 400u);
  EXPECT_GT(waits->facts.usage.registers, 0u);
  EXPECT_EQ(waits->facts.usage.spill_store_bytes, 0u);
  EXPECT_EQ(waits->facts.symbol, "entry");
  const auto plain = compile(runtime, "extern \"C\" __global__ void entry() {}");
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->facts.waits_on_grid);
  // A local array that is indexed at run time lives on the stack.
  const auto local =
      compile(runtime,
              "extern \"C\" __global__ void entry(int* p) { int a[512];\n"
              "for (int i = 0; i < 512; ++i) a[i] = p[i] * i; p[0] = a[p[1] & 511]; }");
  ASSERT_TRUE(local);
  EXPECT_GE(local->facts.usage.local_bytes, 2048u);
}

// What decides about a launch comes from the machine code, also where the entry says other things
// or, made before they were known, nothing.
TEST_F(RuntimeTest, AHitTakesTheFactsOfTheCubin) {
  const std::string text =
      "extern \"C\" __global__ void __launch_bounds__(96) entry(int* p, char c) {\n"
      "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
      "  asm volatile(\"griddepcontrol.launch_dependents;\"); *p = c; }";
  const KernelSpec spec{.name = "kernel", .source = "facts.cu"};
  Artifact made;
  {
    auto runtime = open();
    const auto artifact = compile(runtime, text, spec);
    ASSERT_TRUE(artifact) << message_of(artifact);
    made = *artifact;
  }
  auto store = cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store);
  const auto entry = store->read(made.key);
  ASSERT_TRUE(entry);
  const auto stored = nlohmann::json::parse(entry->facts());
  auto older = stored;
  for (const auto* name : {"parameters", "parameter_bytes", "max_threads", "block_threads",
                           "cluster_blocks", "max_cluster_blocks", "triggers_dependents"})
    EXPECT_EQ(older.erase(name), 1u) << name;
  auto other = stored;
  other["waits_on_grid"] = false;
  other["parameters"] = {{0, 4}};
  for (const auto& facts : {older, other}) {
    ASSERT_TRUE(std::filesystem::remove(entry_path(made.key)));
    ASSERT_TRUE(store->publish(entry->key_text(), facts.dump(), entry->payload()).ok());
    auto runtime = open();
    const auto hit = compile(runtime, text, spec);
    ASSERT_TRUE(hit) << message_of(hit);
    EXPECT_EQ(runtime.counters().compiles, 0u);
    EXPECT_EQ(hit->facts.parameters, (std::vector<KernelParameter>{{0, 8}, {8, 1}}));
    EXPECT_EQ(hit->facts.parameter_bytes, 9u);
    EXPECT_EQ(hit->facts.bounds.max_threads, 96u);
    EXPECT_TRUE(hit->facts.waits_on_grid);
    EXPECT_TRUE(hit->facts.triggers_dependents);
  }
  // An entry whose cubin does not hold the kernel is made again.
  auto wrong = stored;
  wrong["symbol"] = "nobody";
  ASSERT_TRUE(std::filesystem::remove(entry_path(made.key)));
  ASSERT_TRUE(store->publish(entry->key_text(), wrong.dump(), entry->payload()).ok());
  auto runtime = open();
  const auto again = compile(runtime, text, spec);
  ASSERT_TRUE(again) << message_of(again);
  EXPECT_EQ(runtime.counters().compiles, 1u);
  EXPECT_EQ(warnings_with("no kernel nobody"), 1u);
}

TEST_F(RuntimeTest, ADamagedEntryIsRebuiltWithOneWarning) {
  Artifact good;
  {
    auto runtime = open();
    const auto artifact = runtime.artifact(*runtime.add(scale_spec(1)), kArchitecture);
    ASSERT_TRUE(artifact);
    good = *artifact;
  }
  const auto path = entry_path(good.key);
  const auto size = std::filesystem::file_size(path);
  for (const auto at : {std::uintmax_t{0}, size / 2, size - 1}) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    file.close();
    warnings_.clear();
    auto runtime = open();
    const auto again = runtime.artifact(*runtime.add(scale_spec(1)), kArchitecture);
    ASSERT_TRUE(again) << message_of(again);
    EXPECT_TRUE(std::equal(again->cubin, again->cubin + again->cubin_bytes, good.cubin,
                           good.cubin + good.cubin_bytes));
    EXPECT_EQ(runtime.counters().compiles, 1u);
    EXPECT_EQ(warnings_.size(), 1u) << ::testing::PrintToString(warnings_);
    auto after = open();
    ASSERT_TRUE(after.artifact(*after.add(scale_spec(1)), kArchitecture));
    EXPECT_EQ(after.counters().compiles, 0u);
  }
}

TEST_F(RuntimeTest, AFilledCacheServesWithoutACompilerAndSaysWhoseItIs) {
  std::string toolchain;
  {
    auto runtime = open();
    ASSERT_TRUE(runtime.add(scale_spec(1)));
    toolchain = runtime.warmup({.architectures = {"sm_90a"}})->toolchain;
  }
  auto without = options();
  without.nvrtc = directory_.path() / "absent";
  auto runtime = open(without);
  ASSERT_TRUE(runtime.add(scale_spec(1)));
  const auto warm = runtime.warmup({.architectures = {"sm_90a"}});
  ASSERT_TRUE(warm);
  EXPECT_EQ(warm->hits, 1u);
  EXPECT_EQ(warm->toolchain, toolchain);
  EXPECT_FALSE(warm->nvrtc_loaded);
  ASSERT_TRUE(runtime.add(scale_spec(2)));
  const auto cold = runtime.warmup({.architectures = {"sm_90a"}});
  ASSERT_TRUE(cold);
  EXPECT_EQ(cold->failed, 1u);
  EXPECT_EQ(cold->kernels[1].status.code(), ErrorCode::no_toolchain);
  EXPECT_NE(cold->kernels[1].status.error().message().find("absent"), std::string::npos);
}

TEST_F(RuntimeTest, ACacheWithoutItsRecordsServesWithoutACompilerToo) {
  {
    auto runtime = open();
    ASSERT_TRUE(runtime.add(scale_spec(1)));
    ASSERT_TRUE(runtime.warmup({.architectures = {"sm_90a"}}));
  }
  ASSERT_GT(std::filesystem::remove_all(cache_ / "v1" / "r"), 0u);
  auto without = options();
  without.nvrtc = directory_.path() / "absent";
  auto runtime = open(without);
  ASSERT_TRUE(runtime.add(scale_spec(1)));
  const auto warm = runtime.warmup({.architectures = {"sm_90a"}});
  ASSERT_TRUE(warm);
  EXPECT_EQ(warm->hits, 1u);
  // A prewarm with the compiler puts the record back.
  auto repair = open();
  ASSERT_TRUE(repair.add(scale_spec(1)));
  ASSERT_TRUE(repair.warmup({.architectures = {"sm_90a"}}));
  EXPECT_TRUE(std::filesystem::exists(cache_ / "v1" / "r" / "toolchain"));
}

TEST_F(RuntimeTest, AHeldLockIsWaitedForUpToTheLimitAndNoLonger) {
  auto store = cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store);
  cache::Digest key;
  {
    auto runtime = open();
    const auto id = runtime.add(scale_spec(1));
    const auto known = runtime.look_up(*id, kArchitecture);
    ASSERT_TRUE(known);
    EXPECT_FALSE(known->found);
    key = known->key;
  }
  const auto held = store->try_lock(key);
  ASSERT_EQ(held.outcome, cache::LockOutcome::held);
  auto impatient = options();
  impatient.longest_wait = std::chrono::milliseconds(300);
  auto runtime = open(impatient);
  const auto id = runtime.add(scale_spec(1));
  const auto start = std::chrono::steady_clock::now();
  const auto artifact = runtime.artifact(*id, kArchitecture);
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300));
  EXPECT_EQ(warnings_with("longer than the wait limit of 0.3 s"), 1u);
  // Nothing else tells of a holder that is stopped: before the limit, and not at each look.
  EXPECT_EQ(warnings_with("(cache " + cache_.string() + "); waiting for that up to the limit"), 1u);
}

TEST_F(RuntimeTest, AWarmupDoesOtherKernelsWhileOneIsBusyElsewhere) {
  auto store = cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store);
  auto runtime = open();
  const auto id = runtime.add(scale_spec(0));
  auto held = store->try_lock(runtime.look_up(*id, kArchitecture)->key);
  ASSERT_EQ(held.outcome, cache::LockOutcome::held);
  for (int i = 1; i < 5; ++i) ASSERT_TRUE(runtime.add(scale_spec(i)));
  std::vector<std::string> order;
  const auto report = runtime.warmup(
      {.architectures = {"sm_90a"}, .jobs = 1, .progress = [&](const Progress& progress) {
         if (progress.latest == nullptr) return;
         order.push_back(progress.latest->key.hex());
         if (progress.done == 4) held.lock.release();
       }});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->compiled, 5u);
  EXPECT_EQ(order.back(), report->kernels[0].key.hex());
}

TEST_F(RuntimeTest, AnOverrideDirectoryReplacesSourcesWithoutRebuilding) {
  const auto tree = directory_.path() / "tree";
  std::filesystem::create_directories(tree);
  auto before = open();
  const auto embedded = before.artifact(*before.add(scale_spec(1)), kArchitecture);
  ASSERT_TRUE(embedded);
  std::ofstream(tree / "scale.cu") << "extern \"C\" __global__ void entry(float* x) { *x = 1; }\n";
  auto with = options();
  with.source_directory = tree;
  auto runtime = open(with);
  const auto edited = runtime.artifact(*runtime.add(scale_spec(1)), kArchitecture);
  ASSERT_TRUE(edited) << message_of(edited);
  EXPECT_NE(edited->key, embedded->key);
}

TEST_F(RuntimeTest, WhatCannotBeKnownIsRefusedOrCompiledWithoutStoring) {
  auto runtime = open();
  const std::string dated = "extern \"C\" __global__ void entry(char* p) { *p = __TIME__[0]; }";
  EXPECT_EQ(compile(runtime, dated).error().code(), ErrorCode::not_cacheable);
  const auto artifact = compile(
      runtime, dated, {.name = "dated", .unknown_inputs = UnknownInputs::compile_without_storing});
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_EQ(warnings_with("not stored"), 1u);
  EXPECT_FALSE(std::filesystem::exists(entry_path(artifact->key)));
}

TEST_F(RuntimeTest, WithoutADirectoryEverythingWorksAndNothingIsKept) {
  auto memory_only = options();
  memory_only.cache_directory.clear();
  auto runtime = open(memory_only);
  ASSERT_TRUE(runtime.add(scale_spec(1)));
  const auto report = runtime.warmup({.architectures = {"sm_90a"}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->compiled, 1u);
  EXPECT_EQ(report->not_stored, 1u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(RuntimeTest, AnUnwritableStoreWarnsOnceAndCompilesAll) {
  std::ofstream(directory_.path() / "file") << "in the way";
  auto blocked = options();
  blocked.cache_directory = directory_.path() / "file" / "cache";
  auto runtime = open(blocked);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(runtime.add(scale_spec(i)));
  const auto report = runtime.warmup({.architectures = {"sm_90a"}});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->compiled, 3u);
  EXPECT_EQ(report->not_stored, 3u);
  EXPECT_EQ(warnings_.size(), 1u) << ::testing::PrintToString(warnings_);
  EXPECT_EQ(warnings_with("KILN_CACHE_DIR"), 1u);
  EXPECT_EQ(runtime.counters().failed_stores, 3u);
}

TEST_F(RuntimeTest, ManyThreadsGetOneCompile) {
  auto runtime = open();
  const auto id = runtime.add(scale_spec(1));
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&] { good += runtime.artifact(*id, kArchitecture).has_value(); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 16);
  EXPECT_EQ(runtime.counters().compiles, 1u);
}

TEST_F(RuntimeTest, WarmupWithoutAnArchitectureOrADeviceIsNeverAGuess) {
  auto runtime = open();
  if (!runtime.devices().empty()) GTEST_SKIP() << "this machine has a device";
  ASSERT_TRUE(runtime.add(scale_spec(1)));
  const auto report = runtime.warmup();
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::no_device);
}

}  // namespace
}  // namespace kiln::test
