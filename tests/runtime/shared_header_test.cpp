// Precompiled headers: that they change the time and nothing else.
#include "runtime/shared_header.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <cstdlib>

#include "runtime/compiler.hpp"
#include "runtime/file_memo.hpp"
#include "runtime/toolkit_headers.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

// Inline variables and instances of templates, whose order in the code a header could change.
constexpr std::string_view kHeader = R"(
#pragma once
namespace heavy {
template <class T, int n> struct Table { static constexpr T values[] = {n, n + 1, n + 2}; };
template <class T, int n> constexpr T Table<T, n>::values[];
inline __device__ const float kScale[] = {1.0f, 2.0f, 4.0f};
template <int n> __device__ int sum(int at) { return Table<int, n>::values[at] + sum<n - 1>(at); }
template <> __device__ inline int sum<0>(int at) { return at; }
inline __device__ int of_header(int at) { return sum<3>(at); }
}
)";
constexpr std::string_view kPrefix = "#include <heavy.h>\n#pragma nv_hdrstop\n";
constexpr std::string_view kBody = R"(#include "jit/key.cuh"
template <int n> __global__ void scaled(int* x) { x[0] = heavy::sum<n>(x[1]) * key::factor; }
extern "C" __global__ void entry(int* x) {
  x[threadIdx.x] = heavy::of_header(x[0]) * key::factor + heavy::sum<5>(x[1]);
}
)";

class SharedHeaderTest : public RuntimeFixture {
 protected:
  void SetUp() override {
    RuntimeFixture::SetUp();
    if (IsSkipped()) return;
    std::filesystem::create_directory(toolkit_);
    std::filesystem::create_directory(temporary_);
    write_file(toolkit_ / "heavy.h", kHeader);
    ::setenv("TMPDIR", temporary_.c_str(), 1);
  }
  void TearDown() override { ::unsetenv("TMPDIR"); }

  Program program(std::string_view text, int factor, KernelSpec spec = {}) {
    SourceSet sources{std::filesystem::path()};
    EXPECT_TRUE(sources.add("own.cuh", "#define OWN 1\n"));
    EXPECT_TRUE(sources.add("root.cu", text));
    spec.name = "shared";
    spec.source = "root.cu";
    spec.key = {{"factor", "i32", std::to_string(factor)}};
    auto made = make_program(spec, sources, roots_, memo_);
    EXPECT_TRUE(made) << message_of(made);
    return *std::move(made);
  }
  Result<Artifact> compile(const Program& program, CompileWatch& watch) {
    const auto toolchain = search_.found->toolchain();
    return compiler_.compile(program, "sm_90a", key_of(program, "sm_90a", toolchain), toolchain,
                             watch);
  }
  /// With the header; the code without it is the same.
  std::string cubin_with_header(const Program& program) {
    CompileWatch alone, shared{.share_header = true};
    const auto without = compile(program, alone);
    const auto with = compile(program, shared);
    EXPECT_TRUE(with && without) << message_of(with) << message_of(without);
    EXPECT_FALSE(alone.header_shared);
    EXPECT_TRUE(shared.header_shared) << shared.header_trouble;
    EXPECT_EQ(shared.header_trouble, "");
    if (!with || !without) return {};
    EXPECT_TRUE(cubin_of(*with) == cubin_of(*without)) << "the header changes the code";
    EXPECT_EQ(with->facts.log, without->facts.log);
    EXPECT_EQ(with->facts.symbol, without->facts.symbol);
    return cubin_of(*with);
  }
  std::optional<cache::Digest> header_of(const Program& program) {
    const auto toolchain = search_.found->toolchain();
    return shared_header_of(program, nvrtc_arguments(program, "sm_90a", toolchain), toolchain);
  }
  static std::string text(std::string_view prefix = kPrefix) {
    return std::string(prefix) + std::string(kBody);
  }

  std::filesystem::path toolkit_ = directory_ / "toolkit";
  std::filesystem::path temporary_ = directory_ / "temporary";
  std::vector<IncludeRoot> roots_ = {{toolkit_, /*toolkit=*/true}};
  FileMemo memo_;
  NvrtcSearch search_ = find_nvrtc({}, process_environment());
  Compiler compiler_{search_};
};

TEST_F(SharedHeaderTest, ThreeKeysThroughOneHeaderGiveTheirOwnCode) {
  std::set<std::string> cubins;
  for (const int factor : {3, 5, 7}) {
    const auto made = program(text(), factor);
    EXPECT_EQ(header_of(made), header_of(program(text(), 3)));
    cubins.insert(cubin_with_header(made));
  }
  EXPECT_EQ(cubins.size(), 3u);
  const auto expression = program(text(), 3, {.name_expression = "scaled<4>"});
  EXPECT_EQ(header_of(expression), header_of(program(text(), 3)));
  cubins.insert(cubin_with_header(expression));
  EXPECT_EQ(cubins.size(), 4u);
  EXPECT_TRUE(std::filesystem::is_empty(temporary_)) << "a header has a name while it is used";
}

// NVRTC by its own choice instantiates templates ahead, which puts the symbols of this one into
// another order.
TEST_F(SharedHeaderTest, TheToolkitsLibraryGivesTheSameCode) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "NVRTC takes its seconds for this, and is the same in every build";
#endif
  const auto headers = find_toolkit_headers(*search_.found, process_environment());
  roots_.clear();
  bool there = false;
  for (const auto& root : headers.roots) {
    roots_.push_back({root, /*toolkit=*/true});
    there = there || std::filesystem::exists(root / "cuda" / "std" / "tuple");
  }
  if (!there) GTEST_SKIP() << "no <cuda/std/tuple> beside this NVRTC";
  EXPECT_NE(cubin_with_header(program(R"(#include <cuda/std/atomic>
#include <cuda/std/tuple>
#pragma nv_hdrstop
#include "jit/key.cuh"
extern "C" __global__ void entry(float* x) {
  const cuda::std::tuple<int, float> pair{key::factor, 2.0f};
  *x *= cuda::std::get<0>(pair) + cuda::std::get<1>(pair);
}
)",
                                      3)),
            "");
}

TEST_F(SharedHeaderTest, AnEditedHeaderGivesANewOne) {
  const auto first = program(text(), 3);
  const auto before = cubin_with_header(first);
  std::string edited(kHeader);
  edited.replace(edited.find("n + 2"), 5, "n + 4");
  write_file(toolkit_ / "heavy.h", edited);
  const auto second = program(text(), 3);
  EXPECT_NE(header_of(second), header_of(first));
  EXPECT_NE(cubin_with_header(second), before);
  write_file(toolkit_ / "heavy.h", kHeader);
  EXPECT_EQ(header_of(program(text(), 3)), header_of(first));
  compiler_.forget_headers();
  EXPECT_EQ(cubin_with_header(program(text(), 3)), before);
}

TEST_F(SharedHeaderTest, WhatElseGoesIntoItChangesItsName) {
  const auto name = header_of(program(text(), 3));
  ASSERT_TRUE(name);
  EXPECT_NE(header_of(program("#define A 1\n" + text(), 3)), name);
  EXPECT_NE(header_of(program(text(), 3, {.options = {"-DA=1"}})), name);
  EXPECT_NE(header_of(program(text(), 3, {.builtins = Builtins::minimal})), name);
  EXPECT_NE(header_of(program(text() + "#include \"own.cuh\"\n", 3)), name);
  // Lines of the sources are in the code then.
  EXPECT_FALSE(header_of(program(text(), 3, {.options = {"-lineinfo"}})));
}

TEST_F(SharedHeaderTest, OnlyToolkitIncludesMayStandBeforeIt) {
  std::filesystem::create_directory(directory_ / "own");
  write_file(directory_ / "own" / "mine.h", "#pragma once\n");
  roots_.insert(roots_.begin(), {directory_ / "own", /*toolkit=*/false});
  const struct {
    std::string_view prefix;
    bool shared;
  } cases[] = {
      {"// a comment\n\n#pragma once\n#define N 1\n # include  <heavy.h> \n#pragma  nv_hdrstop\n",
       true},
      {"#include<heavy.h>\r\n#pragma nv_hdrstop\r\n", true},
      {"#include <heavy.h>\n", false},
      {"#pragma nv_hdrstop\n#include <heavy.h>\n", false},
      {"#include \"heavy.h\"\n#pragma nv_hdrstop\n", false},
      {"#include <mine.h>\n#include <heavy.h>\n#pragma nv_hdrstop\n", false},
      {"#include <own.cuh>\n#include <heavy.h>\n#pragma nv_hdrstop\n", false},
      {"#include <jit/key.cuh>\n#include <heavy.h>\n#pragma nv_hdrstop\n", false},
      {"#include <heavy.h> // why\n#pragma nv_hdrstop\n", false},
      {"/* why */\n#include <heavy.h>\n#pragma nv_hdrstop\n", false},
      {"#define N \\\n 1\n#include <heavy.h>\n#pragma nv_hdrstop\n", false},
      {"#if 1\n#include <heavy.h>\n#endif\n#pragma nv_hdrstop\n", false},
      {"struct Mine {};\n#include <heavy.h>\n#pragma nv_hdrstop\n", false},
  };
  for (const auto& [prefix, shared] : cases) {
    const auto made = program(text(prefix), 3);
    EXPECT_EQ(shared_prefix(made), shared ? prefix : "") << prefix;
    EXPECT_EQ(header_of(made).has_value(), shared) << prefix;
  }
  EXPECT_NE(cubin_with_header(program(text(cases[0].prefix), 3)), "");
}

TEST_F(SharedHeaderTest, TroubleCostsTheHeaderAndNotTheBuild) {
  const auto made = program(text(), 3);
  const auto expect_without = [&](const Program& trial, std::string_view why) {
    CompileWatch watch{.share_header = true}, alone;
    const auto compiled = compile(trial, watch);
    const auto plain = compile(trial, alone);
    ASSERT_TRUE(compiled && plain) << message_of(compiled);
    EXPECT_FALSE(watch.header_shared);
    EXPECT_NE(watch.header_trouble.find(why), std::string::npos) << watch.header_trouble;
    EXPECT_EQ(compiled->facts.log, plain->facts.log);
    EXPECT_TRUE(cubin_of(*compiled) == cubin_of(*plain));
  };
  ::setenv("TMPDIR", (directory_ / "missing").c_str(), 1);
  expect_without(made, "temporary files");
  ::setenv("TMPDIR", "/proc", 1);  // a file system that is always full
  compiler_.forget_headers();
  expect_without(made, "MiB free");
  ::setenv("TMPDIR", temporary_.c_str(), 1);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit low{std::size_t{100} << 20, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  compiler_.forget_headers();
  expect_without(made, "ulimit -f");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  ::setenv("TMPDIR", temporary_.c_str(), 1);
  compiler_.forget_headers();
  EXPECT_NE(cubin_with_header(made), "");
  // What is said of the headers would be in one log of several.
  write_file(toolkit_ / "heavy.h",
             std::string(kHeader) + "__device__ inline int f() { int a; return a; }\n");
  expect_without(program(text(), 3), "warning");
}

TEST_F(SharedHeaderTest, WhatAKilledProcessWasMakingIsRemovedAndNothingElse) {
  const auto own = temporary_ / (unfinished_header_prefix(123) + "a/header");
  const auto others = {temporary_ / (unfinished_header_prefix(1234) + "a/header"),
                       temporary_ / "other/header"};
  const auto make = [](const std::filesystem::path& file) {
    std::filesystem::create_directories(file.parent_path());
    write_file(file, "x");
  };
  make(own);
  for (const auto& file : others) make(file);
  // Where processes have other numbers, as in a container with the same directory.
  const int code = in_child([] {
    if (::unshare(CLONE_NEWPID) != 0) return 100;
    return in_child([] { return remove_unfinished_headers(123), 0; });
  });
  EXPECT_TRUE(code == 0 || code == 100);
  EXPECT_TRUE(std::filesystem::exists(own));
  remove_unfinished_headers(123);
  EXPECT_FALSE(std::filesystem::exists(own.parent_path()));
  for (const auto& file : others) EXPECT_TRUE(std::filesystem::exists(file)) << file;
}

TEST_F(SharedHeaderTest, AnErrorIsToldAsWithoutIt) {
  ASSERT_NE(cubin_with_header(program(text(), 3)), "");
  const auto wrong = program(text() + "static_assert(key::factor != 3);\n", 3);
  CompileWatch alone, shared{.share_header = true};
  const auto without = compile(wrong, alone);
  const auto with = compile(wrong, shared);
  ASSERT_FALSE(with || without);
  EXPECT_EQ(message_of(with), message_of(without));
  EXPECT_EQ(with.error().detail(), without.error().detail());
}

TEST_F(SharedHeaderTest, AWarmupOfSeveralKeysUsesOne) {
  constexpr std::string_view kHalf =
      "#include <cuda_fp16.h>\n#pragma nv_hdrstop\n#include \"jit/key.cuh\"\n"
      "extern \"C\" __global__ void entry(__half* x) { *x = __hadd(*x, __half(key::factor)); }\n";
  for (const bool workers : {false, true}) {
    auto options = this->options();
    options.cache_directory = directory_ / (workers ? "workers" : "threads");
    if (workers) options.worker_command = {KILN_WORKER_PATH, "compile-worker"};
    auto runtime = open(options);
    const auto add = [&](int from, int to) {
      for (int i = from; i < to; ++i)
        EXPECT_TRUE(runtime.add(
            {.name = "half", .source = "half.cu", .key = {{"factor", "i32", std::to_string(i)}}}));
    };
    ASSERT_TRUE(runtime.add_source("half.cu", kHalf));
    const auto warm = [&](std::size_t shared) {
      const auto report = runtime.warmup({.architectures = {"sm_90a"}, .jobs = 1});
      ASSERT_TRUE(report) << message_of(report);
      EXPECT_EQ(report->failed, 0u);
      std::size_t count = 0;
      for (const auto& kernel : report->kernels) count += kernel.header_shared;
      EXPECT_EQ(count, shared);
    };
    // Not worth it for two.
    add(0, 2);
    warm(0);
    add(2, 5);
    warm(3);
    EXPECT_EQ(warnings_with("precompiled"), 0u);
  }
}

}  // namespace
}  // namespace kiln::test
