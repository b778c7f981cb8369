// What kiln_embed_sources makes of files, by the script that a build runs.
#include <gtest/gtest.h>

#include <string>

#include "support/process.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

TEST(EmbedSources, NamesAndTextsArriveAsTheyAre) {
  const TemporaryDirectory directory;
  const std::pair<std::string, std::string> files[] = {
      {"plain.cu", "int a;\n"},
      {"with blank.cu", ""},
      {"größe.cu", "// größe, ${x} @y@ ; [[ \\\n\\"},
      {"last[1].cu", ")kiln\" R\"(\n"},
  };
  std::string names;
  for (const auto& [name, text] : files) {
    write_file(directory / name, text);
    names += name + '\n';
  }
  write_file(directory / "table.list", names);
  const auto made =
      run_process({.arguments = {KILN_CMAKE, "-DROOT=" + directory.path().string(),
                                 "-DOUTPUT=" + (directory / "table").string(), "-DNAMESPACE=engine",
                                 "-DTABLE=table", "-DPREFIX=p", "-P",
                                 KILN_SOURCE_TREE "/kernel_src/kiln_embed_sources.cmake"},
                   .environment = this_environment()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto unit = read_file(directory / "table.cpp");
  for (const auto& [name, text] : files) {
    const auto row = "{\"p/" + name + "\", R\"kiln_source(" + text + ")kiln_source\"},";
    EXPECT_NE(unit.find(row), std::string::npos) << row << " in\n" << unit;
  }
}

}  // namespace
}  // namespace kiln::test
