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
  EXPECT_EQ(models, (std::vector<std::string>{"deepseek-v4.1-flash", "kimi-k3"}));
  for (const auto& model : models) {
    const auto manifest = model_manifest(model);
    ASSERT_TRUE(manifest) << message_of(manifest);
    EXPECT_EQ(manifest->model, model);
  }
}

// The key fields of `spec`, each as "name value".
std::vector<std::string> fields(const KernelSpec& spec) {
  std::vector<std::string> texts;
  for (const auto& value : spec.key) texts.push_back(value.name + " " + value.value);
  return texts;
}

TEST(Manifest, FlashHasTheKeysOfEachRank) {
  const struct {
    std::string tp, heads;
    bool swapab;
  } ranks[] = {{"1", "64", false}, {"2", "32", true}, {"4", "16", true}, {"8", "8", false}};
  for (const auto& rank : ranks)
    for (const auto& [kv, record] : {std::pair{"fp8", kFp8}, std::pair{"nvfp4", kNvfp4}}) {
      SCOPED_TRACE("tp " + rank.tp + ", kv " + kv);
      const auto manifest = model_manifest("deepseek-v4.1-flash", {{"tp", rank.tp}, {"kv", kv}});
      ASSERT_TRUE(manifest) << message_of(manifest);
      EXPECT_EQ(manifest->parameters, (ManifestParameters{{"tp", rank.tp}, {"kv", kv}}));
      const auto heads = "heads " + rank.heads;
      const auto of_record = "record " + std::string(record);
      std::vector<std::pair<std::string, std::vector<std::string>>> expected = {
          {"dsv41_kv_insert", {heads, "record 0", "page_slots 128", "ratio 1"}},
          {"dsv41_kv_insert", {"heads 0", of_record, "page_slots 128", "ratio 1"}},
          {"dsv41_kv_insert", {"heads 0", of_record, "page_slots 64", "ratio 2"}}};
      if (rank.swapab)
        for (const auto* page_slots : {"page_slots 128", "page_slots 64"})
          expected.push_back({"dsv41_swapab_decode",
                              {heads, "swa_slots 128", "compressed_slots 512", of_record,
                               "swa_page_slots 128", page_slots}});
      expected.push_back({"dsv41_mega_decode",
                          {heads, "swa_slots 128", "compressed_slots 0", "record 0",
                           "swa_page_slots 128", "page_slots 128"}});
      for (const auto* page_slots : {"page_slots 128", "page_slots 64"})
        expected.push_back({"dsv41_mega_decode",
                            {heads, "swa_slots 128", "compressed_slots 512", of_record,
                             "swa_page_slots 128", page_slots}});
      ASSERT_EQ(manifest->kernels.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(manifest->kernels[i].name, expected[i].first);
        EXPECT_EQ(fields(manifest->kernels[i]), expected[i].second);
      }
    }
}

TEST(Manifest, KimiHasTheRowTilesOfEachRank) {
  const auto row_tiles = [](const char* tp) {
    std::vector<std::string> found;
    const auto manifest = model_manifest("kimi-k3", {{"tp", tp}});
    EXPECT_TRUE(manifest) << message_of(manifest);
    if (manifest)
      for (const auto& kernel : manifest->kernels)
        for (const auto& field : fields(kernel)) found.push_back(field);
    return found;
  };
  const std::vector<std::string> of_many_rows = {"row_tile 96", "row_tile 128", "row_warps 1",
                                                 "row_warps 2", "row_warps 4",  "row_warps 0"};
  EXPECT_EQ(row_tiles("1"), of_many_rows);
  std::vector<std::string> all = {"row_tile 16", "row_tile 32", "row_tile 48", "row_tile 64"};
  all.insert(all.end(), of_many_rows.begin(), of_many_rows.end());
  EXPECT_EQ(row_tiles("8"), all);
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

// A manifest of one kernel with `key`, and parameters p (1, 2) and q (fp8, bad). `more` are further
// members of the kernel.
std::string with_key(const std::string& key, const std::string& more = {}) {
  return R"({"schema": 1, "model": "m", "parameters": {"p": {"values": [1, 2], "default": 1},
            "q": {"values": ["fp8", "bad"], "default": "fp8"}},
            "kernels": [{"kernel": "dsv41_kv_insert", "key": )" +
         key + more + "}]}";
}
// The same where `field` has `value` and the others are good.
std::string with_field(const std::string& name, const std::string& value,
                       const std::string& more = {}) {
  std::string key;
  for (const auto& [field_name, good] :
       {std::pair{"heads", "0"}, {"record", "\"fp8\""}, {"page_slots", "64"}, {"ratio", "1"}})
    key += std::string(key.empty() ? "{" : ", ") + "\"" + field_name +
           "\": " + (field_name == name ? value : good);
  return with_key(key + "}", more);
}
// The same where all is good, needed as `when` says.
std::string with_when(const std::string& when) {
  return with_field("heads", "0", R"(, "when": )" + when);
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
       {"at /kernels/0: is 3, must be an object", "kernel, key, purpose, when"}},
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
      {R"({"schema": 1, "model": "m", "parameters": {"p": {"values": [1], "default": 1.0}},
          "kernels": []})",
       {"at /parameters/p/default: is 1.0, must be one of 1"}},
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
      {with_when("3"), {"at /kernels/0/when: is 3, must be an object of parameters"}},
      {with_when("[\"p\"]"), {"at /kernels/0/when: is [\"p\"], must be an object"}},
      {with_when("{}"), {"at /kernels/0/when: is {}, must be an object"}},
      {with_when(R"({"p": [1], "x": [1]})"),
       {"at /kernels/0/when/x: no such parameter; known: p, q"}},
      {R"({"schema": 1, "model": "m", "kernels": [{"kernel": "dsv41_kv_insert", "key": {},
          "when": {"p": [1]}}]})",
       {"at /kernels/0/when/p: no such parameter, and the manifest has none"}},
      {with_when(R"({"p": 1})"), {"at /kernels/0/when/p: is 1, must be an array of values of p"}},
      {with_when(R"({"p": []})"), {"at /kernels/0/when/p: is [], must be an array"}},
      {with_when(R"({"p": {"1": 2}})"), {"at /kernels/0/when/p: is {\"1\":2}, must be an array"}},
      {with_when(R"({"p": [1, 3]})"), {"at /kernels/0/when/p/1: is 3, must be one of 1, 2"}},
      {with_when(R"({"p": ["1"]})"), {"at /kernels/0/when/p/0: is \"1\", must be one of 1, 2"}},
      {with_when(R"({"p": [2.0]})"), {"at /kernels/0/when/p/0: is 2.0, must be one of 1, 2"}},
      {with_when(R"({"p": [null]})"), {"at /kernels/0/when/p/0: is null"}},
      {with_when(R"({"p": [2, 1, 2]})"), {"at /kernels/0/when/p/2: 2 is listed twice"}},
      // A field has values where the kernel is needed and nowhere else; p is 1 here.
      {with_field("ratio", R"({"by": "p", "values": {"1": 1, "2": 2}})", R"(, "when": {"p": [2]})"),
       {"at /kernels/0/key/ratio/values/1: no such member; known: 2"}},
      {with_field("ratio", R"({"by": "p", "values": {}})", R"(, "when": {"p": [2]})"),
       {"at /kernels/0/key/ratio/values/2: is missing"}},
      {with_field("ratio", R"({"by": "p", "values": {"2": "x"}})", R"(, "when": {"p": [2]})"),
       {"at /kernels/0/key/ratio/values/2: is \"x\""}},
      {with_field("record", R"({"parameter": "q"})", R"(, "when": {"q": ["bad"]})"),
       {"at /kernels/0/key/record: is \"bad\""}},
      {with_field("heads", "-1", R"(, "when": {"p": [2]})"), {"at /kernels/0/key/heads: is -1"}},
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

TEST(Manifest, AKernelIsNeededWhereEachNamedParameterHasAListedValue) {
  const struct {
    const char* when;
    std::vector<std::pair<std::string, std::string>> needed;  // p and q
  } cases[] = {
      {R"({"p": [2]})", {{"2", "bad"}, {"2", "fp8"}}},
      {R"({"p": [2, 1]})", {{"1", "bad"}, {"1", "fp8"}, {"2", "bad"}, {"2", "fp8"}}},
      {R"({"p": [1], "q": ["fp8"]})", {{"1", "fp8"}}},
      {R"({"q": ["bad"]})", {{"1", "bad"}, {"2", "bad"}}},
  };
  for (const auto& [when, needed] : cases) {
    std::vector<std::pair<std::string, std::string>> got;
    for (const auto* p : {"1", "2"})
      for (const auto* q : {"bad", "fp8"}) {
        const auto manifest = read_manifest(with_when(when), "m.json", {{"p", p}, {"q", q}});
        ASSERT_TRUE(manifest) << message_of(manifest);
        if (!manifest->kernels.empty()) got.emplace_back(p, q);
      }
    EXPECT_EQ(got, needed) << when;
  }
}

TEST(Manifest, AFieldNeedsValuesOnlyWhereItsKernelIsNeeded) {
  const auto by =
      with_field("ratio", R"({"by": "p", "values": {"2": 2}})", R"(, "when": {"p": [2]})");
  const auto needed = read_manifest(by, "m.json", {{"p", "2"}});
  ASSERT_TRUE(needed) << message_of(needed);
  ASSERT_EQ(needed->kernels.size(), 1u);
  EXPECT_EQ(field(needed->kernels.front(), "ratio"), "2");
  const auto idle = read_manifest(by, "m.json", {{"p", "1"}});
  ASSERT_TRUE(idle) << message_of(idle);
  EXPECT_EQ(idle->kernels.size(), 0u);

  // q could be "bad", which is no record, but not where the kernel is needed.
  const auto parameter =
      with_field("record", R"({"parameter": "q"})", R"(, "when": {"q": ["fp8"]})");
  for (const auto& [q, kernels] : {std::pair{"fp8", 1u}, std::pair{"bad", 0u}}) {
    const auto manifest = read_manifest(parameter, "m.json", {{"q", q}});
    ASSERT_TRUE(manifest) << message_of(manifest);
    EXPECT_EQ(manifest->kernels.size(), kernels) << q;
  }
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
  for (const auto& model : model_names())
    for (const auto* tp : {"1", "2", "4", "8"}) {
      const auto manifest = model_manifest(model, {{"tp", tp}});
      if (model == "kimi-k3" && (tp == std::string_view("2") || tp == std::string_view("4"))) {
        EXPECT_FALSE(manifest) << "its layer has 96 or 12 heads";
        continue;
      }
      ASSERT_TRUE(manifest) << message_of(manifest);
      for (const auto& spec : manifest->kernels) {
        const auto id = runtime->add(spec);
        EXPECT_TRUE(id) << message_of(id);
      }
    }
}

}  // namespace
}  // namespace kiln::kernels
