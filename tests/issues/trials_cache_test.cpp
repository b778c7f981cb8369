// Public faults of other kernel caches, tried on ours: T2, T10, T13, T14, T16, T19, T20, T32.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kiln/cache/store.hpp"
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

}  // namespace
}  // namespace kiln::test
