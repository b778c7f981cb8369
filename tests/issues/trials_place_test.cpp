// Public faults of other kernel caches, tried on ours: T14, T32, where a cache lies, and when.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/explain.hpp"
#include "support/runtime_fixture.hpp"

namespace {
std::atomic<time_t> clock_lead{0};  // seconds that the wall clock of this process is ahead
}

/// In place of the C library's, for all of this process.
extern "C" int clock_gettime(clockid_t clock, timespec* to) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, to));
  if (result == 0 && clock == CLOCK_REALTIME) to->tv_sec += clock_lead;
  return result;
}

namespace kiln::test {
namespace {

using Trial = RuntimeFixture;

constexpr time_t kDay = 24 * 3600;

/// Sets the wall clock of this process wrong for as long as it lives.
struct WrongClock {
  explicit WrongClock(time_t lead) {
    clock_lead = lead;
    const auto ours = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    timespec right{};
    ::syscall(SYS_clock_gettime, CLOCK_REALTIME, &right);
    EXPECT_NEAR(static_cast<double>(ours), static_cast<double>(right.tv_sec + lead), 60);
  }
  WrongClock(const WrongClock&) = delete;
  ~WrongClock() { clock_lead = 0; }
};

// T14: a place that cannot hold a cache costs one warning with path, reason and cure, and no
// answer.
TEST_F(Trial, T14_APlaceThatCannotHoldACacheCostsAWarning) {
  struct {
    const char* name;
    std::filesystem::path (*make)(const std::filesystem::path& directory);
    bool works;
  } const places[] = {
      {"a file",
       [](auto& d) {
         write_file(d / "file", "x");
         return d / "file";
       },
       false},
      {"below a file", [](auto& d) { return d / "file" / "cache"; }, false},
      {"a dangling link",
       [](auto& d) {
         std::filesystem::create_symlink(d / "no" / "where", d / "dangling");
         return d / "dangling";
       },
       false},
      {"a link loop",
       [](auto& d) {
         std::filesystem::create_symlink(d / "loop", d / "loop");
         return d / "loop";
       },
       false},
      {"a name of 256 bytes", [](auto& d) { return d / std::string(256, 'n'); }, false},
      {"a directory that everybody writes",
       [](auto& d) {
         std::filesystem::create_directory(d / "open");
         std::filesystem::permissions(d / "open", std::filesystem::perms(0777));
         return d / "open";
       },
       false},
      {"a name of 255 bytes", [](auto& d) { return d / std::string(255, 'n'); }, true},
      {"a link",
       [](auto& d) {
         std::filesystem::create_directory(d / "real");
         std::filesystem::create_symlink("real", d / "link");
         return d / "link";
       },
       true},
  };
  for (const auto& place : places) {
    SCOPED_TRACE(place.name);
    warnings_.clear();
    auto with = options();
    with.cache_directory = place.make(directory_.path());
    auto runtime = open(with);
    ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    const auto report = [&] {
      EXPECT_TRUE(runtime.add(scale_spec(1)) && runtime.add(scale_spec(2)));
      return runtime.warmup({.architectures = {"sm_90a"}});
    }();
    ASSERT_TRUE(report) << message_of(report);
    EXPECT_EQ(report->failed, 0u);
    EXPECT_EQ(report->not_stored, place.works ? 0u : 2u);
    ASSERT_EQ(warnings_.size(), place.works ? 0u : 1u) << ::testing::PrintToString(warnings_);
    if (place.works) continue;
    EXPECT_NE(warnings_[0].find(with.cache_directory.string()), std::string::npos) << warnings_[0];
    EXPECT_NE(warnings_[0].find("KILN_CACHE_DIR"), std::string::npos) << warnings_[0];
  }
}

TEST_F(Trial, T14_AHomeThatCannotHoldACacheCostsAWarning) {
  write_file(directory_ / "file", "x");
  const auto home = [&](const char* name) { return (directory_ / name).string(); };
  struct {
    std::optional<std::string> home;
    std::string names;  // in the warning; empty: the cache works
  } const cases[] = {
      {std::nullopt, "HOME"},     {"", "HOME"},
      {"relative", "HOME"},       {home("file"), home("file")},
      {"/dev/null", "/dev/null"}, {home("missing"), ""},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.home.value_or("not set"));
    warnings_.clear();
    auto with = options_from(
        [&](const char* name) { return name == std::string_view("HOME") ? c.home : std::nullopt; });
    ASSERT_TRUE(with) << message_of(with);
    with->log = options().log;
    auto runtime = open(*with);
    ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    for (const int i : {1, 2}) EXPECT_TRUE(runtime.artifact(*runtime.add(scale_spec(i)), "sm_90a"));
    ASSERT_EQ(warnings_.size(), c.names.empty() ? 0u : 1u) << ::testing::PrintToString(warnings_);
    if (c.names.empty()) continue;
    EXPECT_NE(warnings_[0].find(c.names), std::string::npos) << warnings_[0];
    EXPECT_NE(warnings_[0].find("KILN_CACHE_DIR"), std::string::npos) << warnings_[0];
  }
  EXPECT_TRUE(std::filesystem::exists(directory_ / "missing/.cache/kiln/v1/e"));
}

TEST_F(Trial, T14_ADiskThatIsFullOrReadOnlyCostsAWarningAndLeavesNothing) {
  const std::string mounted = directory_ / "mounted";
  std::filesystem::create_directory(mounted);
  for (const char* options_of_mount : {"size=4k,mode=755", "size=64k,mode=755,ro"}) {
    SCOPED_TRACE(options_of_mount);
    const bool read_only = std::string_view(options_of_mount).ends_with("ro");
    const int status = in_child([&] {
      if (::unshare(CLONE_NEWNS) != 0 ||
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("tmpfs", mounted.c_str(), "tmpfs", read_only ? MS_RDONLY : 0,
                  read_only ? "size=64k,mode=755" : options_of_mount) != 0)
        return 100;
      auto with = options();
      with.cache_directory = mounted;
      auto runtime = open(with);
      if (!runtime.add_source("scale.cu", kScaleSource)) return 1;
      const auto artifact = runtime.artifact(*runtime.add(scale_spec(1)), "sm_90a");
      if (!artifact) return 2;
      if (runtime.counters().failed_stores != 1) return 3;
      const auto counters = runtime.cache_counters();
      if ((read_only ? counters.not_writable : counters.no_space) == 0) return 4;
      if (!dot_names_below(mounted).empty()) return 5;
      return warnings_.size() == 1 && warnings_with(mounted) == 1 ? 0 : 6;
    });
    if (status == 100) GTEST_SKIP() << "needs the right to mount";
    EXPECT_EQ(status, 0);
  }
}

TEST_F(Trial, T14_AClockThatIsADayOffLosesNothing) {
  const auto run = [&](std::vector<int> offsets, std::uint64_t compiles) {
    auto runtime = open();
    ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    for (const int offset : offsets) {
      const auto artifact = runtime.artifact(*runtime.add(scale_spec(offset)), "sm_90a");
      EXPECT_TRUE(artifact) << message_of(artifact);
    }
    EXPECT_EQ(runtime.counters().compiles, compiles);
    EXPECT_EQ(runtime.counters().failed_stores, 0u);
  };
  run({1}, 1);
  {
    const WrongClock back(-kDay);
    run({1, 2}, 1);
  }
  {
    const WrongClock ahead(kDay);
    run({1, 2, 3}, 1);
  }
  run({1, 2, 3}, 0);
  EXPECT_TRUE(warnings_.empty()) << ::testing::PrintToString(warnings_);
}

// T32: a filled cache that is unpacked elsewhere, with all times zero and read-only, serves another
// user who has the toolkit through a link, with nothing but hits; so it does where the clock is a
// day back, and all in it is of tomorrow.
TEST_F(Trial, T32_ABakedCacheServesAnotherUserFromAnotherPlace) {
  const auto nvrtc = installed_nvrtc().found->library;
  const auto half = [&](Runtime& runtime) {
    return compile(runtime,
                   "#include <cuda_fp16.h>\nextern \"C\" __global__ void entry(__half* p) "
                   "{ *p = *p + *p; }\n");
  };
  bool has_headers = false;
  {
    auto with = options();
    with.nvrtc = nvrtc;
    auto runtime = open(with);
    has_headers = half(runtime).has_value();
    ASSERT_TRUE(runtime.add_source("scale.cu", kScaleSource));
    std::vector<KernelId> ids;
    for (int i = 0; i < 3; ++i) ids.push_back(*runtime.add(scale_spec(i)));
    for (const auto id : ids) ASSERT_TRUE(runtime.artifact(id, "sm_90a"));
  }
  const auto elsewhere = directory_ / "elsewhere";
  std::filesystem::copy(cache_, elsewhere, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(cache_);
  const auto libraries = nvrtc.parent_path();
  const auto toolkit = directory_ / "toolkit";
  std::filesystem::create_directory_symlink(libraries.parent_path(), toolkit);
  const auto serves = [&] {
    if (::geteuid() == 0) {
      if (::unshare(CLONE_NEWNS) == 0 &&
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          ::mount(elsewhere.c_str(), elsewhere.c_str(), nullptr, MS_BIND, nullptr) == 0)
        static_cast<void>(::mount(nullptr, elsewhere.c_str(), nullptr,
                                  MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr));
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
    }
    ::unsetenv("HOME");
    auto with = options();
    with.nvrtc = toolkit / libraries.filename() / nvrtc.filename();
    with.cache_directory.clear();
    with.read_only_caches = {elsewhere};
    auto runtime = open(with);
    if (!runtime.add_source("scale.cu", kScaleSource)) return 2;
    for (int i = 0; i < 3; ++i)
      if (!runtime.add(scale_spec(i))) return 3;
    const auto report = runtime.warmup({.architectures = {"sm_90a"}});
    if (!report || report->hits != 3) return 4;
    for (const auto& kernel : report->kernels)
      if (kernel.origin != Origin::lower_tier || !kernel.stored) return 5;
    const std::uint64_t hits = has_headers ? 4 : 3;
    if (has_headers && !half(runtime)) return 5;
    const auto counters = runtime.counters();
    if (counters.lower_tier_hits != hits || counters.compiles != 0 || counters.disk_hits != 0)
      return 6;
    if (runtime.cache_counters().tiers.at(0).hits != hits) return 7;
    // What is not there is compiled and kept nowhere, which nobody needs to be warned of; and one
    // is told in what it differs from what is there.
    const auto other = *runtime.add(scale_spec(9));
    const auto why = runtime.explain(other, "sm_90a");
    if (!why || why->found || !why->nearest || why->nearest->differences.size() != 1 ||
        why->nearest->differences[0].aspect != "constant")
      return 8;
    if (!runtime.artifact(other, "sm_90a")) return 9;
    return warnings_.empty() ? 0 : 10;
  };
  EXPECT_EQ(in_child([&] {
              const WrongClock back(-kDay);
              const int status = serves();
              return status != 0 || !HasFailure() ? status : 11;
            }),
            0);
  for (const auto& file : std::filesystem::recursive_directory_iterator(elsewhere)) {
    const timespec zero[2] = {{0, 0}, {0, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, file.path().c_str(), zero, 0), 0);
  }
  EXPECT_EQ(in_child(serves), 0);
}

// The key and the bytes of an entry hold no place: another directory, home and working directory.
TEST_F(Trial, T32_PlaceAndPersonLeaveNoTrace) {
  std::string bytes;
  cache::Digest key;
  for (const auto* name : {"here", "there"}) {
    const auto home = directory_ / name;
    std::filesystem::create_directories(home / "include");
    write_file(home / "include" / "value.h", "#define VALUE 3\n");
    ASSERT_EQ(::setenv("HOME", home.c_str(), 1), 0);
    ASSERT_EQ(::setenv("USER", name, 1), 0);
    const WorkingDirectory here(home);
    auto with = options();
    with.cache_directory = cache_ = home / "cache";
    with.include_roots = {home / "include"};
    auto runtime = open(with);
    const auto artifact = compile(
        runtime,
        "#include <value.h>\nextern \"C\" __global__ void entry(int* p) { int idle; *p = VALUE; }");
    ASSERT_TRUE(artifact) << message_of(artifact);
    const auto entry = read_file(entry_path(artifact->key));
    EXPECT_EQ(entry.find(directory_.path().string()), std::string::npos);
    if (bytes.empty()) {
      bytes = entry;
      key = artifact->key;
    }
    EXPECT_EQ(artifact->key, key);
    EXPECT_EQ(entry, bytes);
  }
}

// Code that names a directory of this machine is used and not stored.
TEST_F(Trial, T32_CodeThatHoldsAPlaceIsNotStored) {
  const auto root = directory_ / "include";
  std::filesystem::create_directories(root);
  write_file(root / "where.h", "#define WHERE __FILE__\n#include <name.h>\n");
  write_file(root / "name.h", "__device__ inline char name(int i) { return __FILE__[i]; }\n");
  auto with = options();
  with.include_roots = {root};
  auto runtime = open(with);
  const auto artifact = compile(runtime,
                                "#include <where.h>\nextern \"C\" __global__ void entry(char* p) "
                                "{ *p = name(static_cast<int>(*p)); }\n");
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_NE(cubin_of(*artifact).find(root.string()), std::string::npos);
  EXPECT_EQ(entries(), 0u);
  EXPECT_EQ(warnings_.size(), 1u) << ::testing::PrintToString(warnings_);
}

// Code that differs by a place is another entry there, whether it holds that place or not.
TEST_F(Trial, T32_CodeThatDependsOnAPlaceIsKeptForThatPlace) {
  std::set<std::string> codes;
  for (const auto* name : {"here", "further", "here"}) {
    std::filesystem::create_directories(directory_ / name);
    write_file(directory_ / name / "long.h", "constexpr int kLong = sizeof(__FILE__);\n");
    auto with = options();
    with.include_roots = {directory_ / name};
    auto runtime = open(with);
    const auto artifact = compile(
        runtime, "#include <long.h>\nextern \"C\" __global__ void entry(int* p) { *p = kLong; }\n");
    ASSERT_TRUE(artifact) << message_of(artifact);
    EXPECT_EQ(runtime.counters().compiles,
              codes.size() < 2 && codes.insert(cubin_of(*artifact)).second);
  }
  EXPECT_EQ(codes.size(), 2u);
  EXPECT_EQ(entries(), 2u);
  EXPECT_TRUE(warnings_.empty()) << ::testing::PrintToString(warnings_);
}

// A name that a source in memory goes by is no place, even where such a directory exists.
TEST_F(Trial, T32_NamesOfSourcesInMemoryAreNoPlace) {
  std::filesystem::create_directories(directory_ / "include");
  write_file(directory_ / "include" / "value.h", "#define VALUE 1\n");
  auto with = options();
  with.include_roots = {directory_ / "include"};
  auto runtime = open(with);
  const auto artifact = compile(runtime,
                                "#include <value.h>\nextern \"C\" __global__ void entry(char* p) "
                                "{ *p = __FILE__[*p + VALUE]; }\n");
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_NE(cubin_of(*artifact).find("trial.cu"), std::string::npos);
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(warnings_.empty()) << ::testing::PrintToString(warnings_);
}

// NVRTC reads this variable by itself: what it makes then is of no use to anybody else.
TEST_F(Trial, T32_AVariableThatChangesTheCodeTurnsTheCacheOff) {
  ASSERT_EQ(::setenv("NV_NVVM_VERSION", "nvvm-latest", 1), 0);
  const auto artifact = compile("extern \"C\" __global__ void entry(int* p) { *p = 1; }\n");
  ::unsetenv("NV_NVVM_VERSION");
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_EQ(entries(), 0u);
  EXPECT_EQ(warnings_.size(), 1u) << ::testing::PrintToString(warnings_);
}

TEST_F(Trial, T32_AVariableThatChangesTheCodeAndIsSetLaterKeepsItOutOfTheCache) {
  auto runtime = open();
  ASSERT_EQ(::setenv("NV_NVVM_VERSION", "nvvm-latest", 1), 0);
  const auto artifact =
      compile(runtime, "extern \"C\" __global__ void entry(int* p) { *p = 1; }\n");
  ::unsetenv("NV_NVVM_VERSION");
  ASSERT_TRUE(artifact) << message_of(artifact);
  EXPECT_EQ(entries(), 0u);
  EXPECT_EQ(warnings_with("NV_NVVM_VERSION"), 1u) << ::testing::PrintToString(warnings_);
}

}  // namespace
}  // namespace kiln::test
