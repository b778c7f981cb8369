#include "runtime/include_closure.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.hpp"

namespace kiln {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

class IncludeClosureTest : public ::testing::Test {
 protected:
  void add(const Files& files) {
    for (const auto& [name, text] : files) ASSERT_TRUE(sources_->add(name, text)) << name;
  }
  // In the root "a", "b" or "toolkit", as the first part of the name says.
  void put(const Files& files) {
    for (const auto& [name, text] : files) {
      std::error_code failure;
      std::filesystem::create_directories((folder_ / name).parent_path(), failure);
      test::write_file(folder_ / name, text);
    }
  }
  Result<IncludeClosure> resolve(UnknownInputs policy = UnknownInputs::refuse,
                                 const SourceScan& beside = {}) {
    const std::vector<ProgramFile> generated{
        {std::string(kKeyHeaderName), std::make_shared<const std::string>("// key\n")}};
    const std::vector<IncludeRoot> roots{{folder_ / "a"},
                                         {folder_ / "b"},
                                         {folder_ / "toolkit", true},
                                         {folder_ / "toolkit/cccl", true}};
    return resolve_includes(*sources_, memo_, "k/root.cu", generated, roots, policy, beside);
  }
  std::string error(UnknownInputs policy = UnknownInputs::refuse) {
    const auto closure = resolve(policy);
    if (closure) return "none";
    return std::string(to_string(closure.error().code())) + ": " + closure.error().message();
  }
  // "name" for a file, "name>target" for a stub.
  static std::string memory_of(const Result<IncludeClosure>& closure) {
    if (!closure) return "error: " + closure.error().message();
    std::string text;
    for (const auto& file : closure->memory) {
      text += file.name;
      if (&file != &closure->memory.front() && file.text->starts_with("#include "))
        text += '>' + file.text->substr(9, file.text->size() - 10);
      text += ' ';
    }
    return text;
  }
  static std::string disk_of(const Result<IncludeClosure>& closure) {
    if (!closure) return "error: " + closure.error().message();
    std::string text;
    for (const auto& file : closure->disk) text += file.label + ' ';
    return text;
  }

  test::TemporaryDirectory folder_;
  std::unique_ptr<SourceSet> sources_ = std::make_unique<SourceSet>();
  FileMemo memo_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(IncludeClosureTest, HandsOverExactlyTheRegisteredFilesThatAreReached) {
  add({{"k/root.cu",
        "#include \"d/a.cuh\" // root\n#include <d/b.cuh>\n#include \"jit/key.cuh\"\n"},
       {"d/a.cuh", "// a\n#if 0\n#include \"d/c.cuh\"\n#endif\n"},
       {"d/b.cuh", "// b\n"},
       {"d/c.cuh", "// c\n#include \"d/a.cuh\"\n"},
       {"d/unused.cuh", "\n"}});
  const auto closure = resolve();
  EXPECT_EQ(memory_of(closure), "k/root.cu d/a.cuh d/b.cuh d/c.cuh jit/key.cuh ");
  EXPECT_EQ(disk_of(closure), "");
  EXPECT_TRUE(closure->include_directories.empty());
  EXPECT_TRUE(closure->cacheable);
}

TEST_F(IncludeClosureTest, FindsANeighbourUnderItsBareName) {
  add({{"k/root.cu",
        "//\n#include \"args.hpp\"\n#include \"../d/a.cuh\"\n#include \"./args.hpp\"\n"},
       {"k/args.hpp", "// args\n"},
       {"d/a.cuh", "//\n#include \"sub/x.cuh\"\n"},
       {"d/sub/x.cuh", "//\n"}});
  EXPECT_EQ(memory_of(resolve()),
            "k/root.cu ../d/a.cuh>\"d/a.cuh\" ./args.hpp>\"k/args.hpp\" args.hpp>\"k/args.hpp\" "
            "d/a.cuh d/sub/x.cuh k/args.hpp sub/x.cuh>\"d/sub/x.cuh\" ");
}

TEST_F(IncludeClosureTest, FindsANeighbourAfterTheSameNameFailedElsewhere) {
  add({{"k/root.cu", "#if 0\n#include \"x.h\"\n#endif\n#include \"a/h.h\"\n"},
       {"a/h.h", "//\n#include \"x.h\"\n"},
       {"a/x.h", "//\n"}});
  EXPECT_EQ(memory_of(resolve()), "k/root.cu a/h.h a/x.h x.h>\"a/x.h\" ");
}

TEST_F(IncludeClosureTest, NoticesNamesThatLeaveTheirRoot) {
  add({{"k/root.cu", "//\n#include \"../b/x.h\"\n"}});
  put({{"a/y.h", ""}, {"b/x.h", ""}});
  const auto text = error();
  EXPECT_HAS(text, "not_cacheable");
  EXPECT_HAS(text, "k/root.cu:2");
  EXPECT_HAS(text, "outside the include roots");
}

TEST_F(IncludeClosureTest, LeadsAQuotedNameToTheFirstRootThatHasIt) {
  add({{"k/root.cu", "//\n#include \"rel.h\"\n#include <deep/d.h>\n"}});
  put({{"a/rel.h", "#include \"beside.h\"\n"},
       {"a/beside.h", ""},
       {"b/rel.h", "#error shadowed"},
       {"b/deep/d.h", "#include \"e.h\"\n#include \"rel.h\"\n"},
       {"b/deep/e.h", ""}});
  const auto closure = resolve();
  EXPECT_EQ(memory_of(closure), "k/root.cu rel.h><./rel.h> ");
  EXPECT_EQ(disk_of(closure),
            "include/0/beside.h include/0/rel.h include/1/deep/d.h include/1/deep/e.h ");
  ASSERT_EQ(closure->include_directories.size(), 4U);
  EXPECT_EQ(closure->include_directories[1], folder_ / "b");
}

TEST_F(IncludeClosureTest, NamesEverythingThatItTried) {
  add({{"k/root.cu", "\n#include \"d/a.cuh\"\n"}, {"d/a.cuh", "\n\n  #include \"gone.h\"\n"}});
  const auto text = error();
  for (const auto* part :
       {"invalid_argument", "d/a.cuh:3", "\"gone.h\"", "\"d/gone.h\"", "/a/gone.h", "/b/gone.h",
        "/toolkit/gone.h", "add_source", "include_roots"})
    EXPECT_HAS(text, part);
}

TEST_F(IncludeClosureTest, RefusesOneSpellingWithTwoMeanings) {
  add({{"k/root.cu", "#include \"p/h.h\"\n#include \"q/h.h\"\n"},
       {"p/h.h", "//\n#include \"x.h\"\n"},
       {"q/h.h", "//\n\n#include \"x.h\"\n"},
       {"p/x.h", ""},
       {"q/x.h", ""}});
  const auto text = error();
  for (const auto* part : {"invalid_argument", "\"x.h\"", "p/x.h", "p/h.h:2", "q/x.h", "q/h.h:3"})
    EXPECT_HAS(text, part);
}

TEST_F(IncludeClosureTest, RefusesAStubThatHidesAFileOnDisk) {
  add({{"k/root.cu", "#include \"x.h\"\n#include <top.h>\n"}, {"k/x.h", "\n"}});
  put({{"toolkit/top.h", "#include \"x.h\"\n"}, {"toolkit/x.h", ""}});
  EXPECT_HAS(error(), "\"x.h\" means \"k/x.h\"");
  EXPECT_HAS(error(), "\"toolkit/0/x.h\"");
  put({{"toolkit/top.h", "#if __has_include(<x.h>)\n#endif\n"}});
  EXPECT_HAS(error(), "\"toolkit/0/x.h\"");
}

TEST_F(IncludeClosureTest, LetsARegisteredNameWinInFilesOnDisk) {
  add({{"k/root.cu", "#include \"x.h\"\n#include <top.h>\n"}, {"x.h", "\n"}});
  put({{"toolkit/top.h", "#include \"x.h\"\n"}, {"toolkit/x.h", ""}});
  EXPECT_EQ(memory_of(resolve()), "k/root.cu x.h ");
  EXPECT_EQ(disk_of(resolve()), "toolkit/0/top.h ");
}

TEST_F(IncludeClosureTest, FollowsFilesOnDiskIntoRegisteredOnes) {
  add({{"k/root.cu", "#include <top.h>\n"},
       {"lib/x.h", "//\n#include \"y.h\"\n"},
       {"lib/y.h", "//\n"}});
  put({{"a/top.h", "#include <lib/x.h>\n"}});
  EXPECT_EQ(memory_of(resolve()), "k/root.cu lib/x.h lib/y.h y.h>\"lib/y.h\" ");
}

TEST_F(IncludeClosureTest, ToleratesAngleIncludesThatAreNowhereAndRecordsThem) {
  add({{"k/root.cu", "#include <cstdint>\n#include <in.h>\n#if __has_include(<nope>)\n#endif\n"}});
  put({{"a/in.h", "#include \"gone.h\"\n#include <windows.h>\n"}});
  const auto closure = resolve();
  ASSERT_TRUE(closure);
  EXPECT_EQ(closure->unresolved, (std::vector<std::string>{"cstdint", "gone.h", "windows.h"}));
  EXPECT_TRUE(closure->cacheable);
}

TEST_F(IncludeClosureTest, CountsHasIncludeAsAnInclude) {
  add({{"k/root.cu", "#if __has_include(<opt.h>) && __has_include(\"none.h\")\n#endif\n"}});
  EXPECT_EQ(disk_of(resolve()), "");
  put({{"b/opt.h", ""}});
  EXPECT_EQ(disk_of(resolve()), "include/1/opt.h ");
}

TEST_F(IncludeClosureTest, RefusesAQuotedQuestionThatTheWorkingDirectoryWouldAnswer) {
  add({{"k/root.cu", "#include \"d/a.h\"\n"},
       {"d/a.h", "#if __has_include(\"none.h\")\n#endif\n"}});
  EXPECT_HAS(error(), "none.h");
  EXPECT_HAS(error(), "<...>");
}

TEST_F(IncludeClosureTest, SeesAHeaderThatAppearsInAnEarlierRoot) {
  add({{"k/root.cu", "#include <x.h>\n"}});
  put({{"b/x.h", "b"}});
  const auto before = resolve();
  EXPECT_EQ(disk_of(before), "include/1/x.h ");
  put({{"a/x.h", "a"}});
  EXPECT_EQ(disk_of(resolve()), "include/0/x.h ");
  std::error_code failure;
  std::filesystem::remove(folder_ / "a/x.h", failure);
  const auto after = resolve();
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->disk, after->disk);
}

TEST_F(IncludeClosureTest, SeesAChangeThatKeepsSizeAndTimestamp) {
  add({{"k/root.cu", "#include <x.h>\n"}});
  put({{"a/x.h", "#define V 1"}});
  const auto path = folder_ / "a/x.h";
  std::error_code failure;
  const auto time = std::filesystem::last_write_time(path, failure);
  const auto before = resolve();
  test::write_file(path, "#define V 2");
  std::filesystem::last_write_time(path, time, failure);
  const auto changed = resolve();
  test::write_file(path, "#define V 1");
  const auto after = resolve();
  ASSERT_TRUE(before && changed && after);
  EXPECT_NE(before->disk[0].digest, changed->disk[0].digest);
  EXPECT_EQ(before->disk[0].digest, after->disk[0].digest);
  EXPECT_NE(before->disk[0].stamp, after->disk[0].stamp);
}

TEST_F(IncludeClosureTest, HoldsNoPathOfTheMachine) {
  add({{"k/root.cu", "#include \"x.h\"\n#include <sub/../y.h>\n"}});
  put({{"a/x.h", ""}, {"a/y.h", ""}, {"a/sub/z.h", ""}});
  const auto closure = resolve();
  EXPECT_EQ(disk_of(closure), "include/0/x.h include/0/y.h ");
  ASSERT_TRUE(closure);
  for (const auto& file : closure->memory) {
    EXPECT_EQ(file.name.find(folder_.path().string()), std::string::npos);
    EXPECT_EQ(file.text->find(folder_.path().string()), std::string::npos);
  }
}

TEST_F(IncludeClosureTest, RefusesAbsolutePaths) {
  put({{"a/x.h", ""}});
  add({{"k/root.cu", "#include \"" + (folder_ / "a/x.h").string() + "\"\n"}});
  EXPECT_HAS(error(), "absolute path");
}

TEST_F(IncludeClosureTest, NoticesDotsThatLeaveTheRootThroughALink) {
  put({{"elsewhere/deep/c.h", "#include \"../d.h\"\n"}, {"elsewhere/d.h", ""}, {"a/d.h", ""}});
  std::error_code failure;
  std::filesystem::create_directory_symlink(folder_ / "elsewhere/deep", folder_ / "a/link",
                                            failure);
  add({{"k/root.cu", "#include <link/c.h>\n"}});
  EXPECT_HAS(error(), "outside the include roots");
  const auto closure = resolve(UnknownInputs::compile_without_storing);
  ASSERT_TRUE(closure);
  EXPECT_FALSE(closure->cacheable);
}

TEST_F(IncludeClosureTest, RefusesOrMarksWhatHasUnknownInputs) {
  struct Case {
    std::string text;
    std::string why;
  };
  for (const auto& [text, why] : {
           Case{"\nchar a[] = __TIME__;\n", "k/root.cu:2 uses __TIME__"},
           Case{"#include NAME\n", "k/root.cu:1 includes a name that only the preprocessor can"},
           Case{"#if __has_include(NAME)\n#endif\n", "'NAME)'"},
           Case{"#define HI __has_include\n#if HI(<x.cuh>)\n#endif\n", "'__has_include'"},
           Case{"#embed \"x\"\n", "#embed"},
           Case{"#include <late.h>\n", "late.h:1 uses __DATE__"},
           Case{"#include <computed.h>\n", "computed.h:1 includes a name"},
       }) {
    put({{"a/late.h", "__DATE__"}, {"a/computed.h", "#include NAME\n"}});
    sources_ = std::make_unique<SourceSet>();
    add({{"k/root.cu", text}, {"unused.h", "//\n"}});
    const auto refusal = error();
    EXPECT_HAS(refusal, "not_cacheable: ");
    EXPECT_HAS(refusal, why);
    EXPECT_HAS(refusal, "compile_without_storing");
    const auto closure = resolve(UnknownInputs::compile_without_storing);
    ASSERT_TRUE(closure) << text;
    EXPECT_FALSE(closure->cacheable);
    EXPECT_HAS(closure->why_not, why);
  }
}

TEST_F(IncludeClosureTest, JoinsWhatIsPastedAcrossFilesAndOptions) {
  const std::string paste = "//\n#define CAT(a, b) a##b\n";
  struct Case {
    Files sources;
    Files disk;
    std::string beside;
    std::string why;  // empty for a cacheable program
  };
  for (const auto& [sources, disk, beside, why] : {
           Case{{{"k/root.cu", "#include \"cat.h\"\nCAT(__TI, ME__)"}, {"cat.h", paste}},
                {},
                "",
                "cat.h:2 pastes tokens by ##, which can make __TIME__"},
           Case{{{"k/root.cu", "#include \"cat.h\"\n#if CAT(__has_in, clude)(<x>)\n#endif"},
                 {"cat.h", paste}},
                {},
                "",
                "__has_include"},
           Case{{{"k/root.cu", "#include <cat.h>\n__DA"}},
                {{"a/cat.h", paste + "TE__"}},
                "",
                "cat.h:2 pastes tokens by ##, which can make __DATE__"},
           Case{{{"k/root.cu", "#include <pp.h>\nCAT(__TI, ME__)"}},
                {{"toolkit/pp.h", paste}},
                "",
                "pp.h:2"},
           Case{{{"k/root.cu", "CAT(__TI, ME__)"}}, {}, paste, "an option or name expression"},
           Case{{{"k/root.cu", paste + "CAT(__TI, B)"}}, {}, "ME__", "k/root.cu:2"},
           Case{{{"k/root.cu", "#include <pp.h>\n" + paste + "int CAT(a, b), _, T, I, M, E;"}},
                {{"toolkit/pp.h", "__TI __ __has_"}},
                "TIME T",
                ""},
           Case{{{"k/root.cu", "__TI"}}, {}, "ME__", ""},
       }) {
    sources_ = std::make_unique<SourceSet>();
    std::error_code failure;
    std::filesystem::remove(folder_ / "a/cat.h", failure);
    add(sources);
    put(disk);
    const auto parts = scan_source(beside);
    const auto refused = resolve(UnknownInputs::refuse, parts);
    const auto closure = resolve(UnknownInputs::compile_without_storing, parts);
    ASSERT_TRUE(closure);
    EXPECT_HAS(closure->why_not, why);
    EXPECT_EQ(closure->cacheable, why.empty()) << closure->why_not;
    EXPECT_EQ(static_cast<bool>(refused), why.empty()) << sources[0].second;
  }
}

TEST_F(IncludeClosureTest, OffersAllSourcesToAComputedInclude) {
  add({{"k/root.cu", "#define H \"d/x.h\"\n#include H\n"}, {"d/x.h", "//\n"}});
  const auto closure = resolve(UnknownInputs::compile_without_storing);
  EXPECT_EQ(memory_of(closure), "k/root.cu d/x.h jit/key.cuh k/root.cu ");
}

TEST_F(IncludeClosureTest, CoversAComputedIncludeOfTheToolkitByTheWholeRoot) {
  add({{"k/root.cu", "#include <thrust/v.h>\n"}});
  put({{"toolkit/cublas.h", ""},
       {"toolkit/cccl/thrust/v.h", "#define HEADER <thrust/w.h>\n#include HEADER\n"},
       {"toolkit/cccl/thrust/w.h", "#include <own.h>\n"},
       {"toolkit/cccl/cub/c.h", "#define HAS(x) __has_include(x)\n"},
       {"a/own.h", ""}});
  const auto closure = resolve();
  EXPECT_EQ(disk_of(closure),
            "include/0/own.h toolkit/1/cub/c.h toolkit/1/thrust/v.h toolkit/1/thrust/w.h ");
  EXPECT_TRUE(closure->cacheable);
}

TEST_F(IncludeClosureTest, TakesAllCandidatesOfIncludeNext) {
  add({{"k/root.cu", "#include <x.h>\n"}});
  put({{"a/x.h", "#include_next <x.h>\n"}, {"b/x.h", ""}, {"toolkit/x.h", ""}});
  EXPECT_EQ(disk_of(resolve()), "include/0/x.h include/1/x.h toolkit/0/x.h ");
}

TEST_F(IncludeClosureTest, PassesOverWhatIsNoFile) {
  add({{"k/root.cu", "#include <x.h>\n"}});
  put({{"a/x.h/inner", ""}, {"b/x.h", ""}});
  EXPECT_EQ(disk_of(resolve()), "include/1/x.h ");
}

TEST_F(IncludeClosureTest, WorksInFoldersWithOddNames) {
  add({{"k/root.cu", "#include \"\xC3\xA9 b/x y;%.h\"\n"}});
  put({{"a/\xC3\xA9 b/x y;%.h", ""}});
  EXPECT_EQ(memory_of(resolve()), "k/root.cu \xC3\xA9 b/x y;%.h><./\xC3\xA9 b/x y;%.h> ");
}

TEST_F(IncludeClosureTest, TellsOfByteOrderMarksOnDisk) {
  add({{"k/root.cu", "#include <x.h>\n"}});
  put({{"a/x.h", "\xEF\xBB\xBF#include <y.h>\n"}, {"a/y.h", ""}});
  const auto closure = resolve();
  EXPECT_EQ(disk_of(closure), "include/0/x.h include/0/y.h ");
  EXPECT_EQ(closure->byte_order_marks, std::vector<std::string>{(folder_ / "a/x.h").string()});
}

TEST_F(IncludeClosureTest, NamesAnUnknownRoot) {
  EXPECT_HAS(error(), "\"k/root.cu\"");
}

TEST(FileMemo, DoesNotReadAnUnchangedFileTwice) {
  const test::TemporaryDirectory folder;
  const auto path = (folder / "x.h").string();
  test::write_file(path, "#include <y.h>\n");
  FileMemo memo;
  const auto get = [&] { return *memo.get(path, probe_file(path).stamp); };
  EXPECT_NE(get(), get());  // just written: its times prove nothing yet
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (get() != get() && std::chrono::steady_clock::now() < limit) ::usleep(50'000);
  EXPECT_EQ(get(), get());
  const auto before = get();
  test::write_file(path, "#include <z.h>\n");
  EXPECT_NE(get()->digest, before->digest);
}

TEST(NormalPath, DropsDotsAndRefusesToLeave) {
  EXPECT_EQ(normal_path("a/./b//c/../d"), "a/b/d");
  EXPECT_EQ(normal_path("a/.."), std::nullopt);
  EXPECT_EQ(normal_path("../a"), std::nullopt);
  EXPECT_EQ(normal_path("a/../../b"), std::nullopt);
  EXPECT_EQ(normal_path(""), std::nullopt);
}

}  // namespace
}  // namespace kiln
