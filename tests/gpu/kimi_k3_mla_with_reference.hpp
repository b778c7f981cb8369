// What the device tests of Kimi-K3 MLA share that hold outputs against the reference on the device.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/gpu/kimi_k3_mla_changes.hpp"
#include "tests/gpu/kimi_k3_mla_device.hpp"
#include "tests/gpu/kimi_k3_mla_reference.hpp"
#include "tests/gpu/kimi_k3_mla_rows.hpp"

namespace kiln::kernels::kimi_k3_mla::test {

inline constexpr u32 kSmCount = 132;  // plans are those of an H200, whatever the machine
inline constexpr std::size_t kCodes = std::size_t{1} << 24;

/// A runtime with programs of its own. The attention keeps the runtime's address.
struct Programmed {
  Runtime runtime;
  std::optional<Attention> attention{};
};

/// A driver, the device's own programs, and the reference, for all tests of a suite.
class KimiK3MlaWithReference : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto driver = CudaDriver::open();
    if (!driver) return;
    driver_.emplace(*std::move(driver));
    programmed_ = open(kEverything, [](Runtime& runtime) { return add_sources(runtime); });
    ASSERT_NE(programmed_, nullptr);
    auto reference = DeviceReference::create(programmed_->runtime, *driver_);
    ASSERT_TRUE(reference) << message_of(reference);
    reference_.emplace(*std::move(reference));
  }
  static void TearDownTestSuite() {
    reference_.reset();
    programmed_.reset();
    driver_.reset();
  }
  void SetUp() override {
    KILN_REQUIRES_GPU();
    ASSERT_TRUE(reference_) << "the suite was not set up";
  }

  template <class AddSources>
  static std::unique_ptr<Programmed> open(const Programs& programs, const AddSources& add) {
    auto runtime = Runtime::open({});
    EXPECT_TRUE(runtime) << message_of(runtime);
    if (!runtime) return nullptr;
    const Status added = add(*runtime);
    EXPECT_TRUE(added) << message_of(added);
    if (!added) return nullptr;
    auto made = std::make_unique<Programmed>(Programmed{*std::move(runtime)});
    auto attention = Attention::create(made->runtime, programs);
    EXPECT_TRUE(attention) << message_of(attention);
    if (!attention) return nullptr;
    made->attention.emplace(*std::move(attention));
    const auto report = made->runtime.warmup();
    EXPECT_TRUE(report) << message_of(report);
    if (!report || report->failed != 0) return nullptr;
    return made;
  }
  /// The program of its row tile with `change`.
  static std::unique_ptr<Programmed> changed(const Change& change) {
    return open({.attend = {{change.row_tile}}, .reduce = {}},
                [&](Runtime& runtime) { return add_changed_sources(runtime, change); });
  }

  static void launch(const Programmed& programmed, const Arguments& arguments, const Plan& plan) {
    auto launches = programmed.attention->prepare(arguments, plan);
    ASSERT_TRUE(launches) << message_of(launches);
    const auto launched = launches->launch(nullptr);
    ASSERT_TRUE(launched) << message_of(launched);
  }

  static Errors errors_in(const Call& call, const std::vector<u32>& rows, double absolute = 0.01,
                          double relative = 0.02) {
    const auto errors = reference_->errors_of(call, rows, absolute, relative);
    EXPECT_TRUE(errors) << message_of(errors);
    return errors ? *errors : Errors{.mismatches = ~u64{0}};
  }

  /// All rows of a call that lies in host memory as well, by `programmed`.
  static Errors errors_of(const Programmed& programmed, HostCall& host, float softmax_scale,
                          double absolute = 0.01) {
    Arguments described = host.arguments();
    described.softmax_scale = softmax_scale;
    const auto problem = check(described);
    EXPECT_TRUE(problem) << message_of(problem);
    const auto plan = kimi_k3_mla::plan(problem->problem(), kSmCount, kH200);
    EXPECT_TRUE(plan) << message_of(plan);
    DeviceCall device(*driver_, host, workspace_bytes(*plan));
    device.arguments.softmax_scale = softmax_scale;
    launch(programmed, device.arguments, *plan);
    const auto call = check(device.arguments);
    EXPECT_TRUE(call) << message_of(call);
    return errors_in(*call, every(host.written() * host.choices.heads, 1), absolute);
  }
  static void expect_contract(const Errors& errors, double relative_l2, u64 most_mismatches = 0) {
    EXPECT_LE(errors.mismatches, most_mismatches) << "the largest error is " << errors.largest;
    EXPECT_TRUE(errors.finite);
    EXPECT_LE(errors.relative_l2, relative_l2);
  }
  static double most_l2(u32 row_tile) { return attend::weight_terms(row_tile) == 2 ? 0.01 : 0.025; }

  static inline const Programs kEverything = {.attend = {{16}, {32}, {48}, {64}, {96}, {128}},
                                              .reduce = {{0}, {1}, {2}, {4}}};
  static inline std::optional<CudaDriver> driver_;
  static inline std::unique_ptr<Programmed> programmed_;
  static inline std::optional<DeviceReference> reference_;
};

}  // namespace kiln::kernels::kimi_k3_mla::test
