// kiln cache ls, show and verify over a cache that kiln prewarm has filled.
#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

class CacheVerbs : public CliTest {
 protected:
  void SetUp() override {
    KILN_REQUIRES_NVRTC();
    filled_ = report_of(prewarm({"--json"}));
    ASSERT_EQ(filled_["compiled"], 3);
  }

  std::string key(std::size_t kernel) const { return filled_["kernels"][kernel]["key"]; }
  ProcessResult verb(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "cache");
    arguments.insert(arguments.end(), {"--cache-dir", cache().string()});
    return kiln(arguments);
  }

  nlohmann::json filled_;
};

TEST_F(CacheVerbs, LsListsEveryKey) {
  const auto text = verb({"ls"});
  EXPECT_EQ(text.exit_code, 0);
  const auto json = object_of(verb({"ls", "--json"}));
  ASSERT_EQ(json["entries"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(text.out.find(key(i)), std::string::npos);
  for (const auto& entry : json["entries"]) {
    EXPECT_EQ(entry["kernel"], "dsv41_kv_insert");
    EXPECT_EQ(entry["arch"], "sm_90a");
    EXPECT_GT(entry["file_bytes"].get<std::size_t>(), 0u);
  }
}

TEST_F(CacheVerbs, LsOutlivesItsReader) {
  auto wish = request({"cache", "ls", "--cache-dir", cache().string()});
  const auto program = wish.arguments.front();
  // The shell reports how the left side of the pipe ended.
  wish.arguments = {"/bin/bash", "-c",
                    "{ sleep 0.3; '" + program + "' cache ls --cache-dir '" + cache().string() +
                        "'; echo \"ended $?\" >&2; } | true"};
  const auto result = run_process(wish);
  EXPECT_EQ(result.err, "ended 0\n");
}

TEST_F(CacheVerbs, AResultThatCannotBeWrittenIsAFailure) {
  auto wish = request({});
  wish.arguments = {"/bin/sh", "-c",
                    "'" + wish.arguments.front() + "' cache ls --cache-dir '" + cache().string() +
                        "' > /dev/full"};
  const auto result = run_process(wish);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("standard output"), std::string::npos) << result.err;
}

TEST_F(CacheVerbs, ShowTakesAKeyOrItsStart) {
  for (const auto& name : {key(0), key(0).substr(0, 12)}) {
    const auto shown = verb({"show", name, "--json"});
    ASSERT_EQ(shown.exit_code, 0) << shown.err;
    const auto json = object_of(shown);
    EXPECT_EQ(json["key"], key(0));
    EXPECT_EQ(json["bytes"], filled_["kernels"][0]["bytes"]);
    EXPECT_EQ(json["facts"]["kernel"], "dsv41_kv_insert");
    EXPECT_NE(json["key_text"].get<std::string>().find("dsv41_kv_insert"), std::string::npos);
  }
  auto upper = key(0);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto text = verb({"show", upper});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("registers"), std::string::npos) << text.out;
}

TEST_F(CacheVerbs, ShowOfAMissingKeyExits1AndOfAnAmbiguousOneListsThem) {
  const auto missing = verb({"show", std::string(32, '0'), "--json"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(object_of(missing)["error"]["code"], "not_found");

  // Two entries of one name up to the last digit: the file's name alone counts for the search.
  const auto file = entries().front();
  auto twin = file.string();
  twin.back() = twin.back() == '0' ? '1' : '0';
  std::filesystem::copy_file(file, twin);
  const auto start = file.parent_path().filename().string() + file.filename().string();
  const auto ambiguous = verb({"show", start.substr(0, 31)});
  EXPECT_EQ(ambiguous.exit_code, 2);
  EXPECT_NE(ambiguous.err.find(start), std::string::npos) << ambiguous.err;
}

TEST_F(CacheVerbs, VerifyExits1AndNamesWhatIsDamaged) {
  EXPECT_EQ(verb({"verify"}).exit_code, 0);
  const auto file = entries().front();
  const auto name = file.parent_path().filename().string() + file.filename().string();
  auto bytes = read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(file, bytes);

  const auto text = verb({"verify"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_NE(text.out.find(name), std::string::npos) << text.out;
  const auto json = verb({"verify", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  const auto object = object_of(json);
  EXPECT_EQ(object["checked"], 3);
  ASSERT_EQ(object["damaged"].size(), 1u);
  EXPECT_EQ(object["damaged"][0]["key"], name);
  EXPECT_EQ(verb({"show", name}).exit_code, 1);

  // The next prewarm repairs it, with one warning.
  const auto repaired = prewarm({"--json"});
  EXPECT_EQ(report_of(repaired)["compiled"], 1);
  EXPECT_NE(repaired.err.find("damaged"), std::string::npos) << repaired.err;
  EXPECT_EQ(verb({"verify"}).exit_code, 0);
}

}  // namespace
}  // namespace kiln::test
