// The check of Kimi-K3 MLA's tables on the device: that it finds what the one on the host finds,
// and that a captured step replays with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel_src/kimi_k3_mla/table_check.hpp"
#include "tests/gpu/kimi_k3_mla_device.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

class KimiK3MlaTablesGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_REQUIRES_GPU();
    driver_.emplace(*CudaDriver::open());
    auto runtime = Runtime::open({});
    ASSERT_TRUE(runtime) << message_of(runtime);
    runtime_.emplace(*std::move(runtime));
    ASSERT_TRUE(add_sources(*runtime_));
    auto check = TableCheck::create(*runtime_);
    ASSERT_TRUE(check) << message_of(check);
    check_.emplace(*std::move(check));
    report_.emplace(driver_->buffer(sizeof(TableReport)));
    report_->fill(0);
  }

  TableReport report() const { return report_->download<TableReport>()[0]; }

  std::optional<CudaDriver> driver_;
  std::optional<Runtime> runtime_;
  std::optional<TableCheck> check_;
  std::optional<DeviceBuffer> report_;
};

/// Requests of 14 and 16 pages, of none and of a part of one; the second has no token.
HostCall good() {
  return make_call({.heads = 2,
                    .lengths = {896, 1000, 0, 7},
                    .queries = {2, 0, 1, 1},
                    .table_gap = 3,
                    .spare_tokens = 1},
                   40);
}

Plan plan_of(HostCall& host) {
  const auto call = check(host.arguments());
  EXPECT_TRUE(call) << message_of(call);
  const auto made = kimi_k3_mla::plan(call->problem(), 132, kH200);
  EXPECT_TRUE(made) << message_of(made);
  return made ? *made : Plan{};
}
Programs programs_of(const Plan& plan) {
  Programs made{.attend = {attend::key_of(plan)}, .reduce = {}};
  if (plan.reducer != Reducer::none) made.reduce.push_back(reduce::key_of(plan.reducer));
  return made;
}

struct Fault {
  std::function<void(HostCall&)> make;
  TableFault fault;
  u32 request, position;
  int value, least, most;
};

/// The width is 16 pages and 3 spare ones; the pages are 14 + 16 + 0 + 1 and 2 spare ones.
std::vector<Fault> faults() {
  return {
      {[](auto& h) { h.tables[1 * h.table_stride + 15] = 33; }, TableFault::page, 1, 15, 33, 0, 32},
      {[](auto& h) { h.tables[0] = -1; }, TableFault::page, 0, 0, -1, 0, 32},
      {[](auto& h) {
         h.tables[3 * h.table_stride] = -7;
         h.tables[14 - 1] = 2147483647;
         h.lengths[1] = -9;  // comes after
       },
       TableFault::page, 0, 13, 2147483647, 0, 32},
      {[](auto& h) { h.lengths[2] = -1; }, TableFault::length, 2, 0, -1, 0, 19 * 64},
      {[](auto& h) {
         h.lengths[1] = 19 * 64 + 1;
         h.tables[1 * h.table_stride] = -1;  // whose length says nothing
       },
       TableFault::length, 1, 0, 19 * 64 + 1, 0, 19 * 64},
      {[](auto& h) { h.lengths[3] = 65; }, TableFault::page, 3, 1, 2147483647, 0, 32},
      {[](auto& h) {
         h.starts[0] = 1;
         h.lengths[0] = -5;  // starts come first
       },
       TableFault::start, 0, 0, 1, 0, 0},
      {[](auto& h) { h.starts[2] = 1; }, TableFault::start, 2, 0, 1, 2, 4},
      {[](auto& h) { h.starts[4] = 6; }, TableFault::start, 4, 0, 6, 3, 5},
      {[](auto& h) { h.starts[1] = 3; }, TableFault::start, 1, 0, 3, 0, 2},
  };
}

TEST_F(KimiK3MlaTablesGpu, FindsTheFirstFaultAndWhereItIs) {
  HostCall host = good();
  DeviceCall device(*driver_, host, 0);
  auto* const to = report_->pointer<TableReport>();
  auto checked = check_->prepare(device.arguments, to);
  ASSERT_TRUE(checked) << message_of(checked);
  ASSERT_TRUE(checked->launch(nullptr));
  EXPECT_EQ(report().checks, 1u);
  EXPECT_TRUE(status_of(report())) << message_of(status_of(report()));
  for (const Fault& fault : faults()) {
    HostCall broken = host;
    fault.make(broken);
    const auto call = check(broken.arguments());
    ASSERT_TRUE(call) << message_of(call);
    const Status on_host = check_tables(*call, broken.host_tables());
    SCOPED_TRACE(message_of(on_host));
    EXPECT_FALSE(on_host);
    device.assign(broken);
    report_->fill(0);
    ASSERT_TRUE(checked->launch(nullptr));
    const TableReport found = report();
    EXPECT_EQ(found.checks, 1u);
    EXPECT_EQ(found.check, 1u);
    EXPECT_EQ(found.fault, fault.fault);
    EXPECT_EQ(found.request, fault.request);
    EXPECT_EQ(found.position, fault.position);
    EXPECT_EQ(found.value, fault.value);
    EXPECT_EQ(found.least, fault.least);
    EXPECT_EQ(found.most, fault.most);
    // Both name the same place and value, up to the limit.
    const std::string on_device = message_of(status_of(found));
    EXPECT_EQ(on_device.substr(0, on_device.find(';')),
              message_of(on_host).substr(0, message_of(on_host).find(';')));
  }
}

TEST_F(KimiK3MlaTablesGpu, FindsOneBadPageAmongMany) {
  Choices choices{.heads = 1, .lengths = std::vector<std::int32_t>(70, 64)};
  choices.lengths[33] = 64 * 1500;
  HostCall host = make_call(choices, 41);
  DeviceCall device(*driver_, host, 0);
  auto checked = check_->prepare(device.arguments, report_->pointer<TableReport>());
  ASSERT_TRUE(checked) << message_of(checked);
  ASSERT_TRUE(checked->launch(nullptr));
  EXPECT_EQ(report().fault, TableFault::none);
  for (const auto& [request, position] :
       {std::pair{33u, 1499u}, std::pair{33u, 31u}, std::pair{33u, 32u}, std::pair{69u, 0u}}) {
    HostCall broken = host;
    broken.tables[request * broken.table_stride + position] = static_cast<int>(broken.pages);
    device.assign(broken);
    report_->fill(0);
    ASSERT_TRUE(checked->launch(nullptr));
    EXPECT_EQ(report().fault, TableFault::page);
    EXPECT_EQ(report().request, request);
    EXPECT_EQ(report().position, position);
    EXPECT_EQ(report().value, static_cast<int>(broken.pages));
  }
}

// Pages and lengths only: wrong starts would have attention write where it may not.
TEST_F(KimiK3MlaTablesGpu, ReplaysWithACapturedStepAndKeepsTheFirstFault) {
  HostCall host = good();
  const Plan plan = plan_of(host);
  const auto attention = Attention::create(*runtime_, programs_of(plan));
  ASSERT_TRUE(attention) << message_of(attention);
  DeviceCall device(*driver_, host, workspace_bytes(plan));
  auto launches = attention->prepare(device.arguments, plan);
  ASSERT_TRUE(launches) << message_of(launches);
  auto checked = check_->prepare(device.arguments, report_->pointer<TableReport>());
  ASSERT_TRUE(checked) << message_of(checked);
  auto stream = driver_->stream();
  // Once before, so that nothing is loaded under capture.
  ASSERT_TRUE(checked->launch(stream.handle()));
  ASSERT_TRUE(launches->launch(stream.handle()));
  stream.synchronize();
  report_->fill(0);
  const auto graph = driver_->capture(stream, [&] {
    ASSERT_TRUE(checked->launch(stream.handle()));
    ASSERT_TRUE(launches->launch(stream.handle()));
  });
  const auto replay = [&](const HostCall& with) {
    device.assign(with);
    graph.launch(stream);
    stream.synchronize();
    return report();
  };
  EXPECT_TRUE(status_of(replay(host)));
  const auto right = device.bytes();
  HostCall bad_page = host, negative = host, too_long = host;
  bad_page.tables[5] = 1000;
  negative.lengths[0] = -3;
  too_long.lengths[3] = 5000;
  TableReport found = replay(bad_page);
  EXPECT_EQ(found.fault, TableFault::page);
  EXPECT_EQ(found.check, 2u);
  EXPECT_EQ(found.value, 1000);
  found = replay(negative);
  EXPECT_EQ(found.checks, 3u);
  EXPECT_EQ(found.fault, TableFault::page) << "the first fault stays until it is cleared";
  EXPECT_EQ(found.check, 2u);
  EXPECT_NE(message_of(status_of(found)).find("block_tables[0][5] is 1000"), std::string::npos)
      << message_of(status_of(found));
  report_->fill(0);
  found = replay(negative);
  EXPECT_NE(message_of(status_of(found)).find("lengths[0] is -3"), std::string::npos)
      << message_of(status_of(found));
  report_->fill(0);
  found = replay(too_long);
  EXPECT_NE(message_of(status_of(found)).find("lengths[3] is 5000"), std::string::npos)
      << message_of(status_of(found));
  report_->fill(0);
  EXPECT_TRUE(status_of(replay(host)));
  EXPECT_EQ(device.bytes(), right) << "a step after bad ones is as it was";
}

// What arguments.hpp says of tables that are wrong; the check is there to find them.
TEST_F(KimiK3MlaTablesGpu, AttentionTakesZerosForPagesThatAreNoneAndLengthsOnlyAsFarAsTheyGo) {
  for (const BackEnd back_end : kBackEnds)
    for (const u32 heads : {12u, 96u}) {
      SCOPED_TRACE(std::to_string(heads) +
                   (back_end == BackEnd::portable ? " heads, portable" : " heads"));
      HostCall host = make_call(
          {.heads = heads, .lengths = {1500, 333}, .unused = 0, .wild_entries = false}, 42);
      const auto entry = [&](HostCall& call, std::size_t request, std::size_t at) -> int& {
        return call.tables[request * call.table_stride + at];
      };
      // A page of zeros: one that no request has.
      int spare = 0;
      while (std::find(host.tables.begin(), host.tables.end(), spare) != host.tables.end()) ++spare;
      ASSERT_LT(static_cast<std::size_t>(spare), host.pages);
      HostCall wrong = host, zeros = host;
      entry(wrong, 0, 3) = -1;
      entry(wrong, 0, 7) = 2147483647;
      entry(wrong, 0, 8) = -2147483647;
      entry(wrong, 1, 0) = static_cast<int>(host.pages);
      entry(zeros, 0, 3) = entry(zeros, 0, 7) = entry(zeros, 0, 8) = entry(zeros, 1, 0) = spare;
      const Plan plan = plan_of(host);
      auto runtime = Runtime::open({});
      ASSERT_TRUE(runtime) << message_of(runtime);
      ASSERT_TRUE(add_sources_of(*runtime, back_end));
      const auto attention = Attention::create(*runtime, programs_of(plan));
      ASSERT_TRUE(attention) << message_of(attention);
      const auto outputs_of = [&](HostCall& call) {
        DeviceCall device(*driver_, call, workspace_bytes(plan));
        auto launches = attention->prepare(device.arguments, plan);
        EXPECT_TRUE(launches) << message_of(launches);
        EXPECT_TRUE(launches && launches->launch(nullptr));
        return device.bytes();
      };
      const auto with_zeros = outputs_of(zeros);
      EXPECT_NE(with_zeros, outputs_of(host));
      EXPECT_EQ(outputs_of(wrong), with_zeros);

      HostCall outside = host, inside = host;
      outside.lengths = {5000, -7};
      inside.lengths = {static_cast<std::int32_t>(host.width * kPageKeys), 0};
      EXPECT_EQ(outputs_of(outside), outputs_of(inside));
    }
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
