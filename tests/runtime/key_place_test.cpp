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

// To "#pragma once" a link is the same file, and a copy another.
TEST_F(KeyPlace, TellsWhichHeadersAreOneFile) {
  const std::string root = "#include <x.h>\n#include <y.h>\n#include <z.h>\n";
  const std::string once = "#pragma once\n__device__ int n;\n";
  for (const auto* name : {"own/x.h", "own/y.h", "own/z.h"}) put(name, once);
  const auto copies = key(root);
  EXPECT_EQ(copies.find("same-file"), std::string::npos) << copies;
  const auto own = folder_ / "own";
  std::filesystem::remove(own / "y.h");
  std::filesystem::create_symlink("x.h", own / "y.h");
  const auto link = key(root);
  EXPECT_NE(link.find("\nsame-file 30 include/0/y.h // include/0/x.h\n"), std::string::npos)
      << link;
  std::filesystem::remove(own / "y.h");
  std::filesystem::create_hard_link(own / "x.h", own / "y.h");
  EXPECT_EQ(key(root), link);
  std::filesystem::remove(own / "z.h");
  std::filesystem::create_hard_link(own / "x.h", own / "z.h");
  const auto links = key(root);
  EXPECT_NE(links.find("\nsame-file 30 include/0/z.h // include/0/x.h\n"), std::string::npos);
  EXPECT_NE(links, link);
  for (const auto* name : {"own/y.h", "own/z.h"}) {
    std::filesystem::remove(folder_ / name);
    put(name, once);
  }
  EXPECT_EQ(key(root), copies);
}

}  // namespace
}  // namespace kiln::test
