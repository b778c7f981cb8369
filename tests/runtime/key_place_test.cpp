// What a key says of where the headers of include directories lie, which is nothing for most.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/program.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

class KeyPlace : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file(folder_ / name, text);
  }
  /// The key of `root`, which finds its headers in own/ and toolkit/ of `folder`.
  std::string key(const std::string& root, const std::filesystem::path& folder,
                  std::vector<std::string> options = {}) {
    SourceSet sources;
    EXPECT_TRUE(sources.add("k.cu", root));
    const IncludeRoot roots[] = {{folder / "own"}, {folder / "toolkit", true}};
    const auto program = make_program(
        {.name = "k", .source = "k.cu", .options = std::move(options)}, sources, roots, memo_);
    EXPECT_TRUE(program) << message_of(program);
    return program ? key_of(*program, "sm_90a", {}).text : std::string();
  }
  std::string key(const std::string& root, std::vector<std::string> options = {}) {
    return key(root, folder_.path(), std::move(options));
  }

  TemporaryDirectory folder_;
  FileMemo memo_;
};

TEST_F(KeyPlace, IsThereWhereTheCodeCanDifferByThePathOfAHeader) {
  struct Case {
    std::string root;
    std::string own;
    std::string toolkit;
    std::vector<std::string> options;
    bool has_place;
  };
  for (const auto& [root, own, toolkit, options, has_place] : {
           Case{"", "constexpr auto n = sizeof(__FILE__);\n", "", {}, true},
           Case{"", "#define ASSERT(x) fail(x, __FI##LE__)\n", "", {}, true},
           Case{"", "f(cuda::std::source_location::current());\n", "", {}, true},
           Case{"#define WHERE __FILE__\n", "", "", {}, true},
           Case{"void f(const char* at = __builtin_FILE());\n", "", "", {}, true},
           Case{"", "", "", {"-DWHERE=__FILE__"}, true},
           Case{"", "// __FILE__\n#ifdef __FILE__\n#endif\n", "", {}, false},
           Case{"#define N 1\nauto f = __FILE__;\n", "", "", {}, false},
           Case{"", "", "#define WHERE __FILE__\n", {}, false},
           Case{"", "", "", {"-DWHERE=__FILE__", "-UWHERE"}, false},
       }) {
    put("own/x.h", own);
    put("toolkit/t.h", toolkit);
    const auto text = key("#include <t.h>\n#include <x.h>\n" + root, options);
    EXPECT_EQ(text.find("\nplace 32 ") != std::string::npos, has_place) << text;
    EXPECT_EQ(text.find(folder_.path().string()), std::string::npos) << text;
  }
}

TEST_F(KeyPlace, IsThatOfTheDirectoriesWhoseFilesAreInTheKey) {
  put("own/x.h", "__FILE__\n");
  put("toolkit/t.h", "__FILE__\n");
  put("moved/own/x.h", "__FILE__\n");
  put("moved/toolkit/t.h", "__FILE__\n");
  const auto moved = folder_ / "moved";
  for (const auto& [root, differs] :
       {std::pair{"#include <x.h>\n", true}, {"#include <t.h>\n#define WHERE __FILE__\n", false}}) {
    EXPECT_EQ(key(root) != key(root, moved), differs) << root;
    EXPECT_EQ(key(root), key(root, folder_.path() / ""));
  }
}

}  // namespace
}  // namespace kiln::test
