// How many compiles run at once: from quotas, memory and wishes, with the reason.
#include "runtime/job_limits.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "support/runtime_fixture.hpp"
#include "tests/runtime/fake_tree.hpp"

namespace kiln::test {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

MachineLimits limits_of(double processors, std::optional<std::uint64_t> mebibytes) {
  MachineLimits limits{.processors = processors, .processors_by = "somebody"};
  if (mebibytes) {
    limits.memory_bytes = *mebibytes * kMebibyte;
    limits.memory_by = "something";
  }
  return limits;
}

TEST(JobCount, IsWhatProcessorsMemoryAndWishesAllow) {
  struct Row {
    unsigned asked;
    double processors;
    std::optional<std::uint64_t> mebibytes;
    unsigned jobs;
    std::string reason;
  };
  for (const auto& row : std::vector<Row>{
           {0, 16, {}, 16, "16 jobs: 16 by somebody; nothing limits memory"},
           {0, 1.5, {}, 2, "2 jobs: 1.5 by somebody; nothing limits memory"},
           {0, 0.25, 900, 1,
            "1 job: 0.25 by somebody; 900 MiB by something hold 9 compiles of 100 MiB"},
           {3, 16, 900, 3, "3 jobs: as asked; 900 MiB by something hold 9 compiles of 100 MiB"},
           {0, 16, 450, 4,
            "4 jobs: 450 MiB by something hold 4 compiles of 100 MiB, which is fewer than 16 (16 "
            "by "
            "somebody)"},
           {8, 2, 250, 2,
            "2 jobs: 250 MiB by something hold 2 compiles of 100 MiB, which is fewer than 8 (as "
            "asked)"},
           {0, 16, 20, 1,
            "1 job: 20 MiB by something hold 0 compiles of 100 MiB, which is fewer than 16 (16 by "
            "somebody)"}}) {
    const auto count =
        choose_jobs(row.asked, limits_of(row.processors, row.mebibytes), 100 * kMebibyte);
    EXPECT_EQ(count.jobs, row.jobs) << row.reason;
    EXPECT_EQ(count.reason, row.reason);
  }
}

class MachineLimitsTest : public ::testing::Test {
 protected:
  MachineLimits read() const { return machine_limits(false, tree_.path()); }
  FakeTree tree_;
};

TEST_F(MachineLimitsTest, ReadsTheNewCgroupsAndAllAboveThem) {
  tree_.write("proc/self/cgroup", "0::/pod/container\n");
  tree_.write("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  tree_.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  tree_.write("sys/fs/cgroup/pod/memory.max", "max\n");
  tree_.write("sys/fs/cgroup/pod/container/memory.max", std::to_string(512 * kMebibyte));
  tree_.write("sys/fs/cgroup/pod/container/memory.current", std::to_string(200 * kMebibyte));
  tree_.write("sys/fs/cgroup/pod/container/memory.stat",
              "anon 5\ninactive_file " + std::to_string(50 * kMebibyte) + "\n");
  tree_.write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8388608 kB\n");
  const auto limits = read();
  EXPECT_EQ(limits.processors, 0.5);
  EXPECT_EQ(limits.processors_by, "the CPU quota of a cgroup");
  EXPECT_EQ(limits.memory_bytes, 362 * kMebibyte);
  EXPECT_EQ(limits.memory_by, "the memory limit of a cgroup");
}

TEST_F(MachineLimitsTest, WhereTheGroupIsMadeToWaitIsALimit) {
  tree_.write("proc/self/cgroup", "0::/unit\n");
  tree_.write("sys/fs/cgroup/unit/memory.max", std::to_string(900 * kMebibyte));
  tree_.write("sys/fs/cgroup/unit/memory.high", std::to_string(600 * kMebibyte));
  tree_.write("sys/fs/cgroup/unit/memory.current", std::to_string(100 * kMebibyte));
  EXPECT_EQ(read().memory_bytes, 500 * kMebibyte);
}

TEST_F(MachineLimitsTest, ReadsTheOldCgroups) {
  tree_.write("proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n");
  tree_.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "75000\n");
  tree_.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  tree_.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  tree_.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(64 * kMebibyte));
  tree_.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(70 * kMebibyte));
  const auto limits = read();
  EXPECT_EQ(limits.processors, 0.75);
  EXPECT_EQ(limits.memory_bytes, 0u);
}

// Each of the old controllers has files of its own; those of the other one are looked for nowhere.
TEST_F(MachineLimitsTest, TheWorkingDirectoryHasNoSay) {
  tree_.write("proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n");
  tree_.write("here/memory.limit_in_bytes", "4096\n");
  tree_.write("here/cpu.cfs_quota_us", "1000\n");
  tree_.write("here/cpu.cfs_period_us", "100000\n");
  const auto limits = [&] {
    const WorkingDirectory here(tree_.path() / "here");
    return read();
  }();
  EXPECT_GE(limits.processors, 1.0);
  EXPECT_FALSE(limits.memory_bytes);
}

TEST_F(MachineLimitsTest, WithoutLimitsItIsWhatTheMachineHas) {
  tree_.write("proc/self/cgroup", "0::/\n");
  tree_.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  tree_.write("proc/meminfo", "MemAvailable: 1048576 kB\n");
  const auto limits = read();
  EXPECT_GE(limits.processors, 1.0);
  EXPECT_EQ(limits.memory_bytes, 1024 * kMebibyte);
  EXPECT_EQ(limits.memory_by, "the machine's free memory");
}

TEST_F(MachineLimitsTest, NonsenseIsNoLimit) {
  tree_.write("proc/self/cgroup", "nonsense\n0::\n::\n:");
  tree_.write("sys/fs/cgroup/cpu.max", "ten 0\n");
  tree_.write("sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_FALSE(read().memory_bytes);
  EXPECT_GE(read().processors, 1.0);
  tree_.write("sys/fs/cgroup/cpu.max", "100000 0\n");
  EXPECT_GE(read().processors, 1.0);
}

TEST_F(MachineLimitsTest, ALimitOfAddressSpaceCountsWhereAllShareAProcess) {
  const int code = in_child([&] {
    const rlim_t bytes = std::uint64_t{1} << 45;
    const rlimit limit{bytes, bytes};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    const auto here = machine_limits(true, tree_.path());
    if (!here.memory_bytes || *here.memory_bytes > bytes || here.memory_by != "ulimit -v") return 3;
    return machine_limits(false, tree_.path()).memory_bytes ? 4 : 0;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace kiln::test
