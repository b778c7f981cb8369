// Recordings: what a run used, written down, put together, compared, and compiled elsewhere.
#include "kiln/record.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>

#include "support/fake_compiler.hpp"

namespace kiln::test {
namespace {

class RecordTest : public FakeCompilerFixture {
 protected:
  Recording recorded() const {
    const auto recording = read_recording(read_file(file_), file_.string());
    EXPECT_TRUE(recording) << message_of(recording);
    return recording ? *recording : Recording{};
  }
  RuntimeOptions recording_options() {
    auto with = fake_options();
    with.record_file = file_;
    return with;
  }
  std::filesystem::path file_ = directory_ / "recorded.json";
};

KernelSpec full_spec() {
  return {.name = "full",
          .source = "full.cu",
          .variants = {{"sm_100a", "other.cu"}},
          .name_expression = "f<int>",
          .key = {{"tile", "i32", "64"}, {"causal", "bool", "true"}},
          .options = {"-use_fast_math"},
          .builtins = Builtins::minimal,
          .oldest_sm = 90,
          .unknown_inputs = UnknownInputs::compile_without_storing};
}

TEST_F(RecordTest, EverySpecComesBackAsItWas) {
  Recording recording{
      .sources = {{"full.cu", "a \"text\"\n"}, {"other.cu", ""}},
      .kernels = {{full_spec(), {"sm_100a", "sm_90a"}},
                  {{.name = "plain", .source = "full.cu", .entry = "go"}, {"sm_90a"}}}};
  const auto text = to_json(recording);
  EXPECT_TRUE(is_recording(text));
  EXPECT_FALSE(is_recording(R"({"schema": 1, "model": "kiln recording", "kernels": []})"));
  const auto read = read_recording(text, "file");
  ASSERT_TRUE(read) << message_of(read);
  EXPECT_EQ(*read, recording);
  EXPECT_EQ(to_json(*read), text);
}

TEST_F(RecordTest, WhatIsNoRecordingIsNamed) {
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"", "no JSON"},
           {"[]", "no JSON object"},
           {R"({"kind": "kiln recording", "schema": 2, "sources": {}, "kernels": []})", "schema"},
           {R"({"kind": "kiln recording", "schema": 4294967297})", "schema"},
           {R"({"kind": "kiln recording", "schema": )" + std::string(100'000, '['), "too deep"},
           {R"({"kind": "kiln recording", "schema": 1, "sources": {}, "kernels": [{"name": "a",
                "source": "a", "architectures": [], "optoins": ["-G"]}]})",
            "optoins"},
           {R"({"kind": "kiln recording", "schema": 1, "kernels": []})", "sources"},
           {R"({"kind": "kiln recording", "schema": 1, "sources": {"a": 1}, "kernels": []})",
            "sources"},
           {R"({"kind": "kiln recording", "schema": 1, "sources": {}, "kernels": [1]})", "kernels"},
           {R"({"kind": "kiln recording", "schema": 1, "sources": {}, "kernels": [{"name": "a"}]})",
            "source"},
           {R"({"kind": "kiln recording", "schema": 1, "sources": {},
                "kernels": [{"name": "a", "source": "a", "architectures": [1]}]})",
            "architectures"}}) {
    const auto read = read_recording(text, "some.json");
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(message_of(read).find("some.json"), std::string::npos);
    EXPECT_NE(message_of(read).find(word), std::string::npos) << message_of(read);
  }
}

TEST_F(RecordTest, MergeAddsAndDifferenceTells) {
  Recording a{.sources = {{"a.cu", "1"}},
              .kernels = {{{.name = "a", .source = "a.cu"}, {"sm_90"}}}};
  Recording b{
      .sources = {{"b.cu", "2"}},
      .kernels = {{{.name = "a", .source = "a.cu"}, {"sm_80", "sm_90"}},
                  {{.name = "b", .source = "b.cu", .key = {{"tile", "i32", "8"}}}, {"sm_90"}}}};
  auto both = a;
  ASSERT_TRUE(merge(both, b));
  EXPECT_EQ(both.kernels.size(), 2u);
  EXPECT_EQ(both.kernels[0].architectures, (std::vector<std::string>{"sm_80", "sm_90"}));
  auto other_order = b;
  ASSERT_TRUE(merge(other_order, a));
  EXPECT_EQ(to_json(both), to_json(other_order));
  EXPECT_TRUE(difference(both, other_order).empty());
  const auto lines = difference(a, both);
  ASSERT_EQ(lines.size(), 3u) << ::testing::PrintToString(lines);
  EXPECT_EQ(lines[0].rfind("+ kernel a sm_80 ", 0), 0u) << lines[0];
  EXPECT_EQ(lines[1].rfind("+ kernel b tile=8 sm_90 ", 0), 0u) << lines[1];
  EXPECT_EQ(lines[2].rfind("+ source b.cu", 0), 0u) << lines[2];
  EXPECT_EQ(difference(both, a)[0].front(), '-');
  b.sources["a.cu"] = "changed";
  const auto status = merge(b, a);
  EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
  EXPECT_NE(message_of(status).find("a.cu"), std::string::npos);
}

TEST_F(RecordTest, ARunWritesDownWhatItUsedAndNothingElse) {
  {
    auto runtime = open(recording_options());
    ASSERT_TRUE(runtime.add_source("shared.cuh", "// shared\n"));
    ASSERT_TRUE(runtime.add_source("user.cu", "#include \"shared.cuh\"\n"));
    const auto used = runtime.add({.name = "used", .source = "user.cu"});
    ASSERT_TRUE(used) << message_of(used);
    add(runtime, "unused", "");
    ASSERT_TRUE(runtime.artifact(*used, kArch));
    // Written at once: a server may never end in an orderly way.
    EXPECT_EQ(recorded().kernels.size(), 1u);
    EXPECT_EQ(recorded(), runtime.recording());
    EXPECT_EQ(recorded().sources.size(), 2u);
  }
  // The next run adds to it.
  auto runtime = open(recording_options());
  add(runtime, "second", "");
  ASSERT_TRUE(runtime.warmup({.architectures = {kArch}}));
  const auto both = recorded();
  ASSERT_EQ(both.kernels.size(), 2u);

  // Compiled from the recording alone, the keys are those of the run.
  auto elsewhere_options = fake_options();
  elsewhere_options.cache_directory = directory_ / "elsewhere";
  auto elsewhere = open(elsewhere_options);
  for (const auto& [name, text] : both.sources) ASSERT_TRUE(elsewhere.add_source(name, text));
  for (const auto& kernel : both.kernels) ASSERT_TRUE(elsewhere.add(kernel.spec));
  const auto report = elsewhere.warmup({.architectures = {kArch}});
  ASSERT_TRUE(report);
  for (const auto& kernel : report->kernels)
    EXPECT_TRUE(std::filesystem::exists(entry_path(kernel.key))) << kernel.kernel;
}

TEST_F(RecordTest, RanksThatShareAFileAllAddToIt) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 6; ++rank)
    ranks.push_back(start_child([&] {
      auto runtime = open(recording_options());
      for (int i = 0; i < 5; ++i) {
        const auto id = add(runtime, "r" + std::to_string(rank) + "_" + std::to_string(i), "");
        if (!runtime.artifact(id, kArch)) return 1;
      }
      return 0;
    }));
  for (const auto rank : ranks) EXPECT_EQ(wait_for(rank), 0);
  EXPECT_EQ(recorded().kernels.size(), 30u);
}

TEST_F(RecordTest, AFileThatCannotBeWrittenIsWarnedAboutOnceAndCostsNothing) {
  auto options = recording_options();
  options.record_file = directory_ / "no" / "such" / "directory.json";
  auto runtime = open(options);
  for (const auto* name : {"a", "b"}) EXPECT_TRUE(runtime.artifact(add(runtime, name, ""), kArch));
  EXPECT_EQ(warnings_with("KILN_RECORD"), 1u);
}

TEST_F(RecordTest, AKernelWhoseSourceIsNotUtf8IsNamedAndLeftOut) {
  auto runtime = open(recording_options());
  ASSERT_TRUE(runtime.add_source("latin.cu", "// caf\xe9\n"));
  const auto latin = runtime.add({.name = "latin", .source = "latin.cu"});
  ASSERT_TRUE(latin) << message_of(latin);
  EXPECT_TRUE(runtime.artifact(*latin, kArch));
  EXPECT_TRUE(runtime.artifact(add(runtime, "caf\u00e9", ""), kArch));
  EXPECT_EQ(warnings_with("latin.cu is not UTF-8"), 1u);
  ASSERT_EQ(recorded().kernels.size(), 1u);
  EXPECT_EQ(recorded().kernels[0].spec.name, "caf\u00e9");
}

// JSON would hold another option in its place, and so another kernel.
TEST_F(RecordTest, AKernelWhoseOptionIsNotUtf8IsNamedAndLeftOut) {
  auto runtime = open(recording_options());
  ASSERT_TRUE(runtime.add_source("latin.cu", "// latin\n"));
  const auto latin =
      runtime.add({.name = "latin", .source = "latin.cu", .options = {"-DNAME=\"caf\xe9\""}});
  ASSERT_TRUE(latin) << message_of(latin);
  EXPECT_TRUE(runtime.artifact(*latin, kArch));
  EXPECT_TRUE(runtime.artifact(add(runtime, "a", ""), kArch));
  EXPECT_EQ(warnings_with("kernel latin is not recorded"), 1u);
  ASSERT_EQ(recorded().kernels.size(), 1u);
  EXPECT_EQ(recorded().kernels[0].spec.name, "a");
}

TEST_F(RecordTest, ALinkStaysOneAndTheFileKeepsItsMode) {
  namespace fs = std::filesystem;
  const auto target = directory_ / "target.json";
  write_file(target, "");
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(target, file_);
  auto runtime = open(recording_options());
  EXPECT_TRUE(runtime.artifact(add(runtime, "a", ""), kArch));
  EXPECT_TRUE(fs::is_symlink(file_));
  EXPECT_EQ(fs::status(target).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(recorded().kernels.size(), 1u);
}

// The system would end the process by a signal.
TEST_F(RecordTest, ALimitOnFilesCostsTheRecordingAlone) {
  const int code = in_child([&] {
    auto runtime = open(recording_options());
    const rlimit limit{100, 100};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    return runtime.artifact(add(runtime, "a", ""), kArch) &&
                   warnings_with("File too large; name another file by KILN_RECORD") == 1
               ? 0
               : 2;
  });
  EXPECT_EQ(code, 0);
  EXPECT_FALSE(std::filesystem::exists(file_.string() + ".new"));
}

TEST_F(RecordTest, AByteOrderMarkIsNoPartOfIt) {
  const Recording recording{.sources = {{"a.cu", "1"}},
                            .kernels = {{{.name = "a", .source = "a.cu"}, {"sm_90"}}}};
  const auto text = "\xef\xbb\xbf" + to_json(recording);
  EXPECT_TRUE(is_recording(text));
  const auto read = read_recording(text, "file");
  ASSERT_TRUE(read) << message_of(read);
  EXPECT_EQ(*read, recording);
}

TEST_F(RecordTest, AFileThatAnotherLocksHoldsNobodyUpAndIsWrittenLater) {
  ASSERT_EQ(::mkfifo((file_.string() + ".new").c_str(), 0600), 0) << "something in the way, too";
  const int other = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  auto options = recording_options();
  const Runtime* asked = nullptr;
  std::size_t told = 0;
  options.log = [&](LogLevel, std::string_view message) {
    if (message.find("locked") == std::string_view::npos) return;
    ++told;
    EXPECT_EQ(asked->recording().kernels.size(), 1u);
  };
  {
    auto runtime = open(options);
    asked = &runtime;
    for (const auto* name : {"a", "b"})
      EXPECT_TRUE(runtime.artifact(add(runtime, name, ""), kArch));
    EXPECT_EQ(told, 1u);
    ::close(other);
  }
  EXPECT_EQ(recorded().kernels.size(), 2u) << "with the end of the run, if nothing else comes";
}

// As a tuner asks for them. Each time all is read, put in order and written.
TEST_F(RecordTest, AFileIsNotWrittenAnewForEachOfManyKernels) {
  constexpr int kKernels = 250;
  const int watch = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  ASSERT_GE(::inotify_add_watch(watch, directory_.path().c_str(), IN_MOVED_FROM | IN_MOVED_TO), 0);
  {
    auto runtime = open(recording_options());
    ASSERT_TRUE(runtime.add_source("tile.cu", "// tile\n"));
    for (int tile = 0; tile < kKernels; ++tile) {
      const auto id = runtime.add(
          {.name = "tile", .source = "tile.cu", .key = {{"tile", "i32", std::to_string(tile)}}});
      ASSERT_TRUE(id && runtime.artifact(*id, kArch));
    }
  }
  int written = 0;
  std::array<char, 65536> events{};
  const auto bytes = std::max<::ssize_t>(::read(watch, events.data(), events.size()), 0);
  for (std::size_t at = 0; at < static_cast<std::size_t>(bytes);) {
    inotify_event event;
    std::memcpy(&event, events.data() + at, sizeof event);
    at += sizeof event + event.len;
    written += (event.mask & IN_MOVED_TO) != 0;
  }
  ::close(watch);
  EXPECT_GT(written, 1);
  EXPECT_LT(written, kKernels);
  EXPECT_EQ(recorded().kernels.size(), static_cast<std::size_t>(kKernels));
}

TEST_F(RecordTest, APipeOrADeviceIsNeitherWaitedForNorReplaced) {
  auto options = recording_options();
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  auto runtime = open(options);
  EXPECT_TRUE(runtime.artifact(add(runtime, "a", ""), kArch));
  EXPECT_EQ(warnings_with("not a regular file"), 1u);
  EXPECT_TRUE(std::filesystem::is_fifo(file_));
}

}  // namespace
}  // namespace kiln::test
