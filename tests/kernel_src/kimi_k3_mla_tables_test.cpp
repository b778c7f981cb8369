// Page tables, lengths and starts of Kimi-K3 MLA: checked on the host, and what a check on the
// device found as an error.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_src/kimi_k3_mla/contract.hpp"
#include "kernel_src/kimi_k3_mla/table_check.hpp"
#include "support/runtime_fixture.hpp"
#include "tests/kernel_src/kimi_k3_mla_calls.hpp"

namespace kiln::kernels::kimi_k3_mla::test {
namespace {

using kiln::test::message_of;

TEST(KimiK3MlaTables, ChecksTablesThatLieOnTheHost) {
  const auto call = check(packed());
  ASSERT_TRUE(call) << message_of(call);
  std::vector<std::int32_t> tables(24, -1);
  for (std::size_t i = 0; i < 8; ++i) tables[i] = static_cast<std::int32_t>(99 - i);  // request 0
  tables[16] = 0;  // request 2 has one page; request 1 none
  const std::vector<std::int32_t> lengths = {512, 0, 64}, starts = {0, 4, 4, 7};
  EXPECT_TRUE(check_tables(*call, {}));
  EXPECT_TRUE(check_tables(*call, {tables, lengths, starts}))
      << message_of(check_tables(*call, {tables, lengths, starts}));
  struct Case {
    std::function<void(std::vector<std::int32_t>&, std::vector<std::int32_t>&,
                       std::vector<std::int32_t>&)>
        change;
    std::string_view says;
  };
  for (const auto& [change, says] : {
           Case{[](auto&t, auto&, auto&) { t[7] = 100; },
                "block_tables[0][7] is 100; the request's 512 keys need a page of the cache, which "
                "has 100, from 0 on"},
           Case{[](auto&t, auto&, auto&) { t[0] = -1; }, "block_tables[0][0] is -1"},
           Case{[](auto&, auto&l, auto&) { l[2] = 65; }, "block_tables[2][1] is -1"},
           Case{[](auto&, auto&l, auto&) { l[1] = 1; }, "block_tables[1][0] is -1"},
           Case{[](auto&, auto&l, auto&) { l[1] = 513; },
                "lengths[1] is 513; it must be from 0 to 512"},
           Case{[](auto&, auto&l, auto&) { l[1] = -1; }, "lengths[1] is -1"},
           Case{[](auto&, auto&l, auto&) { l.pop_back(); }, "the host copy of lengths is of 2"},
           Case{[](auto&t, auto&, auto&) { t.pop_back(); },
                "the host copy of block_tables is of 23 entries; it must have at least 24"},
           Case{[](auto&, auto&, auto&s) { s.push_back(7); },
                "the host copy of query_starts is of 5 entries; it must have batch + 1, here 4"},
           Case{[](auto&, auto&, auto&s) { s[0] = 1; }, "query_starts[0] is 1; it must be 0"},
           Case{[](auto&, auto&, auto&s) { s[2] = 3; },
                "query_starts[2] is 3; it must be from 4, the start before it, to 8"},
           Case{[](auto&, auto&, auto&s) { s[1] = 5; }, "query_starts[1] is 5"},
           Case{[](auto&, auto&, auto&s) { s[3] = 8; },
                "query_starts[3] is 8; it must be from 4, the start before it, to 8 (max_query "
                "more), and at most 7, the query's tokens"},
       }) {
    auto t = tables, l = lengths, s = starts;
    change(t, l, s);
    const Status status = check_tables(*call, {t, l, s});
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(status).find(says), std::string::npos) << message_of(status);
  }
  // Fewer tokens than there is room for: the rest belongs to nobody.
  const std::vector<std::int32_t> fewer = {0, 1, 1, 2};
  EXPECT_TRUE(check_tables(*call, {.query_starts = fewer}));
  // What the call is planned for is no limit: a graph is captured at one length and replayed at
  // all.
  Call planned_short = *call;
  planned_short.max_keys = 1;
  EXPECT_TRUE(check_tables(planned_short, {tables, lengths, starts}));
}

TEST(KimiK3MlaTables, MakesAnErrorOfWhatACheckOnTheDeviceFound) {
  EXPECT_TRUE(status_of({}));
  EXPECT_TRUE(status_of({.checks = 7}));
  struct Case {
    TableReport report;
    std::string_view says;
  };
  for (const auto& [report, says] : {
           Case{{.checks = 9,
          .fault = TableFault::page,
          .check = 4,
          .request = 2,
          .position = 7,
          .value = -5,
          .most = 99},
                "kimi_k3_mla: block_tables[2][7] is -5; the request's length needs a page of the "
                "cache there, which has 100, from 0 on (found by check 4 of 9)"},
           Case{{.checks = 1, .fault = TableFault::page, .check = 1, .value = 3, .most = -1},
                "block_tables[0][0] is 3; the request's length needs a page of the cache there, "
                "which has 0, from 0 on"},
           Case{{.checks = 1,
           .fault = TableFault::page,
           .check = 1,
           .value = -1,
           .most = 2147483647},
                "which has 2147483648, from 0 on"},
           Case{{.checks = 1,
           .fault = TableFault::length,
           .check = 1,
           .request = 1,
           .value = 513,
           .most = 512},
                "lengths[1] is 513; it must be from 0 to 512, what a row of the block tables has "
                "room for (found by check 1 of 1)"},
           Case{{.checks = 1,
           .fault = TableFault::start,
           .check = 1,
           .request = 2,
           .value = 3,
           .least = 4,
           .most = 7},
                "query_starts[2] is 3; it must be from 4 to 7: from the start before it on"},
           Case{{.checks = 1, .fault = TableFault::start, .check = 1, .value = 1},
                "query_starts[0] is 1; it must be 0 (found"},
           Case{{.checks = 1, .fault = static_cast<TableFault>(17)},
                "the report's fault is 17; no check writes that; clear the report's memory"},
       }) {
    const Status status = status_of(report);
    ASSERT_FALSE(status) << says;
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(status).find(says), std::string::npos) << message_of(status);
  }
}

}  // namespace
}  // namespace kiln::kernels::kimi_k3_mla::test
