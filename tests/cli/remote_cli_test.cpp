// The remote cache from the command line, with real servers and the real compiler.
#include "cli_fixture.hpp"
#include "support/remote_servers.hpp"

namespace kiln::test {
namespace {

class RemoteCli : public CliTest {
 protected:
  void make_key() {
    const auto made = kiln({"keygen", key().string(), "--json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    environment_["KILN_CACHE_SIGNERS"] = object_of(made)["public_key"];
  }
  std::filesystem::path key() const { return directory_ / "builder.key"; }
  std::vector<std::string> pushing_to(std::vector<std::string> urls) const {
    urls.insert(urls.end(), {"--secret-key", key().string()});
    return urls;
  }
  /// What it says of the remote cache.
  nlohmann::json doctor(int exit_code) const {
    const auto result = kiln({"doctor", "--json", "--cache-dir", cache().string()});
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    EXPECT_EQ((result.out + result.err).find("s3cret"), std::string::npos) << result.out;
    const auto object = object_of(result);
    for (const auto& check : object["checks"])
      if (check["name"] == "remote cache") return check;
    return {};
  }
  ProcessResult with_manifest(const std::string& verb, const char* cache,
                              std::vector<std::string> more) const {
    auto arguments = prewarm_arguments(directory_ / cache, std::move(more));
    arguments.front() = verb;
    return kiln(arguments);
  }
};

TEST_F(RemoteCli, WhatOneHostMakesTheOthersGet) {
  KILN_REQUIRES_NVRTC();
  if (!RedisServer::is_installed() || !NginxServer::is_installed()) {
    ASSERT_EQ(std::getenv("KILN_REQUIRE_SERVERS"), nullptr);
    GTEST_SKIP() << "NOT TESTED: no redis-server or nginx";
  }
  const RedisServer redis;
  const NginxServer nginx;
  ASSERT_TRUE(redis.is_up() && nginx.is_up());
  make_key();

  const auto check =
      kiln({"remote", "check", nginx.url(), redis.url(), "--secret-key", key().string(), "--json"});
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  const auto servers = object_of(check)["servers"];
  ASSERT_EQ(servers.size(), 2u);
  EXPECT_EQ(servers[0]["writes"], true);
  EXPECT_EQ(servers[1]["leases"], true);

  environment_["KILN_REMOTE"] = nginx.url() + ',' + redis.url();
  environment_["KILN_REMOTE_KEY"] = key().string();
  const auto remote = doctor(0);
  EXPECT_EQ(remote["state"], "ok") << remote.dump();
  EXPECT_EQ(remote["origin"], "KILN_REMOTE");
  EXPECT_EQ(remote["facts"]["servers"][0]["serves"], true);
  EXPECT_EQ(remote["facts"]["servers"][1]["leases"], true);
  EXPECT_EQ(remote["facts"]["signers"], 1);
  environment_.erase("KILN_REMOTE");
  environment_.erase("KILN_REMOTE_KEY");

  const std::vector<std::string> urls = {"--remote", nginx.url(), "--remote", redis.url(),
                                         "--json"};
  auto pushing = urls;
  pushing.insert(pushing.end(), {"--push", "--secret-key", key().string()});
  const auto made = with_manifest("prewarm", "one", pushing);
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(report_of(made)["compiled"], 3);
  EXPECT_NE(made.err.find("3 sent"), std::string::npos) << made.err;

  const auto warmed = with_manifest("prewarm", "two", urls);
  EXPECT_EQ(report_of(warmed)["compiled"], 0) << warmed.err;
  EXPECT_EQ(report_of(warmed)["hits"], 3);
  const auto report = report_of(warmed);
  for (const auto& kernel : report["kernels"]) EXPECT_EQ(kernel["origin"], "remote");

  const auto pulled = with_manifest("pull", "three", urls);
  EXPECT_EQ(pulled.exit_code, 0) << pulled.out << pulled.err;
  EXPECT_EQ(object_of(pulled)["done"], 3);
  EXPECT_EQ(report_of(with_manifest("prewarm", "three", {"--json"}))["hits"], 3);

  const auto sent = with_manifest("push", "three", pushing_to(urls));
  EXPECT_EQ(sent.exit_code, 0) << sent.out << sent.err;
  EXPECT_EQ(object_of(sent)["done"], 3);
  // What is on its way is not there yet.
  const NginxServer read_only("      limit_except GET { deny all; }\n");
  ASSERT_TRUE(read_only.is_up());
  const auto unsent = with_manifest("push", "three", pushing_to({"--remote", read_only.url()}));
  EXPECT_EQ(unsent.exit_code, 1);
  EXPECT_NE(unsent.err.find("access_denied"), std::string::npos) << unsent.err;
  EXPECT_NE(unsent.out.find("0 of 3 kernels arrived"), std::string::npos) << unsent.out;

  // A key that is taken off the list is not believed any longer.
  const auto other = kiln({"keygen", (directory_ / "other.key").string(), "--json"});
  environment_["KILN_CACHE_SIGNERS"] = object_of(other)["public_key"];
  const auto refused = with_manifest("pull", "four", urls);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("untrusted_signer"), std::string::npos) << refused.err;
}

TEST_F(RemoteCli, UrlsWithSecretsAreRefusedAndNotShown) {
  make_key();
  for (const auto& verb : std::vector<std::vector<std::string>>{
           {"remote", "check", "https://me:s3cret@host/kiln"},
           {"remote", "check", "https://host/kiln?key=s3cret"},
           {"pull", "--model", "deepseek-v4.1-flash", "--remote", "redis://me:s3cret@host"}}) {
    const auto result = kiln(verb);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("***"), std::string::npos) << result.err;
    EXPECT_EQ((result.out + result.err).find("s3cret"), std::string::npos) << result.err;
  }
  environment_["KILN_REMOTE"] = "https://me:s3cret@host/kiln";
  const auto doctor = kiln({"doctor"});
  EXPECT_EQ((doctor.out + doctor.err).find("s3cret"), std::string::npos) << doctor.out;
}

TEST_F(RemoteCli, AServerThatIsNotThereFailsACheckAndNoPrewarm) {
  const std::string url = "http://127.0.0.1:" + std::to_string(free_port()) + "/kiln";
  const auto check = kiln({"remote", "check", url, "--json"});
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_EQ(object_of(check)["servers"][0]["error"]["code"], "cannot_connect");
  EXPECT_EQ(kiln({"remote", "check"}).exit_code, 2);
  KILN_REQUIRES_NVRTC();
  make_key();
  const auto warmed = with_manifest("prewarm", "one", {"--remote", url, "--json"});
  EXPECT_EQ(warmed.exit_code, 0) << warmed.err;
  EXPECT_EQ(report_of(warmed)["compiled"], 3);

  environment_["KILN_REMOTE"] = url;
  const auto absent = doctor(0);
  EXPECT_EQ(absent["facts"]["servers"][0]["error"], "cannot_connect");
  EXPECT_EQ(absent["state"], "note");
  // What keeps every process from opening its cache is more than that.
  write_file(directory_ / "token", "s3cret\n");
  std::filesystem::permissions(directory_ / "token", std::filesystem::perms(0644));
  environment_["KILN_REMOTE_TOKEN"] = (directory_ / "token").string();
  auto refused = doctor(3);
  EXPECT_EQ(refused["state"], "problem");
  EXPECT_NE(refused["lines"][0].get<std::string>().find("defaultMode 0400"), std::string::npos);
  environment_.erase("KILN_REMOTE_TOKEN");
  environment_.erase("KILN_CACHE_SIGNERS");
  refused = doctor(3);
  EXPECT_EQ(refused["state"], "problem");
  EXPECT_NE(refused["cure"].get<std::string>().find("KILN_CACHE_SIGNERS"), std::string::npos);
}

}  // namespace
}  // namespace kiln::test
