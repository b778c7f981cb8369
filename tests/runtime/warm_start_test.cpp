// A warm start reads and does nothing else: not one call that could write, in a directory that it
// may write and in one that it may not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store_with_calls.hpp"
#include "cache/system_calls.hpp"
#include "runtime/compile_service.hpp"
#include "support/kernels.hpp"
#include "support/process.hpp"
#include "support/requires_nvrtc.hpp"
#include "support/temporary_directory.hpp"

namespace kiln::test {
namespace {

constexpr int kKernels = 3;

int writing_calls = 0;

bool opens_for_writing(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

/// The real calls, with those counted that write or prepare to.
cache::SystemCalls counting_calls() {
  using cache::kRealCalls;
  auto calls = kRealCalls;
  calls.openat2 = [](int directory, const char* path, int flags, unsigned long long resolve) {
    writing_calls += opens_for_writing(flags);
    return kRealCalls.openat2(directory, path, flags, resolve);
  };
  calls.openat = [](int directory, const char* path, int flags, mode_t mode) {
    writing_calls += opens_for_writing(flags);
    return kRealCalls.openat(directory, path, flags, mode);
  };
  calls.writev = [](int fd, const iovec* parts, int count) {
    return ++writing_calls, kRealCalls.writev(fd, parts, count);
  };
  calls.fchmod = [](int fd, mode_t mode) { return ++writing_calls, kRealCalls.fchmod(fd, mode); };
  calls.fsync = [](int fd) { return ++writing_calls, kRealCalls.fsync(fd); };
  calls.mkdirat = [](int directory, const char* path, mode_t mode) {
    return ++writing_calls, kRealCalls.mkdirat(directory, path, mode);
  };
  calls.linkat = [](int from, const char* path, int directory, const char* to, int flags) {
    return ++writing_calls, kRealCalls.linkat(from, path, directory, to, flags);
  };
  calls.renameat2 = [](int from, const char* path, int directory, const char* to, unsigned flags) {
    return ++writing_calls, kRealCalls.renameat2(from, path, directory, to, flags);
  };
  calls.unlinkat = [](int directory, const char* path, int flags) {
    return ++writing_calls, kRealCalls.unlinkat(directory, path, flags);
  };
  calls.set_lock = [](int fd, const struct flock* lock) {
    return ++writing_calls, kRealCalls.set_lock(fd, lock);
  };
  return calls;
}

TEST(WarmStart, AHitMakesNoCallThatWrites) {
  KILN_REQUIRES_NVRTC();
  const TemporaryDirectory directory;
  const auto calls = counting_calls();
  SourceSet sources{std::filesystem::path()};
  ASSERT_TRUE(sources.add("scale.cu", kScaleSource));
  FileMemo memo;
  Compiler compiler(installed_nvrtc());
  Counters counters;
  const auto warm_up = [&](int kernels) {
    auto store = *cache::StoreWithCalls::open({.directory = directory / "cache"}, calls);
    CompileService service({}, &store, compiler, counters);
    int hits = 0;
    writing_calls = 0;
    for (int i = 0; i < kernels; ++i) {
      auto program = make_program(scale_spec(i), sources, {}, memo);
      EXPECT_TRUE(program) << message_of(program);
      CompileRequest request(std::make_shared<const Program>(*std::move(program)), "sm_90a");
      hits += service.obtain(request).origin == Origin::disk;
    }
    service.record_toolchain();
    return hits;
  };
  EXPECT_EQ(warm_up(kKernels), 0);
  EXPECT_GT(writing_calls, kKernels);
  EXPECT_EQ(warm_up(kKernels), kKernels);
  EXPECT_EQ(writing_calls, 0);
  EXPECT_EQ(warm_up(kKernels + 1), kKernels);
  EXPECT_GT(writing_calls, 0) << "the count misses what a publish does";
}

// All that changes a file system, and what opens a file.
constexpr const char* kTraced =
    "trace=?open,?openat,?openat2,?creat,?write,?writev,?pwrite64,?pwritev,?pwritev2,?sendfile,"
    "?copy_file_range,?splice,?fallocate,?truncate,?ftruncate,?mkdir,?mkdirat,?rmdir,?mknod,"
    "?mknodat,?link,?linkat,?symlink,?symlinkat,?unlink,?unlinkat,?rename,?renameat,?renameat2,"
    "?chmod,?fchmod,?fchmodat,?chown,?fchown,?lchown,?fchownat,?utime,?utimes,?utimensat,"
    "?futimesat,?setxattr,?lsetxattr,?fsetxattr,?removexattr,?lremovexattr,?fremovexattr,?fsync,"
    "?fdatasync,?sync,?syncfs,?flock";

/// The lines of a trace that write, but for pipes: what the program prints, and what sanitizers
/// tell themselves.
std::vector<std::string> writes_in(const std::string& trace) {
  std::vector<std::string> found;
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    // With -f a line begins with the number of the process.
    const auto call = line.find_first_not_of("0123456789 ");
    if (call == std::string::npos) continue;
    const auto text = line.substr(call);
    // The end of a process, a signal, and the rest of a call whose start has a line of its own.
    if (text.starts_with("+++") || text.starts_with("---") || text.starts_with("<...")) continue;
    if (text.starts_with("write") && text.find("<pipe:[") != std::string::npos) continue;
    const bool opens = text.starts_with("open");
    const bool writes = text.find("O_WRONLY") != std::string::npos ||
                        text.find("O_RDWR") != std::string::npos ||
                        text.find("O_CREAT") != std::string::npos;
    if (!opens || writes) found.push_back(line);
  }
  return found;
}

class TracedWarmStart : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef KILN_SANITIZE
    if (std::string_view(KILN_SANITIZE) == "thread")
      GTEST_SKIP() << "the thread sanitizer writes files of its own";
#endif
    KILN_REQUIRES_NVRTC();
    if (run({"/usr/bin/strace", "-f", "-o", (directory_ / "probe").string(), "/bin/true"})
            .exit_code != 0)
      GTEST_SKIP() << "strace is not installed, or may not trace here";
    ASSERT_EQ(run(worker(kKernels)).exit_code, 0);
  }

  static ProcessResult run(std::vector<std::string> arguments, std::optional<unsigned> user = {}) {
    return run_process(
        {.arguments = std::move(arguments), .environment = this_environment(), .user = user});
  }

  std::vector<std::string> worker(int kernels) const {
    return {KILN_WORKER_PATH, cache_.string(), std::to_string(kernels), "0", "0"};
  }

  std::vector<std::string> traced(int kernels) const {
    std::vector<std::string> arguments = {"/usr/bin/strace", "-f", "-y",   "-o",
                                          trace_.string(),   "-e", kTraced};
    for (auto& argument : worker(kernels)) arguments.push_back(std::move(argument));
    return arguments;
  }

  /// Checks that the traced worker found everything, complained of nothing and wrote nothing.
  void expect_only_reads(const ProcessResult& result, const char* hits = "disk_hits") const {
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    const auto said = nlohmann::json::parse(result.out, nullptr, false);
    ASSERT_TRUE(said.is_object()) << result.out;
    EXPECT_EQ(said[hits], kKernels);
    EXPECT_EQ(said["compiles"], 0);
    EXPECT_EQ(said["warnings"].size(), 0u) << said["warnings"];
    const auto trace = read_file(trace_);
    EXPECT_NE(trace.find("v1/e/"), std::string::npos) << "the trace does not see the cache";
    for (const auto& line : writes_in(trace)) ADD_FAILURE() << line;
  }

  TemporaryDirectory directory_;
  std::filesystem::path cache_ = directory_ / "cache";
  std::filesystem::path trace_ = directory_ / "trace";
};

TEST_F(TracedWarmStart, WritesNothingWhereItMay) {
  expect_only_reads(run(traced(kKernels)));
  ASSERT_EQ(run(traced(kKernels + 1)).exit_code, 0);
  EXPECT_FALSE(writes_in(read_file(trace_)).empty()) << "the trace misses what a publish does";
}

TEST_F(TracedWarmStart, WritesNothingAsAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
  if (run({KILN_WORKER_PATH}, kNobody).exit_code == 127)
    GTEST_SKIP() << "another user cannot reach " << KILN_WORKER_PATH;
  expect_only_reads(run(traced(kKernels), kNobody));
}

// As an image has it: no cache directory of one's own, and a tier that belongs to root.
TEST_F(TracedWarmStart, WritesNothingToAReadOnlyTierWhoeverUsesIt) {
  auto arguments = traced(kKernels);
  const auto tier = cache_.string();
  std::replace(arguments.begin(), arguments.end(), tier, std::string());
  auto environment = this_environment();
  environment["KILN_CACHE_READONLY"] = tier;
  ProcessRequest request{.arguments = arguments, .environment = environment};
  expect_only_reads(run_process(request), "lower_tier_hits");
  if (::geteuid() != 0 || run({KILN_WORKER_PATH}, kNobody).exit_code == 127) return;
  request.user = kNobody;
  std::filesystem::remove(trace_);
  expect_only_reads(run_process(request), "lower_tier_hits");
}

TEST_F(TracedWarmStart, WritesNothingOnAReadOnlyMount) {
  const auto mount = "mount --bind '" + cache_.string() + "' '" + cache_.string() +
                     "' && mount -o remount,ro,bind '" + cache_.string() + "' && ";
  if (run({"/usr/bin/unshare", "-m", "/bin/sh", "-c",
           mount + "! touch '" + cache_.string() + "/x'"})
          .exit_code != 0)
    GTEST_SKIP() << "this user cannot mount";
  std::vector<std::string> arguments = {"/usr/bin/unshare",    "-m", "/bin/sh", "-c",
                                        mount + "exec \"$@\"", "sh"};
  for (auto& argument : traced(kKernels)) arguments.push_back(std::move(argument));
  expect_only_reads(run(arguments));
}

}  // namespace
}  // namespace kiln::test
