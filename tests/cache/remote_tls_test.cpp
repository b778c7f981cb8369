// TLS to nginx and redis-server, whose certificate an authority of our own has signed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remote_fixture.hpp"

namespace kiln::cache {
namespace {

RemoteFailure failure_of(const RemoteOptions& options) {
  const auto checks = check_remote(options);
  EXPECT_TRUE(checks) << checks.error().message();
  if (!checks) return RemoteFailure::none;
  EXPECT_EQ(checks->size(), 1u);
  const auto& check = checks->front();
  EXPECT_EQ(check.trouble.empty(), check.failure == RemoteFailure::none);
  if (check.failure == RemoteFailure::tls) {
    EXPECT_NE(check.trouble.find("KILN_REMOTE_CA"), std::string::npos) << check.trouble;
  }
  return check.failure;
}

class RemoteTls : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!test::Certificates::can_be_made() || !test::RedisServer::is_installed() ||
        !test::NginxServer::is_installed())
      return;
    certificates_.emplace();
    redis_.emplace(std::vector<std::string>{}, &*certificates_);
    nginx_.emplace("", &*certificates_);
  }
  static void TearDownTestSuite() {
    nginx_.reset();
    redis_.reset();
    certificates_.reset();
  }
  void SetUp() override {
    KILN_REQUIRES_SERVERS();
    if (!certificates_) {
      ASSERT_EQ(std::getenv("KILN_REQUIRE_SERVERS"), nullptr) << "openssl is needed";
      GTEST_SKIP() << "NOT TESTED: no openssl";
    }
    ASSERT_TRUE(certificates_->are_made() && redis_->is_up() && nginx_->is_up());
  }
  static RemoteOptions with_authority() {
    return {.authorities = certificates_->authority(),
            .signer = key_of_builder(1),
            .times = calm_times()};
  }
  /// The same server by a name that its certificate does not have.
  static std::string by_another_name(std::string url) {
    return url.replace(url.find("127.0.0.1"), 9, "localhost");
  }

  static inline std::optional<test::Certificates> certificates_;
  static inline std::optional<test::RedisServer> redis_;
  static inline std::optional<test::NginxServer> nginx_;
};

TEST_F(RemoteTls, WhatOneHostMakesTheOthersGet) {
  auto options = with_authority();
  options.objects = nginx_->url();
  options.leases = redis_->url();
  Host maker(options), reader(options);
  auto made = maker.fetch(7);
  ASSERT_TRUE(made.lease) << maker.all_warnings();
  ASSERT_TRUE(maker.publish(7, std::move(made.lease), 100'000).ok());
  ASSERT_TRUE(maker.store.flush(kLong).ok()) << maker.all_warnings();
  EXPECT_TRUE(soon([&] { return reader.fetch(7).entry.has_value(); })) << reader.all_warnings();
  EXPECT_EQ(reader.all_warnings(), "");
}

TEST_F(RemoteTls, ACertificateOfNobodyKnownIsRefused) {
  for (const auto& url : {nginx_->url(), redis_->url()}) {
    SCOPED_TRACE(url);
    auto options = with_authority();
    ASSERT_TRUE(options.add(url).ok());
    EXPECT_EQ(failure_of(options), RemoteFailure::none) << "the control";
    auto by_name = with_authority();
    ASSERT_TRUE(by_name.add(by_another_name(url)).ok());
    EXPECT_EQ(failure_of(by_name), RemoteFailure::tls);

    options.authorities.clear();
    EXPECT_EQ(failure_of(options), RemoteFailure::tls);
    Host host(options);
    EXPECT_FALSE(host.fetch(7).entry);
    EXPECT_EQ(host.counters().of(RemoteFailure::tls), 1u) << host.all_warnings();
    EXPECT_EQ(host.counters().misses, 0u);
  }
}

TEST_F(RemoteTls, BothSidesMustSpeakIt) {
  auto options = with_authority();
  for (auto url : {nginx_->url(), redis_->url()}) {
    url.erase(url.find("s://"), 1);
    options.objects = options.leases = "";
    ASSERT_TRUE(options.add(url).ok());
    EXPECT_NE(failure_of(options), RemoteFailure::none) << url;
  }
  const test::NginxServer plain;
  ASSERT_TRUE(plain.is_up());
  options.objects = "https" + plain.url().substr(4);
  options.leases.clear();
  EXPECT_EQ(failure_of(options), RemoteFailure::tls);
}

TEST_F(RemoteTls, AFileOfAuthoritiesThatIsNotThereIsToldAtTheStart) {
  auto options = with_authority();
  options.objects = nginx_->url();
  options.authorities = "/nowhere.pem";
  const auto checks = check_remote(options);
  ASSERT_FALSE(checks);
  EXPECT_EQ(checks.error().code(), ErrorCode::io_failed);
  EXPECT_NE(checks.error().message().find("/nowhere.pem"), std::string::npos);
}

}  // namespace
}  // namespace kiln::cache
