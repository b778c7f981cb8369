// Manifests: the shipped ones, and each fault with the place that its error names.
#include "kernel_src/manifest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "kernel_src/kernels.hpp"
#include "support/kernels.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::kernels {
namespace {

using test::message_of;

std::string field(const KernelSpec& spec, std::string_view name) {
  const auto found = std::find_if(spec.key.begin(), spec.key.end(),
                                  [&](const auto& value) { return value.name == name; });
  return found == spec.key.end() ? "(none)" : found->value;
}

constexpr std::string_view kFp8 = "0";
constexpr std::string_view kNvfp4 = "1";

TEST(Manifest, ShippedOnesAreNamedForTheirModels) {
  const auto models = model_names();
  EXPECT_EQ(models, std::vector<std::string>{"deepseek-v4.1-flash"});
  for (const auto& model : models) {
    const auto manifest = model_manifest(model);
    ASSERT_TRUE(manifest) << message_of(manifest);
    EXPECT_EQ(manifest->model, model);
  }
}

TEST(Manifest, FlashHasTheKeysOfEachRank) {
  const struct {
    const char* tp;
    const char* heads;
  } ranks[] = {{"1", "64"}, {"2", "32"}, {"4", "16"}, {"8", "8"}};
  for (const auto& rank : ranks)
    for (const auto& [kv, record] : {std::pair{"fp8", kFp8}, std::pair{"nvfp4", kNvfp4}}) {
      const auto manifest = model_manifest("deepseek-v4.1-flash", {{"tp", rank.tp}, {"kv", kv}});
      ASSERT_TRUE(manifest) << message_of(manifest);
      EXPECT_EQ(manifest->parameters, (ManifestParameters{{"tp", rank.tp}, {"kv", kv}}));
      ASSERT_EQ(manifest->kernels.size(), 3u);
      const struct {
        std::string_view heads, record, page_slots, ratio;
      } expected[] = {
          {rank.heads, kFp8, "128", "1"}, {"0", record, "128", "1"}, {"0", record, "64", "2"}};
      for (std::size_t i = 0; i < 3; ++i) {
        const auto& spec = manifest->kernels[i];
        EXPECT_EQ(spec.name, "dsv41_kv_insert");
        EXPECT_EQ(field(spec, "heads"), expected[i].heads);
        EXPECT_EQ(field(spec, "record"), expected[i].record);
        EXPECT_EQ(field(spec, "page_slots"), expected[i].page_slots);
        EXPECT_EQ(field(spec, "ratio"), expected[i].ratio);
      }
    }
}

TEST(Manifest, WhatIsNotGivenHasItsDefault) {
  const auto manifest = model_manifest("deepseek-v4.1-flash");
  ASSERT_TRUE(manifest) << message_of(manifest);
  EXPECT_EQ(manifest->parameters, (ManifestParameters{{"tp", "1"}, {"kv", "fp8"}}));
}

TEST(Manifest, AParameterThatIsWrongOrUnknownIsNamedWithWhatIsAllowed) {
  EXPECT_NE(message_of(model_manifest("deepseek-v4.1-flash", {{"tp", "3"}})).find("1, 2, 4, 8"),
            std::string::npos);
  EXPECT_NE(message_of(model_manifest("deepseek-v4.1-flash", {{"ep", "3"}})).find("kv, tp"),
            std::string::npos);
  EXPECT_NE(message_of(model_manifest("gpt-5")).find("deepseek-v4.1-flash"), std::string::npos);
}

// A manifest of one kernel with `key`, and parameters p (1, 2) and q (fp8, bad).
std::string with_key(const std::string& key) {
  return R"({"schema": 1, "model": "m", "parameters": {"p": {"values": [1, 2], "default": 1},
            "q": {"values": ["fp8", "bad"], "default": "fp8"}},
            "kernels": [{"kernel": "dsv41_kv_insert", "key": )" +
         key + "}]}";
}
// The same where `field` has `value` and the others are good.
std::string with_field(const std::string& name, const std::string& value) {
  std::string key;
  for (const auto& [field_name, good] :
       {std::pair{"heads", "0"}, {"record", "\"fp8\""}, {"page_slots", "64"}, {"ratio", "1"}})
    key += std::string(key.empty() ? "{" : ", ") + "\"" + field_name +
           "\": " + (field_name == name ? value : good);
  return with_key(key + "}");
}

TEST(Manifest, EachFaultNamesItsPlaceAndWhatIsAllowed) {
  const struct {
    std::string text;
    std::vector<std::string> said;
  } faults[] = {
      {"", {"m.json: line 1, column 1: "}},
      {"{\n  \"schema\": 1,\n  \"model\" \"m\"\n}", {"m.json: line 3, column 13: "}},
      {"{\n  \"schema\": 1,\n}", {"m.json: line 3, column 1: "}},
      {"{} {}", {"m.json: line 1, column 4: "}},
      {"// no\n{}", {"m.json: line 1, column 1: "}},
      {"{\"a\": \"\xff\"}", {"m.json: line 1, column 8: "}},
      {"{\"schema\": 1,\n \"schema\": 1}", {"line 2, column 9: ", "\"schema\" appears twice"}},
      // Deep enough to crash whoever shows it by recursion; the second is never closed.
      {"\n" + std::string(200'000, '[') + std::string(200'000, ']'),
       {"m.json: line 2, column 65: is nested deeper than 64"}},
      {"{\"schema\":" + std::string(200'000, '['), {"m.json: line 1, column 74: is nested"}},
      {with_field("heads", "1e400"),
       {"m.json: line 3, column ", ": number overflow parsing '1e400'"}},
      {with_field("heads", "[[1]]"), {"at /kernels/0/key/heads: is [[1]], must be"}},
      {"[]", {"at the top: is [], must be an object", "schema, model, kernels, parameters"}},
      {"{}", {"at /schema: is missing"}},
      {R"({"schema": 2, "modell": 1})", {"at /schema: is 2, must be 1"}},
      {R"({"schema": 1, "model": "m", "kernels": [], "extra": 1})",
       {"at /extra: no such member", "schema, model, kernels, parameters"}},
      {R"({"schema": 1, "model": "", "kernels": []})", {"at /model: is \"\", must be a text"}},
      {R"({"schema": 1, "model": "m", "kernels": []})", {"at /kernels: is [], must be"}},
      {R"({"schema": 1, "model": "m", "kernels": [3]})",
       {"at /kernels/0: is 3, must be an object", "kernel, key, purpose"}},
      {R"({"schema": 1, "model": "m", "kernels": [{"kernel": "nope", "key": {}}]})",
       {"at /kernels/0/kernel: is \"nope\"", "dsv41_kv_insert"}},
      {R"({"schema": 1, "model": "m", "kernels": [{"kernel": 7, "key": {}}]})",
       {"at /kernels/0/kernel: is 7"}},
      {R"({"schema": 1, "model": "m", "parameters": [], "kernels": []})", {"at /parameters: "}},
      {R"({"schema": 1, "model": "m", "parameters": {"a/b": {"values": 3}}, "kernels": []})",
       {"at /parameters/a~1b/values: is 3"}},
      {R"({"schema": 1, "model": "m", "parameters": {"p": {"values": [1.5]}}, "kernels": []})",
       {"at /parameters/p/values/0: is 1.5, must be a whole number"}},
      {R"({"schema": 1, "model": "m", "parameters": {"p": {"values": [1, "1"]}}, "kernels": []})",
       {"at /parameters/p/values/1: \"1\" is listed twice"}},
      {R"({"schema": 1, "model": "m", "parameters": {"p": {"values": [1], "default": 2}},
          "kernels": []})",
       {"at /parameters/p/default: is 2, must be one of 1"}},
      {R"({"schema": 1, "model": "m", "parameters": {"p": {"values": [1, 2]}}, "kernels": []})",
       {"the parameter p has no default", "1, 2"}},
      {with_key("{}"), {"at /kernels/0/key/heads: is missing"}},
      {with_key("4"), {"at /kernels/0/key: is 4", "heads, record, page_slots, ratio"}},
      {with_key(R"({"heads": 0, "record": "fp8", "page_slots": 64, "ratio": 1, "rank": 1})"),
       {"at /kernels/0/key/rank: no such member", "heads, record, page_slots, ratio"}},
      {with_field("heads", "-1"),
       {"at /kernels/0/key/heads: is -1, must be a whole number from 0"}},
      {with_field("heads", "4294967296"), {"at /kernels/0/key/heads: ", "to 4294967295"}},
      {with_field("heads", "18446744073709551616"), {"at /kernels/0/key/heads: "}},
      {with_field("heads", "1.0"), {"at /kernels/0/key/heads: is 1.0, must be a whole number"}},
      {with_field("heads", "\"8\""), {"at /kernels/0/key/heads: is \"8\""}},
      {with_field("heads", "true"), {"at /kernels/0/key/heads: is true"}},
      {with_field("heads", "null"), {"at /kernels/0/key/heads: is null"}},
      {with_field("heads", "65"), {"at /kernels/0/key: ", "heads", "65"}},
      {with_field("record", "\"fp4\""),
       {"at /kernels/0/key/record: is \"fp4\", must be one of \"fp8\", \"nvfp4\""}},
      {with_field("record", "1"), {"at /kernels/0/key/record: is 1"}},
      {with_field("ratio", "3"), {"at /kernels/0/key: ", "ratio", "3"}},
      {with_field("ratio", R"({"parameter": "x"})"),
       {"at /kernels/0/key/ratio/parameter: is \"x\"", "p, q"}},
      {with_field("ratio", R"({"parameter": "p", "by": "p"})"),
       {"at /kernels/0/key/ratio/by: no such member"}},
      // What another value of the parameter would make wrong is wrong now.
      {with_field("record", R"({"parameter": "q"})"), {"at /kernels/0/key/record: is \"bad\""}},
      {with_field("ratio", R"({"by": "p"})"), {"at /kernels/0/key/ratio/values: is missing"}},
      {with_field("ratio", R"({"by": "p", "values": {"1": 1}})"),
       {"at /kernels/0/key/ratio/values/2: is missing"}},
      {with_field("ratio", R"({"by": "p", "values": {"1": 1, "2": 2, "3": 1}})"),
       {"at /kernels/0/key/ratio/values/3: no such member", "1, 2"}},
      {with_field("ratio", R"({"by": "p", "values": {"1": 1, "2": "x"}})"),
       {"at /kernels/0/key/ratio/values/2: is \"x\""}},
      {with_field("ratio", R"({"by": 3, "values": {}})"), {"at /kernels/0/key/ratio/by: is 3"}},
  };
  for (const auto& fault : faults) {
    const auto manifest = read_manifest(fault.text, "m.json");
    ASSERT_FALSE(manifest) << fault.text;
    EXPECT_EQ(manifest.error().code(), ErrorCode::invalid_argument) << fault.text;
    const auto message = manifest.error().message();
    EXPECT_EQ(message.rfind("m.json: ", 0), 0u) << message;
    for (const auto& said : fault.said)
      EXPECT_NE(message.find(said), std::string::npos) << fault.text << "\nsays: " << message;
  }
}

TEST(Manifest, AGoodFieldStandsForItsLiteral) {
  const auto manifest = read_manifest(
      with_field("ratio", R"({"by": "p", "values": {"1": 1, "2": 2}})"), "m.json", {{"p", "2"}});
  ASSERT_TRUE(manifest) << message_of(manifest);
  EXPECT_EQ(field(manifest->kernels.front(), "ratio"), "2");
}

TEST(Manifest, EqualKernelsCountOnce) {
  const std::string kernel =
      R"({"kernel": "dsv41_kv_insert",
          "key": {"heads": 0, "record": "fp8", "page_slots": 64, "ratio": 1}})";
  const auto manifest = read_manifest(
      R"({"schema": 1, "model": "m", "kernels": [)" + kernel + "," + kernel + "]}", "m.json");
  ASSERT_TRUE(manifest) << message_of(manifest);
  EXPECT_EQ(manifest->kernels.size(), 1u);
}

TEST(Manifest, FilesAreReadAndWhatIsNoFileIsRefused) {
  const test::TemporaryDirectory directory;
  test::write_file(directory / "m.json", with_field("heads", "8"));
  const auto good = read_manifest_file(directory / "m.json");
  EXPECT_TRUE(good) << message_of(good);
  const auto absent = message_of(read_manifest_file(directory / "none.json"));
  EXPECT_NE(absent.find("none.json cannot be read: No such file"), std::string::npos) << absent;
  EXPECT_NE(message_of(read_manifest_file(directory.path())).find("is not a file"),
            std::string::npos);
}

TEST(Manifest, EveryKernelCanBeRegistered) {
  auto runtime = Runtime::open({});
  ASSERT_TRUE(runtime) << message_of(runtime);
  const auto added = add_sources(*runtime);
  ASSERT_TRUE(added) << message_of(added);
  for (const auto& model : model_names()) {
    const auto manifest = model_manifest(model);
    ASSERT_TRUE(manifest) << message_of(manifest);
    for (const auto& spec : manifest->kernels) {
      const auto id = runtime->add(spec);
      EXPECT_TRUE(id) << message_of(id);
    }
  }
}

}  // namespace
}  // namespace kiln::kernels
