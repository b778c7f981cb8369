// kiln keygen and kiln bundle: entries from one cache into another, by way of a signed file.
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "cli_fixture.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::test {
namespace {

// "label length value", as the runtime writes key texts.
std::string field(const std::string& label, const std::string& value) {
  return label + ' ' + std::to_string(value.size()) + ' ' + value + '\n';
}

class BundleVerbs : public CliTest {
 protected:
  void SetUp() override {
    auto store = cache::Store::open({.directory = cache()});
    ASSERT_TRUE(store);
    for (const std::string arch : {"sm_90a", "sm_100a"}) {
      const auto key = field("kernel", "scale") + field("architecture", arch) +
                       field("toolchain", "nvrtc 13.0 ab builtins cd");
      const std::string payload = "code for " + arch;
      ASSERT_TRUE(store->publish(key, R"({"kernel": "scale"})", std::as_bytes(std::span(payload))));
    }
    const auto made = kiln({"keygen", secret_key()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  std::string secret_key() const { return (directory_ / "kiln.key").string(); }
  std::string public_key() const { return secret_key() + ".pub"; }
  std::string file() const { return (directory_ / "kernels.kiln").string(); }

  ProcessResult pack(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"bundle", "pack", file(), "--cache-dir",
                                          cache().string()};
    if (more.empty()) more = {"--secret-key", secret_key()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kiln(arguments);
  }
  std::set<std::string> files_below(const std::filesystem::path& directory) const {
    std::set<std::string> files;
    for (const auto& each : std::filesystem::recursive_directory_iterator(directory))
      if (each.is_regular_file())
        files.insert(each.path().lexically_relative(directory).string() + ' ' +
                     read_file(each.path()));
    return files;
  }
};

TEST_F(BundleVerbs, CarryTheEntriesOfOneCacheIntoAnother) {
  const auto packed = pack({"--secret-key", secret_key(), "--json"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  auto json = object_of(packed);
  EXPECT_EQ(json["entries"], 2);
  EXPECT_EQ(json["file_bytes"], std::filesystem::file_size(file()));
  EXPECT_EQ(json["signer"].get<std::string>() + '\n', read_file(public_key()));

  const auto other = (directory_ / "other").string();
  const std::vector<std::string> unpack = {"bundle",   "unpack",     file(),        "--json",
                                           "--signer", public_key(), "--cache-dir", other};
  const auto unpacked = kiln(unpack);
  ASSERT_EQ(unpacked.exit_code, 0) << unpacked.err;
  EXPECT_EQ(object_of(unpacked)["added"], 2);
  EXPECT_EQ(object_of(unpacked)["already_there"], 0);
  EXPECT_EQ(files_below(std::filesystem::path(other) / "v1/e"), files_below(cache() / "v1/e"));
  // A machine without a compiler learns from the record which toolchain to ask for.
  EXPECT_EQ(cache::Store::open({.directory = other})->records("toolchain"),
            (std::vector<std::string>{"nvrtc 13.0 ab builtins cd"}));
  EXPECT_EQ(object_of(kiln(unpack))["already_there"], 2);

  // The same from a second cache, into the same bytes.
  const auto bytes = read_file(file());
  ASSERT_EQ(kiln({"bundle", "pack", file(), "--cache-dir", other, "--secret-key", secret_key()})
                .exit_code,
            0);
  EXPECT_EQ(read_file(file()), bytes);
}

TEST_F(BundleVerbs, LsTellsWhatIsInABundleWhoeverSignedIt) {
  ASSERT_EQ(pack().exit_code, 0);
  const auto text = kiln({"bundle", "ls", file()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("sm_100a   scale\n"), std::string::npos) << text.out;
  const auto json = object_of(kiln({"bundle", "ls", file(), "--json"}));
  ASSERT_EQ(json["entries"].size(), 2u);
  for (const auto& entry : json["entries"]) {
    EXPECT_EQ(entry["kernel"], "scale");
    EXPECT_EQ(entry["toolchain"], "nvrtc 13.0 ab builtins cd");
    EXPECT_EQ(entry["sha256"].get<std::string>().size(), 64u);
  }
  ASSERT_EQ(pack({"--unsigned"}).exit_code, 0);
  EXPECT_NE(kiln({"bundle", "ls", file()}).out.find("unsigned"), std::string::npos);
  EXPECT_TRUE(object_of(kiln({"bundle", "ls", file(), "--json"}))["signer"].is_null());
}

TEST_F(BundleVerbs, RefuseASignerThatIsNotNamed) {
  ASSERT_EQ(kiln({"keygen", secret_key() + "2"}).exit_code, 0);
  const auto stranger = secret_key() + "2.pub";
  ASSERT_EQ(pack().exit_code, 0);
  auto key = read_file(public_key());
  key.pop_back();
  const auto other = directory_ / "other";
  for (const char* verb : {"verify", "unpack"}) {
    const auto refused = kiln({"bundle", verb, file(), "--signer", stranger});
    EXPECT_EQ(refused.exit_code, 1) << refused.err;
    EXPECT_NE(refused.err.find(key), std::string::npos) << refused.err;
  }
  EXPECT_FALSE(std::filesystem::exists(home() / ".cache/kiln/v1"));
  for (const std::vector<std::string>& good : {std::vector<std::string>{"--signer", key},
                                               {"--signer", stranger, "--signer", public_key()},
                                               {"--any-signer"}}) {
    std::vector<std::string> arguments = {"bundle", "verify", file()};
    arguments.insert(arguments.end(), good.begin(), good.end());
    const auto result = kiln(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("all good"), std::string::npos) << result.out;
  }
  ASSERT_EQ(pack({"--unsigned"}).exit_code, 0);
  const auto loose = kiln({"bundle", "verify", file(), "--signer", public_key(), "--json"});
  EXPECT_EQ(loose.exit_code, 1);
  EXPECT_NE(object_of(loose)["error"]["message"].get<std::string>().find("unsigned"),
            std::string::npos);
  EXPECT_EQ(kiln({"bundle", "verify", file(), "--any-signer"}).exit_code, 0);
}

TEST_F(BundleVerbs, ADamagedEntryIsNamedAndTheOthersAreUnpacked) {
  ASSERT_EQ(pack().exit_code, 0);
  auto bytes = read_file(file());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file(), bytes);
  const auto verified = kiln({"bundle", "verify", file(), "--signer", public_key(), "--json"});
  EXPECT_EQ(verified.exit_code, 1);
  ASSERT_EQ(object_of(verified)["damaged"].size(), 1u);
  const std::string name = object_of(verified)["damaged"][0]["key"];
  const auto unpacked = kiln({"bundle", "unpack", file(), "--signer", public_key(), "--cache-dir",
                              (directory_ / "other").string()});
  EXPECT_EQ(unpacked.exit_code, 1);
  EXPECT_NE(unpacked.out.find(name + "  damaged: SHA-256"), std::string::npos) << unpacked.out;
  EXPECT_EQ(cache::Store::open({.directory = directory_ / "other"})->list()->size(), 1u);
  EXPECT_EQ(kiln({"bundle", "ls", file()}).exit_code, 0);
}

TEST_F(BundleVerbs, ADamagedCacheIsNotPacked) {
  write_file(entries().front(), "damaged");
  const auto result = pack();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("is damaged"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(BundleVerbs, WhatIsTrimmedMeanwhileIsLeftOut) {
  auto store = cache::Store::open({.directory = cache()});
  ASSERT_TRUE(store);
  for (int i = 0; i < 400; ++i)
    ASSERT_TRUE(store->publish("k=" + std::to_string(i), "{}", {}).ok());
  auto names = *store->names();
  const auto place = [&](const cache::Digest& name) {
    return cache() / "v1/e" / name.hex().substr(0, 2) / name.hex().substr(2);
  };
  // From the moment that the first entry is read others go, each while the pack is somewhere else.
  constexpr std::size_t kRemoved = 20;
  const int events = ::inotify_init1(IN_CLOEXEC);
  ASSERT_GE(events, 0);
  ASSERT_GE(::inotify_add_watch(events, place(names.front()).c_str(), IN_OPEN), 0);
  std::thread others([&] {
    pollfd ready{.fd = events, .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 10'000);
    for (std::size_t i = 1; i <= kRemoved; ++i) {
      std::filesystem::remove(place(names[names.size() - i]));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const auto packed = pack({"--secret-key", secret_key(), "--json"});
  others.join();
  ::close(events);
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_GE(object_of(packed)["entries"], names.size() - kRemoved);
  EXPECT_EQ(kiln({"bundle", "verify", file(), "--signer", public_key()}).exit_code, 0);
}

TEST_F(BundleVerbs, ABundleServesAsItIsWhereItsSignerIsAccepted) {
  KILN_REQUIRES_NVRTC();
  ASSERT_EQ(report_of(prewarm({"--json"}))["compiled"], 3);
  ASSERT_EQ(pack().exit_code, 0);
  auto key = read_file(public_key());
  key.pop_back();
  const auto warm = [&](const std::string& directory) {
    return kiln(prewarm_arguments(directory_ / directory, {"--json", "--cache-readonly", file()}));
  };
  environment_["KILN_CACHE_SIGNERS"] = key;
  const auto served = report_of(warm("empty"));
  EXPECT_EQ(served["hits"], 3);
  EXPECT_EQ(served["compiled"], 0);
  EXPECT_NE(kiln({"doctor", "--cache-readonly", file()}).out.find("5 entries, signed by " + key),
            std::string::npos);
  environment_.erase("KILN_CACHE_SIGNERS");
  const auto refused = warm("other");
  EXPECT_EQ(report_of(refused)["compiled"], 3);
  EXPECT_NE(refused.err.find(key), std::string::npos) << refused.err;
  environment_["KILN_CACHE_SIGNERS"] = key + ",me";
  EXPECT_EQ(warm("third").exit_code, 2);
}

TEST_F(BundleVerbs, WithoutLibsodiumTheMachineLacksIt) {
  ASSERT_EQ(pack().exit_code, 0);
  // No library, and yet the first of that name.
  std::filesystem::create_directories(directory_ / "broken");
  write_file(directory_ / "broken/libsodium.so.23", "");
  environment_["LD_LIBRARY_PATH"] = (directory_ / "broken").string();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"bundle", "verify", file(), "--signer", public_key()},
        {"keygen", secret_key() + "2"}}) {
    const auto result = kiln(arguments);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_NE(result.err.find("apt-get install libsodium23"), std::string::npos) << result.err;
  }
  EXPECT_EQ(kiln({"cache", "verify", "--cache-dir", cache().string()}).exit_code, 0);
}

TEST_F(BundleVerbs, KeygenKeepsTheSecretAndOverwritesNothing) {
  struct stat status {};
  ASSERT_EQ(::stat(secret_key().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  const auto secret = read_file(secret_key());
  for (const auto& taken : {secret_key(), public_key()}) {
    std::filesystem::remove(taken == secret_key() ? public_key() : secret_key());
    const auto again = kiln({"keygen", secret_key()});
    EXPECT_EQ(again.exit_code, 1);
    EXPECT_NE(again.err.find("never overwritten"), std::string::npos) << again.err;
    // Not half a pair.
    EXPECT_NE(std::filesystem::exists(secret_key()), std::filesystem::exists(public_key()));
    if (taken == secret_key()) {
      EXPECT_EQ(read_file(secret_key()), secret);
      ASSERT_EQ(std::rename(secret_key().c_str(), public_key().c_str()), 0);
    }
  }
  std::filesystem::remove(public_key());
  const auto made = object_of(kiln({"keygen", secret_key(), "--json"}));
  EXPECT_EQ(made["public_key"].get<std::string>() + '\n', read_file(public_key()));
  EXPECT_NE(read_file(secret_key()), secret);

  std::filesystem::permissions(secret_key(), std::filesystem::perms(0644));
  const auto open = pack();
  EXPECT_EQ(open.exit_code, 1);
  EXPECT_NE(open.err.find("chmod 600"), std::string::npos) << open.err;
}

}  // namespace
}  // namespace kiln::test
