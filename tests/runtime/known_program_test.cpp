// A program is made when its kernel is registered, and used as long as nothing that it was made of
// can be another.
#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

class KnownProgramTest : public FakeCompilerFixture {
 protected:
  static cache::Digest key_in(Runtime& runtime, KernelId id) {
    const auto found = runtime.look_up(id, kArch);
    EXPECT_TRUE(found) << message_of(found);
    return found ? found->key : cache::Digest{};
  }
  static KernelId add_root(Runtime& runtime) {
    const auto id = runtime.add({.name = "k", .source = "k/root.cu"});
    EXPECT_TRUE(id) << message_of(id);
    return id ? *id : KernelId{};
  }
};

// "a.h" is that beside the root, until a source of that very name is added.
TEST_F(KnownProgramTest, ASourceThatIsAddedLaterHasItsSay) {
  constexpr const char* kRoot = "#include \"a.h\"\n";
  const auto first = [&](Runtime& runtime) {
    ASSERT_TRUE(runtime.add_source("k/root.cu", kRoot).ok());
    ASSERT_TRUE(runtime.add_source("k/a.h", "// beside\n").ok());
  };
  auto before = open(fake_options());
  first(before);
  const auto id = add_root(before);
  const auto with_neighbour = key_in(before, id);
  ASSERT_TRUE(before.add_source("other.h", "// of no use\n").ok());
  EXPECT_EQ(key_in(before, id), with_neighbour);
  ASSERT_TRUE(before.add_source("a.h", "// exact\n").ok());
  const auto with_exact = key_in(before, id);
  EXPECT_NE(with_exact, with_neighbour);

  auto after = open(fake_options());
  first(after);
  ASSERT_TRUE(after.add_source("a.h", "// exact\n").ok());
  EXPECT_EQ(key_in(after, add_root(after)), with_exact);
}

TEST_F(KnownProgramTest, FilesAreReadAnew) {
  // One that takes a source's place, and one of an include root.
  for (const bool override_file : {true, false}) {
    const auto folder = directory_ / (override_file ? "sources" : "root");
    const auto header = folder / "b.h";
    std::filesystem::create_directories(folder);
    write_file(header, "// one\n");
    auto with = fake_options();
    if (override_file)
      with.source_directory = folder;
    else
      with.include_roots = {folder};
    auto runtime = open(with);
    ASSERT_TRUE(runtime.add_source("k/root.cu", "#include \"b.h\"\n").ok());
    const auto id = add_root(runtime);
    const auto one = key_in(runtime, id);
    write_file(header, "// another\n");
    EXPECT_NE(key_in(runtime, id), one) << header;
    // A name in memory comes before a root, and after the override directory.
    ASSERT_TRUE(runtime.add_source("b.h", "// in memory\n").ok());
    const auto last = key_in(runtime, id);
    write_file(header, "// once more\n");
    EXPECT_EQ(key_in(runtime, id) == last, !override_file) << header;
  }
}

// A file that was not there when the kernel was registered.
TEST_F(KnownProgramTest, AFileThatAppearsIsSeen) {
  const auto folder = directory_ / "root";
  std::filesystem::create_directories(folder);
  auto with = fake_options();
  with.include_roots = {folder};
  auto runtime = open(with);
  ASSERT_TRUE(runtime.add_source("k/root.cu", "#if __has_include(<c.h>)\n#endif\n").ok());
  const auto id = add_root(runtime);
  const auto without = key_in(runtime, id);
  write_file(folder / "c.h", "// here\n");
  EXPECT_NE(key_in(runtime, id), without);
}

TEST_F(KnownProgramTest, AVariantHasItsOwn) {
  auto runtime = open(fake_options());
  ASSERT_TRUE(runtime.add_source("k/root.cu", "// usual\n").ok());
  ASSERT_TRUE(runtime.add_source("k/special.cu", "// special\n").ok());
  const auto id =
      runtime.add({.name = "k", .source = "k/root.cu", .variants = {{"sm_90", "k/special.cu"}}});
  ASSERT_TRUE(id) << message_of(id);
  const auto special = runtime.add({.name = "k", .source = "k/special.cu"});
  ASSERT_TRUE(special) << message_of(special);
  EXPECT_EQ(key_in(runtime, *id), key_in(runtime, *special));
}

}  // namespace
}  // namespace kiln::test
