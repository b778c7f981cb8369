// kiln cache ls, show and verify over a cache that kiln prewarm has filled.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli_fixture.hpp"
#include "kiln/cache/store.hpp"

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

TEST_F(CacheVerbs, LsTellsEntriesOfOneKernelApart) {
  const auto text = verb({"ls"}).out;
  EXPECT_NE(text.find("ratio=2"), std::string::npos) << text;
  std::map<std::string, int> ratios;
  const auto json = object_of(verb({"ls", "--json"}));
  for (const auto& entry : json["entries"])
    ++ratios[entry["constants"]["ratio"].get<std::string>()];
  EXPECT_EQ(ratios, (std::map<std::string, int>{{"1", 2}, {"2", 1}}));
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

TEST_F(CacheVerbs, LsSortsBySizeAndUse) {
  std::vector<std::size_t> sizes;
  const auto by_size = object_of(verb({"ls", "--sort", "size", "--json"}));
  for (const auto& entry : by_size["entries"]) sizes.push_back(entry["file_bytes"]);
  EXPECT_EQ(sizes.size(), 3u);
  EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
  const auto oldest = entries().front();
  std::filesystem::last_write_time(
      oldest, std::filesystem::file_time_type::clock::now() - std::chrono::hours(50));
  const auto by_use = object_of(verb({"ls", "--sort", "used", "--json"}));
  EXPECT_EQ(by_use["entries"][2]["key"],
            oldest.parent_path().filename().string() + oldest.filename().string());
  EXPECT_EQ(verb({"ls", "--sort", "colour"}).exit_code, 2);
}

TEST_F(CacheVerbs, StatTrimAndClearCountAlike) {
  const auto before = object_of(verb({"stat", "--json"}));
  EXPECT_EQ(before["entries"], 3);
  EXPECT_EQ(before["kept_totals"]["bytes"], before["total_bytes"]);
  EXPECT_NE(verb({"stat"}).out.find("exact"), std::string::npos);

  const auto plan = object_of(verb({"trim", "--max-bytes", "1K", "--dry-run", "--json"}));
  EXPECT_EQ(plan["removed"].size(), 3u);
  EXPECT_EQ(entries().size(), 3u);
  const auto oldest = entries().back();
  std::filesystem::last_write_time(
      oldest, std::filesystem::file_time_type::clock::now() - std::chrono::hours(50));
  EXPECT_EQ(object_of(verb({"trim", "--older-than", "3d", "--json"}))["removed"].size(), 0u);
  const auto trimmed = object_of(verb({"trim", "--older-than", "2d", "--json"}));
  ASSERT_EQ(trimmed["removed"].size(), 1u);
  EXPECT_EQ(trimmed["left"]["count"], 2);
  EXPECT_FALSE(std::filesystem::exists(oldest));
  EXPECT_EQ(object_of(verb({"trim", "--json"}))["removed"].size(), 0u) << "below the limit";
  for (const auto* bad : {"x", "-1", "1Q", ""})
    EXPECT_EQ(verb({"trim", "--max-bytes", bad, "--older-than", "x"}).exit_code, 2) << bad;

  EXPECT_EQ(object_of(verb({"clear", "--json"}))["removed"], 2);
  EXPECT_EQ(object_of(verb({"stat", "--json"}))["entries"], 0);
  EXPECT_EQ(report_of(prewarm({"--json"}))["compiled"], 3);
}

TEST_F(CacheVerbs, VerifyRepairsAndQuarantines) {
  write_file(entries().front(), "damaged");
  EXPECT_EQ(verb({"verify", "--quarantine"}).exit_code, 2);
  const auto repaired = object_of(verb({"verify", "--repair", "--quarantine", "--json"}));
  EXPECT_EQ(repaired["repaired"], 1);
  EXPECT_EQ(object_of(verb({"stat", "--json"}))["quarantine"]["count"], 1);
  EXPECT_EQ(verb({"verify"}).exit_code, 0);
  EXPECT_EQ(entries().size(), 2u);
}

TEST_F(CacheVerbs, GcRemovesWhatAKilledWriterLeft) {
  const auto left = entries().front().parent_path() / ".tmp-00000000000000aa";
  write_file(left, "x");
  EXPECT_EQ(object_of(verb({"gc", "--json"}))["removed"], 0);
  std::filesystem::last_write_time(
      left, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_EQ(object_of(verb({"gc", "--json"}))["removed"], 1);
}

TEST_F(CacheVerbs, ACacheThatOthersMayWriteIsRefusedWithTheCure) {
  std::filesystem::permissions(cache(), std::filesystem::perms(0777));
  for (const auto* name : {"ls", "verify", "stat", "trim", "clear", "gc"}) {
    const auto refused = verb({name});
    EXPECT_EQ(refused.exit_code, 3) << name;
    EXPECT_NE(refused.err.find("chmod go-w"), std::string::npos) << name << refused.err;
  }
  const auto prewarmed = prewarm({"--json"});
  EXPECT_EQ(prewarmed.exit_code, 1);
  EXPECT_EQ(report_of(prewarmed)["not_stored"], 3);
}

TEST_F(CacheVerbs, AProgramWithMoreRightsThanItsCallerTakesNothingFromTheEnvironment) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer does not start in a setuid program";
#endif
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
  struct statvfs mount {};
  if (::statvfs(directory_.path().c_str(), &mount) != 0 || (mount.f_flag & ST_NOSUID) != 0)
    GTEST_SKIP() << "no program runs as its owner from here";
  const auto program = directory_ / "kiln";
  std::filesystem::copy_file(KILN_CLI_PATH, program);
  environment_["KILN_CACHE_DIR"] = home().string();
  for (const ::mode_t mode : {0755u, 04755u}) {
    ASSERT_EQ(::chmod(program.c_str(), mode), 0);
    auto wish = request({"cache", "stat"});
    wish.arguments[0] = program.string();
    wish.user = kNobody;
    const auto result = run_process(wish);
    EXPECT_EQ(result.exit_code, mode == 0755 ? 0 : 3) << result.err;
    if (mode != 0755) {
      EXPECT_NE(result.err.find("no cache directory"), std::string::npos) << result.err;
    }
  }
}

TEST_F(CacheVerbs, APrewarmTakesWhatAReadOnlyCacheHas) {
  const auto other = directory_ / "other";
  const auto result =
      kiln(prewarm_arguments(other, {"--cache-readonly", cache().string(), "--json"}));
  const auto report = report_of(result);
  EXPECT_EQ(report["hits"], 3);
  for (const auto& kernel : report["kernels"]) EXPECT_EQ(kernel["origin"], "lower tier");
  EXPECT_FALSE(std::filesystem::exists(other / "v1" / "e"));
}

TEST_F(CacheVerbs, VerifyRebuildsASampleAndNoticesOtherCode) {
  const auto good = verb({"verify", "--rebuild-sample", "2", "--json"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(object_of(good)["rebuilt"]["same"], 2);

  // A whole entry, right in every digest, whose code is not what its key compiles to; and one whose
  // source is nowhere.
  auto store = cache::Store::open({.directory = cache()});
  ASSERT_TRUE(store);
  const auto name = *cache::Digest::from_hex(key(0));
  std::string key_text, facts;
  std::vector<std::byte> code;
  {
    const auto entry = store->read(name);
    ASSERT_TRUE(entry);
    key_text = entry->key_text();
    facts = entry->facts();
    code.assign(entry->payload().begin(), entry->payload().end());
  }
  code[code.size() / 2] ^= std::byte{1};
  ASSERT_TRUE(store->discard(name));
  ASSERT_TRUE(store->publish(key_text, facts, code));
  ASSERT_TRUE(store->publish("kernel 3 own\nsource 10 own.cu 012\n", "{}", code));
  EXPECT_EQ(verb({"verify"}).exit_code, 0) << "only a rebuild can tell";
  const auto bad = verb({"verify", "--rebuild-sample", "9", "--json"});
  EXPECT_EQ(bad.exit_code, 1);
  const auto rebuilt = object_of(bad)["rebuilt"];
  EXPECT_EQ(rebuilt["same"], 2);
  ASSERT_EQ(rebuilt["different"].size(), 1u);
  EXPECT_EQ(rebuilt["different"][0]["key"], key(0));
  ASSERT_EQ(rebuilt["skipped"].size(), 1u);
  EXPECT_EQ(verb({"verify", "--rebuild-sample", "x"}).exit_code, 2);
}

TEST_F(CacheVerbs, TheDoctorLooksAtReadOnlyCaches) {
  const auto check = [&] {
    const auto checks =
        object_of(kiln({"doctor", "--json", "--cache-readonly", cache().string(),
                        "--cache-readonly", (directory_ / "absent").string()}))["checks"];
    for (const auto& each : checks)
      if (each["name"] == "read-only caches") return each;
    return nlohmann::json();
  };
  const auto good = check();
  EXPECT_EQ(good["state"], "note") << good;
  EXPECT_EQ(good["origin"], "--cache-readonly");
  EXPECT_NE(good.dump().find("3 entries"), std::string::npos) << good;
  EXPECT_NE(good.dump().find("does not exist"), std::string::npos) << good;
  std::filesystem::permissions(cache(), std::filesystem::perms(0777));
  const auto bad = check();
  EXPECT_EQ(bad["state"], "problem") << bad;
  EXPECT_NE(bad.dump().find("chmod go-w"), std::string::npos) << bad;
}

}  // namespace
}  // namespace kiln::test
