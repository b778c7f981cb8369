// Why a request is not served: how two keys differ, and which entry of a store is the nearest.
#include "kiln/explain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "kiln/cache/store.hpp"
#include "kiln/key_text.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

std::string key_text(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string text;
  for (const auto& [label, value] : fields)
    text += label + ' ' + std::to_string(value.size()) + ' ' + value + '\n';
  return text;
}

/// One line for each difference; what a key lacks is a dash.
std::vector<std::string> lines_of(const std::vector<KeyDifference>& differences) {
  std::vector<std::string> lines;
  for (const auto& each : differences)
    lines.push_back(each.aspect + '|' + each.name + '|' + each.first.value_or("-") + '|' +
                    each.second.value_or("-"));
  return lines;
}

using Lines = std::vector<std::string>;
using Fields = std::vector<std::pair<std::string, std::string>>;

TEST(KeyDifferences, NameEachFieldThatDiffers) {
  const Fields base = {{"schema", "1"},
                       {"kernel", "scale"},
                       {"entry", "entry"},
                       {"field", "tile i32 128"},
                       {"source", "scale.cu aa"},
                       {"source", "jit/key.cuh bb"},
                       {"header", "a folder/x.h cc"},
                       {"architecture", "sm_90a"},
                       {"option", "--std=c++20"},
                       {"option", "--use_fast_math"},
                       {"toolchain", "nvrtc 13.0 12 builtins 34"}};
  const struct {
    std::size_t place;
    std::pair<std::string, std::string> field;
    Lines differences;
  } changes[] = {
      {0, {"schema", "2"}, {"schema||1|2"}},
      {1, {"kernel", "other"}, {"kernel||scale|other"}},
      {2, {"name-expression", "f<int>"}, {"entry||entry|-", "name expression||-|f<int>"}},
      {3, {"field", "tile i32 64"}, {"constant|tile|i32 128|i32 64"}},
      {3, {"field", "rows i32 128"}, {"constant|tile|i32 128|-", "constant|rows|-|i32 128"}},
      {4, {"source", "scale.cu dd"}, {"source|scale.cu|aa|dd"}},
      {5, {"source", "jit/key.cuh dd"}, {"source|jit/key.cuh|bb|dd"}},
      {6, {"header", "a folder/x.h dd"}, {"header|a folder/x.h|cc|dd"}},
      {6, {"header", "y.h cc"}, {"header|a folder/x.h|cc|-", "header|y.h|-|cc"}},
      {7, {"architecture", "sm_100a"}, {"architecture||sm_90a|sm_100a"}},
      {8, {"option", "--std=c++17"}, {"option|--std|c++20|c++17"}},
      {9, {"option", "--fmad=false"}, {"option|--use_fast_math||-", "option|--fmad|-|false"}},
      {10,
       {"toolchain", "nvrtc 12.9 12 builtins 34"},
       {"nvrtc||nvrtc 13.0 12 builtins 34|nvrtc 12.9 12 builtins 34"}},
  };
  for (const auto& change : changes) {
    auto other = base;
    other[change.place] = change.field;
    EXPECT_EQ(lines_of(key_differences(key_text(base), key_text(other))), change.differences);
  }
  EXPECT_TRUE(key_differences(key_text(base), key_text(base)).empty());
}

TEST(KeyDifferences, LeaveOutTheHeaderThatIsMadeOfTheConstants) {
  const Fields first = {{"field", "tile i32 1"}, {"source", "jit/key.cuh aa"}};
  const Fields second = {{"field", "tile i32 2"}, {"source", "jit/key.cuh bb"}};
  EXPECT_EQ(lines_of(key_differences(key_text(first), key_text(second))),
            (Lines{"constant|tile|i32 1|i32 2"}));
}

TEST(KeyDifferences, TellRepeatedOptionsAndTheOrderOfFiles) {
  const Fields once = {{"option", "-DA=1"}, {"option", "-DB=1"}};
  const Fields twice = {{"option", "-DA=1"}, {"option", "-DA=2"}, {"option", "-DB=1"}};
  EXPECT_EQ(lines_of(key_differences(key_text(once), key_text(twice))), (Lines{"option|-DA|-|2"}));
  const Fields swapped = {once[1], once[0]};
  EXPECT_EQ(lines_of(key_differences(key_text(once), key_text(swapped))),
            (Lines{"order||option -DA|option -DB"}));
}

TEST(KeyDifferences, OfTextsOfAnotherFormAreToldAsSuch) {
  EXPECT_EQ(lines_of(key_differences("anything", "something else")), (Lines{"text||-|-"}));
  EXPECT_EQ(lines_of(key_differences("kernel 5 scale\nx", "kernel 5 scale\ny")),
            (Lines{"text||-|-"}));
  EXPECT_EQ(lines_of(key_differences("", "kernel 5 scale\n")), (Lines{"kernel||-|scale"}));
}

// Values may hold anything, other fields' lines too.
TEST(KeyDifferences, AreNotMisledByValuesThatLookLikeFields) {
  const Fields first = {{"option", "a\nkernel 1 x\n"}, {"kernel", "k"}};
  const Fields second = {{"option", "a\nkernel 1 y\n"}, {"kernel", "k"}};
  EXPECT_EQ(lines_of(key_differences(key_text(first), key_text(second))),
            (Lines{"option|a\nkernel 1 x\n||-", "option|a\nkernel 1 y\n|-|"}));
}

TEST(KeyDifferences, OfManyFieldsAreFoundInNoTime) {
  std::string first, second;
  for (int i = 0; i < 50'000; ++i) {
    first += "option 1 a\n";
    second += "option 1 b\n";
  }
  EXPECT_EQ(key_differences(first, second).size(), 100'000u);
}

class Explain : public RuntimeFixture {
 protected:
  static constexpr std::string_view kText =
      "#include \"jit/key.cuh\"\n#include \"factor.cuh\"\n"
      "extern \"C\" __global__ void entry(float* x) { *x = FACTOR * key::tile; }\n";

  static KernelId add(Runtime& runtime, int tile, std::string_view factor) {
    EXPECT_TRUE(runtime.add_source("factor.cuh", factor));
    EXPECT_TRUE(runtime.add_source("scale.cu", kText));
    const auto id = runtime.add(
        {.name = "scale", .source = "scale.cu", .key = {{"tile", "i32", std::to_string(tile)}}});
    EXPECT_TRUE(id) << message_of(id);
    return *id;
  }
  void fill(int tile, std::string_view architecture = "sm_90a") {
    auto runtime = open();
    const auto artifact = runtime.artifact(add(runtime, tile, "#define FACTOR 2"), architecture);
    ASSERT_TRUE(artifact) << message_of(artifact);
  }
  Explanation explain(int tile, std::string_view factor = "#define FACTOR 2",
                      std::string_view architecture = "sm_90a") {
    auto runtime = open();
    const auto explained = runtime.explain(add(runtime, tile, factor), architecture);
    EXPECT_TRUE(explained) << message_of(explained);
    EXPECT_EQ(runtime.counters(), RuntimeCounters{});
    return *explained;
  }
};

TEST_F(Explain, NamesWhatDiffersFromTheNearestEntry) {
  EXPECT_FALSE(explain(1).nearest);
  EXPECT_FALSE(std::filesystem::exists(cache_)) << "explaining writes nothing";
  fill(1);
  EXPECT_TRUE(explain(1).found);
  EXPECT_EQ(explain(1).entries, 1u);
  const auto constant = explain(2);
  EXPECT_FALSE(constant.found);
  ASSERT_TRUE(constant.nearest);
  EXPECT_EQ(lines_of(constant.nearest->differences), (Lines{"constant|tile|i32 2|i32 1"}));
  const auto header = explain(1, "#define FACTOR 3");
  ASSERT_TRUE(header.nearest);
  ASSERT_EQ(header.nearest->differences.size(), 1u);
  EXPECT_EQ(header.nearest->differences[0].aspect, "source");
  EXPECT_EQ(header.nearest->differences[0].name, "factor.cuh");
  EXPECT_EQ(header.nearest->differences[0].first, cache::digest_of("#define FACTOR 3").hex());
  EXPECT_EQ(header.nearest->differences[0].second, cache::digest_of("#define FACTOR 2").hex());

  // Of the same architecture before another one, and of the same kernel before any other.
  fill(1, "sm_100a");
  auto store = *cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store.publish("another program's", "{}", {}));
  const auto architecture = explain(1, "#define FACTOR 3", "sm_100a");
  EXPECT_EQ(architecture.entries, 3u);
  ASSERT_EQ(architecture.nearest->differences.size(), 1u);
  EXPECT_EQ(architecture.nearest->differences[0].name, "factor.cuh");
  EXPECT_EQ(lines_of(explain(1, "#define FACTOR 2", "sm_120a").nearest->differences).size(), 1u);
}

TEST_F(Explain, NamesTheCheckThatRefusedTheEntry) {
  fill(1);
  const auto explained = explain(1);
  const auto path = entry_path(explained.key);
  const auto good = read_file(path);
  auto bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  write_file(path, bad);
  EXPECT_EQ(explain(1).refusal, "payload digest differs");
  EXPECT_FALSE(explain(1).found);
  EXPECT_EQ(explain(1).entries, 0u);

  // Whole to the store, and yet no cubin of this architecture.
  std::filesystem::remove(path);
  auto store = *cache::Store::open({.directory = cache_});
  ASSERT_TRUE(store.publish(explained.key_text, "{}", {}));
  EXPECT_EQ(explain(1).refusal, "its facts are of another form");
  EXPECT_FALSE(explain(1).nearest);
  EXPECT_TRUE(std::filesystem::exists(path)) << "explaining removes nothing";
}

TEST_F(Explain, SaysWhatCanNeverBeInACache) {
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source("dated.cu",
                                 "extern \"C\" __global__ void entry(const char** x) "
                                 "{ *x = __TIME__; }"));
  const auto id = runtime.add({.name = "dated",
                               .source = "dated.cu",
                               .unknown_inputs = UnknownInputs::compile_without_storing});
  ASSERT_TRUE(id) << message_of(id);
  const auto explained = runtime.explain(*id, "sm_90a");
  ASSERT_TRUE(explained);
  EXPECT_NE(explained->never.find("__TIME__"), std::string::npos) << explained->never;
  auto off = options();
  off.cache_directory.clear();
  auto without = open(off);
  EXPECT_EQ(without.explain(add(without, 1, ""), "sm_90a")->never, "no cache is in force");
  EXPECT_FALSE(without.explain(KernelId{7}, "sm_90a"));
  EXPECT_FALSE(without.explain(KernelId{0}, "sm_9"));
}

}  // namespace
}  // namespace kiln::test
