// Kernels with other root files for some architectures, with the real compiler and no device.
#include <gtest/gtest.h>

#include "kiln/cache/store.hpp"
#include "support/runtime_fixture.hpp"

namespace kiln::test {
namespace {

constexpr std::string_view kCommon = "__device__ int common = 1;\n";

// Each root file keeps one number of its own in the cubin.
std::string root_of(std::string_view number) {
  return "#include \"common.cuh\"\nextern \"C\" __global__ void entry(int* p) { *p = common * " +
         std::string(number) + "; }\n";
}

class SourceVariants : public RuntimeFixture {
 protected:
  Runtime open() {
    auto runtime = RuntimeFixture::open();
    EXPECT_TRUE(runtime.add_source("common.cuh", kCommon));
    EXPECT_TRUE(runtime.add_source("all.cu", root_of("11")));
    EXPECT_TRUE(runtime.add_source("hopper.cu", root_of("22")));
    EXPECT_TRUE(runtime.add_source("blackwell.cu", root_of("33")));
    return runtime;
  }

  static KernelSpec spec(std::vector<SourceVariant> variants) {
    return {.name = "varied", .source = "all.cu", .variants = std::move(variants)};
  }

  static Artifact artifact_of(Runtime& runtime, const KernelSpec& spec, std::string_view arch) {
    const auto id = runtime.add(spec);
    EXPECT_TRUE(id) << message_of(id);
    const auto artifact = runtime.artifact(*id, arch);
    EXPECT_TRUE(artifact) << message_of(artifact);
    return artifact ? *artifact : Artifact{};
  }

  std::string key_text_of(const Artifact& artifact) {
    auto store = cache::Store::open({.directory = cache_});
    const auto entry = store->read(artifact.key);
    EXPECT_TRUE(entry);
    return entry ? std::string(entry->key_text()) : std::string();
  }
};

TEST_F(SourceVariants, AnArchitectureWithAVariantHasItsRootFileAndOthersTheUsualOne) {
  auto runtime = open();
  const auto varied = spec({{"sm_90a", "hopper.cu"}, {"sm_100a", "blackwell.cu"}});
  const struct {
    const char* architecture;
    const char* root;
  } expected[] = {{"sm_90a", "hopper.cu"}, {"sm_100a", "blackwell.cu"}, {"sm_90", "all.cu"}};
  for (const auto& [architecture, root] : expected) {
    SCOPED_TRACE(architecture);
    const auto artifact = artifact_of(runtime, varied, architecture);
    const auto text = key_text_of(artifact);
    for (const auto* file : {"all.cu", "hopper.cu", "blackwell.cu"})
      EXPECT_EQ(text.find(file) != std::string::npos, file == std::string_view(root)) << text;
    // The code is that of the file alone, compiled for the same name.
    auto alone = plain_spec(root);
    alone.name = varied.name;
    const auto same = artifact_of(runtime, alone, architecture);
    EXPECT_EQ(same.key, artifact.key);
    EXPECT_EQ(cubin_of(same), cubin_of(artifact));
  }
  EXPECT_NE(cubin_of(artifact_of(runtime, varied, "sm_90a")),
            cubin_of(artifact_of(runtime, spec({}), "sm_90a")));
}

TEST_F(SourceVariants, AWarmupAndALookUpChooseAsAnArtifactDoes) {
  auto runtime = open();
  const auto varied = spec({{"sm_90a", "hopper.cu"}});
  const auto id = runtime.add(varied);
  ASSERT_TRUE(id) << message_of(id);
  const auto report = runtime.warmup({.architectures = {"sm_90a", "sm_100a"}});
  ASSERT_TRUE(report) << message_of(report);
  ASSERT_EQ(report->compiled, 2u);
  for (const auto& kernel : report->kernels) {
    const auto known = runtime.look_up(*id, kernel.architecture);
    ASSERT_TRUE(known) << message_of(known);
    EXPECT_TRUE(known->found);
    EXPECT_EQ(known->key, kernel.key);
    const auto artifact = artifact_of(runtime, varied, kernel.architecture);
    EXPECT_EQ(artifact.key, kernel.key);
    EXPECT_EQ(key_text_of(artifact).find("hopper.cu") != std::string::npos,
              kernel.architecture == "sm_90a");
  }
  EXPECT_EQ(runtime.counters().compiles, 2u);
}

TEST_F(SourceVariants, AFaultIsNamedWhenRegistering) {
  auto runtime = open();
  ASSERT_TRUE(runtime.add_source("user.cu", "#include \"no/such.cuh\"\n"));
  const struct {
    std::vector<SourceVariant> variants;
    std::vector<std::string> said;
  } faults[] = {
      {{{"sm_90a", "absent.cu"}}, {"absent.cu"}},
      {{{"sm_90a", "user.cu"}}, {"no/such.cuh"}},
      {{{"sm_100a", "blackwell.cu"}, {"sm_90a", "absent.cu"}}, {"absent.cu"}},
      {{{"90a", "hopper.cu"}}, {"varied", "hopper.cu", "\"90a\""}},
      {{{"compute_90", "hopper.cu"}}, {"varied", "hopper.cu", "\"compute_90\""}},
      {{{"", "hopper.cu"}}, {"varied", "hopper.cu", "\"\""}},
      {{{"sm_90a", "hopper.cu"}, {"sm_90a", "blackwell.cu"}}, {"varied", "\"sm_90a\"", "no other"}},
  };
  for (const auto& [variants, said] : faults) {
    const auto id = runtime.add(spec(variants));
    ASSERT_FALSE(id) << said.back();
    EXPECT_EQ(id.error().code(), ErrorCode::invalid_argument) << id.error().message();
    for (const auto& part : said)
      EXPECT_NE(id.error().message().find(part), std::string::npos) << id.error().message();
  }
  EXPECT_EQ(runtime.counters(), RuntimeCounters{});
}

TEST_F(SourceVariants, EqualOnesGiveTheSameIdAndOthersAnother) {
  auto runtime = open();
  const auto first = runtime.add(spec({{"sm_90a", "hopper.cu"}}));
  const auto again = runtime.add(spec({{"sm_90a", "hopper.cu"}}));
  const auto file = runtime.add(spec({{"sm_90a", "blackwell.cu"}}));
  const auto architecture = runtime.add(spec({{"sm_100a", "hopper.cu"}}));
  const auto none = runtime.add(spec({}));
  ASSERT_TRUE(first && again && file && architecture && none);
  EXPECT_EQ(*first, *again);
  for (const auto& other : {file, architecture, none}) EXPECT_NE(*first, *other);
}

}  // namespace
}  // namespace kiln::test
