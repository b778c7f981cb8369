// What a compile depends on beside its inputs, and which failures may not come again.
#include "runtime/compiler.hpp"

#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include <clocale>
#include <cstring>
#include <fstream>
#include <vector>

#include "kiln/options.hpp"
#include "support/process.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

using CompilerTest = RuntimeFixture;

// Decimals in PTX, and functions of constants, are worked out by the host's arithmetic.
constexpr std::string_view kFolded = R"(
extern "C" __global__ void entry(float* x) {
  asm volatile("mov.f32 %0, 1.25;" : "=f"(x[0]));
  asm volatile("mov.f32 %0, 0.1;" : "=f"(x[1]));
  x[2] = sinf(0.7f) + expf(1.3f) + powf(1.1f, 7.3f);
  x[3] = rsqrtf(3.0f);
  constexpr float kTiny = 1e-40f;
  x[4] = kTiny * 2.0f;
}
)";

/// A locale with a decimal comma, for as long as it lives; false where none can be made.
class GermanLocale {
 public:
  explicit GermanLocale(const std::filesystem::path& directory) {
    const auto made = run_process({.arguments = {"/usr/bin/localedef", "-i", "de_DE", "-f", "UTF-8",
                                                 (directory / "de_DE.UTF-8").string()},
                                   .environment = this_environment()});
    ::setenv("LOCPATH", directory.c_str(), 1);
    set_ = made.exit_code == 0 && std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  }
  GermanLocale(const GermanLocale&) = delete;
  GermanLocale& operator=(const GermanLocale&) = delete;
  ~GermanLocale() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
  }
  explicit operator bool() const { return set_; }

 private:
  bool set_ = false;
};

TEST_F(CompilerTest, TheLocaleOfTheProcessDoesNotReachTheCode) {
  const auto usual = compile(kFolded);
  ASSERT_TRUE(usual) << message_of(usual);
  cache_ = directory_ / "other";
  const GermanLocale german(directory_.path());
  if (!german) GTEST_SKIP() << "localedef makes no locale here; install the package locales";
  ASSERT_EQ(*std::localeconv()->decimal_point, ',');
  const auto here = compile(kFolded);
  ASSERT_TRUE(here) << message_of(here);
  EXPECT_EQ(here->key, usual->key);
  EXPECT_EQ(cubin_of(*here), cubin_of(*usual));
  EXPECT_EQ(*std::localeconv()->decimal_point, ',');
}

TEST_F(CompilerTest, TheThreadsFloatingPointStateNeitherReachesTheCodeNorChanges) {
  const auto usual = compile(kFolded);
  ASSERT_TRUE(usual) << message_of(usual);
  fenv_t before{};
  ASSERT_EQ(::fegetenv(&before), 0);
  for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    cache_ = directory_ / std::to_string(rounding);
    auto runtime = open();
    ASSERT_EQ(::fesetround(rounding), 0);
    const auto here = compile(runtime, kFolded);
    const auto left = ::fegetround();
    ::fesetenv(&before);
    ASSERT_TRUE(here) << message_of(here);
    EXPECT_EQ(cubin_of(*here), cubin_of(*usual)) << rounding;
    EXPECT_EQ(left, rounding);
  }
#ifdef __x86_64__
  // Subnormals are zero, as a library that was built with -ffast-math leaves them; and with traps,
  // which a division by zero in the compiler would spring.
  constexpr unsigned kZeros = 0x8040;
  for (const bool traps : {false, true}) {
    cache_ = directory_ / (traps ? "traps" : "zeros");
    auto runtime = open();
    if (traps)
      ::feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    else
      __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | kZeros);
    const auto here = compile(runtime, kFolded);
    const bool left = traps ? ::fegetexcept() != 0 : (__builtin_ia32_stmxcsr() & kZeros) == kZeros;
    ::fesetenv(&before);
    ASSERT_TRUE(here) << message_of(here);
    EXPECT_EQ(cubin_of(*here), cubin_of(*usual)) << traps;
    EXPECT_TRUE(left) << traps;
  }
#endif
}

// A worker may be started after the key was made, and find another compiler there.
TEST_F(CompilerTest, MakesNothingForAKeyOfAnotherCompiler) {
  const auto search = find_nvrtc({}, process_environment());
  ASSERT_TRUE(search.found);
  Compiler compiler(search);
  SourceSet sources{std::filesystem::path()};
  ASSERT_TRUE(sources.add("a.cu", "extern \"C\" __global__ void entry() {}\n"));
  FileMemo memo;
  const auto program = make_program({.name = "a", .source = "a.cu"}, sources, {}, memo);
  ASSERT_TRUE(program) << message_of(program);
  auto other = search.found->toolchain();
  other.builtins_build_id = "0123456789abcdef";
  CompileWatch watch;
  const auto refused =
      compiler.compile(*program, "sm_90a", key_of(*program, "sm_90a", other), other, watch);
  EXPECT_EQ(refused.error().code(), ErrorCode::no_toolchain);
  EXPECT_NE(message_of(refused).find("has been replaced"), std::string::npos)
      << message_of(refused);
}

TEST_F(CompilerTest, AHeaderThatCannotBeOpenedForWantOfDescriptorsIsNoFinalFailure) {
  std::filesystem::create_directories(directory_ / "include");
  const auto header = directory_ / "include" / "value.h";
  std::ofstream(header) << "#define VALUE 1\n";
  // Young files are read anew each time.
  std::filesystem::last_write_time(
      header, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const auto source = [](const char* name) {
    return "#include <value.h>\nextern \"C\" __global__ void " + std::string(name) +
           "(int* x) { *x = VALUE; }\n";
  };
  auto with = options();
  with.cache_directory.clear();
  with.include_roots = {directory_ / "include"};
  auto runtime = open(with);
  ASSERT_TRUE(runtime.add_source("first.cu", source("first")));
  ASSERT_TRUE(runtime.add_source("second.cu", source("second")));
  const auto first = runtime.add({.name = "a", .source = "first.cu", .entry = "first"});
  const auto second = runtime.add({.name = "b", .source = "second.cu", .entry = "second"});
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(runtime.artifact(*first, "sm_90a"));  // opens NVRTC and knows the header
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  ASSERT_TRUE(runtime.look_up(*second, "sm_90a"));

  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int file = 0; (file = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
    taken.push_back(file);
  const auto without = runtime.artifact(*second, "sm_90a");
  for (const int file : taken) ::close(file);
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(without);
  EXPECT_NE(message_of(without).find("value.h"), std::string::npos) << message_of(without);
  EXPECT_EQ(message_of(without).find("not found"), std::string::npos) << message_of(without);
  const auto then = runtime.artifact(*second, "sm_90a");
  EXPECT_TRUE(then) << message_of(then);
}

// A compile on a stack that has no room for it, as fibers and threads of a JVM have it.
class SmallStackTest : public CompilerTest {
 protected:
  static constexpr std::size_t kSmall = 256U << 10;
  static void ask(SmallStackTest* test) {
    test->artifact_ =
        compile(test->runtime_,
                "template <int N> struct F { static constexpr int v = F<N - 1>::v; };\n"
                "template <> struct F<0> { static constexpr int v = 0; };\n"
                "extern \"C\" __global__ void entry(int* x) { *x = F<150>::v; }\n");
  }
  Runtime runtime_ = open();
  Result<Artifact> artifact_{Error(ErrorCode::not_ready, "")};
};

TEST_F(SmallStackTest, AThreadMayAsk) {
  pthread_attr_t attributes;
  pthread_t thread{};
  ASSERT_EQ(::pthread_attr_init(&attributes), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&attributes, 2 * kSmall), 0);  // sanitizers have their part
  const auto start = [](void* test) -> void* {
    ask(static_cast<SmallStackTest*>(test));
    return nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, &attributes, start, this), 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  EXPECT_TRUE(artifact_) << message_of(artifact_);
}

TEST_F(SmallStackTest, AFiberOfTheFirstThreadMayAsk) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "sanitizers have to be told of each stack";
#else
  static SmallStackTest* test;
  static ucontext_t back, fiber;
  test = this;
  std::vector<char> stack(kSmall);
  ASSERT_EQ(::getcontext(&fiber), 0);
  fiber.uc_stack.ss_sp = stack.data();
  fiber.uc_stack.ss_size = stack.size();
  fiber.uc_link = &back;
  ::makecontext(
      &fiber, [] { ask(test); }, 0);
  ASSERT_EQ(::swapcontext(&back, &fiber), 0);
  EXPECT_TRUE(artifact_) << message_of(artifact_);
#endif
}

TEST_F(CompilerTest, LimitsAsLongAsTheyCanBeAreNone) {
  auto with = options();
  with.compile_limit = with.longest_wait = std::chrono::milliseconds::max();
  auto runtime = open(with);
  ASSERT_TRUE(runtime.add_source("a.cu", "extern \"C\" __global__ void entry() {}\n"));
  const auto id = runtime.add({.name = "a", .source = "a.cu"});
  ASSERT_TRUE(id);
  const auto report =
      runtime.warmup({.architectures = {"sm_90a"}, .time_limit = std::chrono::milliseconds::max()});
  ASSERT_TRUE(report) << message_of(report);
  EXPECT_EQ(report->compiled, 1u);
  EXPECT_EQ(report->stopped, "");
  const auto artifact = runtime.artifact(*id, "sm_100a");
  EXPECT_TRUE(artifact) << message_of(artifact);
  EXPECT_TRUE(runtime.flush(std::chrono::milliseconds::max()));
}

}  // namespace
}  // namespace kiln::test
