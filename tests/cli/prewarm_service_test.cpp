// kiln prewarm as a service: workers, limits, signals, recordings and what it writes down. The
// kernels come from recordings, and the fake NVRTC does what they tell it.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "cli_fixture.hpp"
#include "kiln/record.hpp"

namespace kiln::test {
namespace {

class PrewarmService : public CliTest {
 protected:
  PrewarmService() {
    environment_["KILN_NVRTC"] = KILN_FAKE_NVRTC;
    environment_["KILN_FAKE_NVRTC_LOG"] = log().string();
  }
  std::filesystem::path log() const { return directory_ / "compiles"; }

  /// A recording of kernels, each with what its compile is to do.
  std::string recording(const std::map<std::string, std::string>& commands,
                        const std::string& file = "recorded.json") const {
    Recording recording;
    for (const auto& [name, command] : commands) {
      recording.sources[name + ".cu"] =
          "// " + name + "\n" + (command.empty() ? "" : "// fake: " + command + "\n");
      recording.kernels.push_back({{.name = name, .source = name + ".cu"}, {"sm_90"}});
    }
    write_file(directory_ / file, to_json(recording));
    return (directory_ / file).string();
  }
  std::vector<std::string> arguments(const std::string& manifest,
                                     const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"prewarm", "--manifest", manifest, "--cache-dir",
                                    cache().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  bool log_holds(const std::string& line) const {
    return read_file(log()).find(line + "\n") != std::string::npos;
  }

  /// Starts the command, and gives its process once `line` stands in the log of compiles.
  /// Its standard output goes to `out`, or nowhere.
  pid_t start(std::vector<std::string> given, const std::string& line, int out = -1) const {
    auto wish = request(std::move(given));
    std::vector<std::string> variables;
    for (const auto& [name, value] : wish.environment) variables.push_back(name + "=" + value);
    const pid_t child = start_child([&] {
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(out >= 0 ? out : null, STDOUT_FILENO);
      ::dup2(null, STDERR_FILENO);
      ::execve(KILN_CLI_PATH, detail::pointers_to(wish.arguments).data(),
               detail::pointers_to(variables).data());
      return 127;
    });
    while (!log_holds(line)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return child;
  }

  /// The processes that were started with this test's log in their environment.
  std::size_t processes_of_ours() const {
    const auto mark = "KILN_FAKE_NVRTC_LOG=" + log().string();
    std::size_t count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const auto name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      count += read_file(entry.path() / "environ").find(mark) != std::string::npos;
    }
    return count;
  }
  /// Waits for them to end; a test that hangs here has found some that do not.
  void expect_no_process_is_left() const {
    for (int i = 0; i < 1000 && processes_of_ours() != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(processes_of_ours(), 0u);
  }
};

TEST_F(PrewarmService, ARecordingIsReplayedForItsOwnOrOtherTargets) {
  const auto file = recording({{"a", ""}, {"b", ""}});
  auto report = report_of(kiln(arguments(file, {"--json"})));
  EXPECT_EQ(report["compiled"], 2);
  EXPECT_EQ(report["model"], file);
  EXPECT_EQ(report["kernels"][0]["arch"], "sm_90");
  report = report_of(kiln(arguments(file, {"--json", "--arch", "sm_90,sm_90a"})));
  EXPECT_EQ(report["requested"], 4);
  EXPECT_EQ(report["hits"], 2);
  const auto dry = object_of(kiln(arguments(file, {"--json", "--dry-run"})));
  EXPECT_EQ(dry["cached"], 2);
  const auto parameters = kiln(arguments(file, {"--tp", "4"}));
  EXPECT_EQ(parameters.exit_code, 2);
  write_file(directory_ / "broken.json", R"({"kind": "kiln recording", "schema": 1})");
  const auto broken = kiln(arguments((directory_ / "broken.json").string()));
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_NE(broken.err.find("sources"), std::string::npos) << broken.err;
}

TEST_F(PrewarmService, ACrashIsReportedWithKernelKeyAndSignalAndTheRestIsBuilt) {
  const auto file = recording({{"bad", "crash"}, {"good", ""}, {"other", "slow 5"}, {"third", ""}});
  const auto result = kiln(arguments(file, {"--json"}));
  EXPECT_EQ(result.exit_code, 1);
  const auto report = report_of(result);
  EXPECT_EQ(report["compiled"], 3);
  EXPECT_EQ(report["kernels"][0]["retried"], true);
  const auto message = report["kernels"][0]["error"]["message"].get<std::string>();
  for (const auto& part : {std::string("kernel bad"), std::string("SIGSEGV"),
                           report["kernels"][0]["key"].get<std::string>()})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  expect_no_process_is_left();
}

TEST_F(PrewarmService, WithoutProcWorkersAreStartedFromTheProgramsOwnFile) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "the sanitizers need /proc";
#endif
  auto wish = request(arguments(recording({{"a", ""}, {"b", ""}}), {"--json"}));
  std::string line = "umount -l /proc && exec";
  for (const auto& argument : wish.arguments) line += " '" + argument + "'";
  wish.arguments = {"/usr/bin/unshare", "-m", "/bin/sh", "-c", "umount -l /proc"};
  if (run_process(wish).exit_code != 0) GTEST_SKIP() << "needs the right to unmount /proc";
  wish.arguments.back() = line;
  const auto result = run_process(wish);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(report_of(result)["compiled"], 2);
}

TEST_F(PrewarmService, MemoryThatAWorkerDoesNotGetCostsItsKernelAlone) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "the sanitizers take more address space than a limit could leave them";
#endif
  auto wish = request(
      arguments(recording({{"a", "eat 8"}, {"huge", "eat 8000"}, {"small", "eat 8"}, {"tiny", ""}}),
                {"--json"}));
  std::string command = "ulimit -v 4000000 && exec";
  for (const auto& argument : wish.arguments) command += " '" + argument + "'";
  wish.arguments = {"/bin/sh", "-c", command};
  const auto result = run_process(wish);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto report = report_of(result);
  EXPECT_EQ(report["compiled"], 3);
  EXPECT_EQ(report["kernels"][1]["retried"], true);
  EXPECT_NE(report["kernels"][1]["error"]["message"].get<std::string>().find("OUT_OF_MEMORY"),
            std::string::npos)
      << report["kernels"][1];
  EXPECT_GE(report["kernels"][0]["peak_bytes"].get<std::size_t>(), std::size_t{8} << 20);
}

TEST_F(PrewarmService, TheJobsAreExplainedAndBadOnesAreUsageErrors) {
  const auto file = recording({{"a", ""}, {"b", ""}});
  const auto result = kiln(arguments(file, {"-j", "3"}));
  EXPECT_NE(result.out.find("3 jobs: as asked; "), std::string::npos) << result.out;
  for (const auto* jobs : {"-1", "1025", "many", "1.5"})
    EXPECT_EQ(kiln(arguments(file, {"-j", jobs})).exit_code, 2) << jobs;
  for (const auto* seconds : {"0", "-1", "soon", "nan"})
    EXPECT_EQ(kiln(arguments(file, {"--time-limit", seconds})).exit_code, 2) << seconds;
}

TEST_F(PrewarmService, ASignalEndsItAndWhatIsFinishedIsKept) {
  const auto file = recording({{"a", ""}, {"b", ""}, {"hangs", "deaf 100000"}});
  for (const int number : {SIGTERM, SIGINT}) {
    std::filesystem::remove_all(cache());
    std::filesystem::remove(log());
    // Whatever order they come in: the two quick ones are over when the third has begun.
    const auto child = start(arguments(file, {"-j", "1"}), "begin // hangs");
    ::kill(child, number);
    EXPECT_EQ(wait_for(child), 1);
    EXPECT_FALSE(log_holds("end // hangs"));
    EXPECT_EQ(entries().size(), 2u);
    expect_no_process_is_left();
  }
}

TEST_F(PrewarmService, WorkersEndWithTheirParent) {
  const auto child = start(arguments(recording({{"hangs", "deaf 100000"}}), {}), "begin // hangs");
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), 128 + SIGKILL);
  expect_no_process_is_left();
}

TEST_F(PrewarmService, LimitsOfTimeGiveUpWhatIsSlow) {
  const auto file = recording({{"a", ""}, {"slow", "deaf 100000"}, {"z", ""}});
  const auto each = kiln(arguments(file, {"--compile-limit", "0.2", "--json"}));
  EXPECT_EQ(each.exit_code, 1);
  EXPECT_EQ(report_of(each)["compiled"], 2);
  EXPECT_EQ(report_of(each)["kernels"][1]["error"]["code"], "not_ready");
  const auto whole = kiln(arguments(file, {"--time-limit", "0.3", "--json"}));
  EXPECT_EQ(whole.exit_code, 1);
  EXPECT_EQ(report_of(whole)["hits"], 2);
  EXPECT_EQ(report_of(whole)["stopped"], "the time limit of 300 ms");
  EXPECT_NE(whole.err.find("2 of 3 kernels finished"), std::string::npos) << whole.err;
  expect_no_process_is_left();
}

TEST_F(PrewarmService, ATraceAndAPageAreWritten) {
  const auto file = recording({{"a", "slow 5"}, {"b", ""}});
  const auto trace = directory_ / "trace.json", page = directory_ / "page.html";
  ASSERT_EQ(kiln(arguments(file, {"--trace", trace.string(), "--html", page.string()})).exit_code,
            0);
  const auto events = nlohmann::json::parse(read_file(trace), nullptr, false)["traceEvents"];
  EXPECT_EQ(events.size(), 2u);
  EXPECT_NE(read_file(page).find("2 compiled"), std::string::npos);
}

TEST_F(PrewarmService, AReportWithoutAPlaceIsRefusedBeforeAnythingIsCompiled) {
  const auto file = recording({{"a", ""}});
  const auto pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string option : {"--trace", "--html"})
    for (const auto& path :
         {std::string("/no/such/report"), directory_.path().string(), pipe.string()}) {
      const auto result = kiln(arguments(file, {option, path}));
      EXPECT_EQ(result.exit_code, 2) << result.err;
      for (const auto& part : {path, "with " + option + " FILE"})
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    }
  const auto both = (directory_ / "both").string();
  EXPECT_EQ(kiln(arguments(file, {"--trace", both, "--html", both})).exit_code, 2);
  // What was there is kept, and what was made for nothing goes.
  const auto kept = directory_ / "kept", made = directory_ / "made";
  write_file(kept, "kept");
  EXPECT_EQ(kiln(arguments(file, {"--trace", kept.string(), "--html", "/no/such"})).exit_code, 2);
  EXPECT_EQ(kiln(arguments(file, {"--trace", made.string(), "--html", "/no/such"})).exit_code, 2);
  EXPECT_EQ(read_file(kept), "kept");
  EXPECT_FALSE(std::filesystem::exists(made));
  EXPECT_FALSE(std::filesystem::exists(log())) << "something was compiled";
}

TEST_F(PrewarmService, AReportThatCannotBeWrittenCostsNoOther) {
  const auto page = directory_ / "page.html";
  write_file(page, std::string(100'000, 'x'));
  const auto result = kiln(arguments(recording({{"a", ""}, {"b", ""}}),
                                     {"--trace", "/dev/full", "--html", page.string(), "--json"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("cannot write /dev/full"), std::string::npos) << result.err;
  EXPECT_EQ(report_of(result)["compiled"], 2);
  EXPECT_EQ(entries().size(), 2u);
  EXPECT_NE(read_file(page).find("2 compiled"), std::string::npos);
  EXPECT_EQ(read_file(page).find('x', read_file(page).find("</html>")), std::string::npos);
}

TEST_F(PrewarmService, APipeThatIsReadGetsItsReport) {
  const auto pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(kiln(arguments(recording({{"a", ""}}), {"--trace", pipe.string()})).exit_code, 0);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(reader, text.data(), 4096), 0)));
  ::close(reader);
  EXPECT_EQ(nlohmann::json::parse(text, nullptr, false)["traceEvents"].size(), 1u) << text;
}

// Who reads its output may have stopped to: a signal ends it all the same.
TEST_F(PrewarmService, ASignalEndsItWhileNobodyReadsWhatItWrites) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  while (::write(ends[1], "x", 1) == 1) continue;
  // As the other end of it is for most programs.
  ::fcntl(ends[1], F_SETFL, 0);
  const auto child = start(arguments(recording({{"a", ""}}), {"-j", "1"}), "end // a", ends[1]);
  ::kill(child, SIGTERM);
  EXPECT_EQ(wait_for(child), 128 + SIGTERM);
  for (const int end : ends) ::close(end);
  expect_no_process_is_left();
}

TEST_F(PrewarmService, RecordingsAreMergedAndCompared) {
  const auto one = recording({{"a", ""}}, "one.json"), two = recording({{"b", ""}}, "two.json");
  const auto all = (directory_ / "all.json").string();
  ASSERT_EQ(kiln({"manifest", "merge", one, two, "-o", all}).exit_code, 0);
  EXPECT_EQ(report_of(kiln(arguments(all, {"--json"})))["compiled"], 2);
  EXPECT_EQ(kiln({"manifest", "diff", all, all}).exit_code, 0);
  const auto diff = kiln({"manifest", "diff", one, all});
  EXPECT_EQ(diff.exit_code, 1);
  EXPECT_NE(diff.out.find("+ kernel b sm_90"), std::string::npos) << diff.out;
  EXPECT_EQ(object_of(kiln({"manifest", "diff", one, all, "--json"}))["equal"], false);
  const auto clash = recording({{"a", "slow 1"}}, "clash.json");
  EXPECT_EQ(kiln({"manifest", "merge", one, clash, "-o", all}).exit_code, 2);
  EXPECT_EQ(kiln({"manifest", "diff", one, "/no/such"}).exit_code, 2);
}

#ifndef KILN_SANITIZE  // which makes threads of its own
// As in a container whose limit of processes is reached: here no thread's stack finds room.
TEST_F(PrewarmService, SaysSoWhereNoThreadCanBeMade) {
  auto wish = request(arguments(recording({{"small", ""}}), {"--json"}));
  wish.arguments.insert(wish.arguments.begin(),
                        {"/bin/sh", "-c", "ulimit -s 68719476736 && exec \"$@\"", "sh"});
  const auto result = run_process(wish);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(report_of(result)["failed"], 1) << result.out;
  EXPECT_NE(result.err.find("ulimit -u"), std::string::npos) << result.err;
}
#endif

}  // namespace
}  // namespace kiln::test
