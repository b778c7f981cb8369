// What goes wrong in a newcomer's first ten minutes: each ends with the right exit code and one
// message, which names the thing and holds a cure.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "cli_fixture.hpp"

namespace kiln::test {
namespace {

struct Mistake {
  const char* name;
  std::vector<std::string> arguments{};
  std::map<std::string, std::string> variables{};
  int exit_code = 1;
  const char* thing = "";  ///< what the message names
  const char* cure = "";
};

class NewcomerErrors : public CliTest {
 protected:
  void SetUp() override {
    KILN_REQUIRES_NVRTC();
    std::filesystem::create_directories(work());
    // No devices, whatever the machine has.
    environment_["CUDA_VISIBLE_DEVICES"] = "";
    environment_["KILN_CACHE_DIR"] = cache().string();
    write_file(work() / "good.cu", "extern \"C\" __global__ void entry(int* x) { *x = 1; }\n");
  }

  std::filesystem::path work() const { return directory_ / "work"; }

  ProcessRequest wish(const Mistake& mistake) const {
    auto made = request(mistake.arguments);
    for (const auto& [name, value] : mistake.variables) made.environment[name] = value;
    made.directory = work().string();
    return made;
  }

  static std::size_t count(std::string_view text, std::string_view part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  }

  static void check(const Mistake& mistake, const ProcessResult& result) {
    SCOPED_TRACE(mistake.name);
    EXPECT_EQ(result.exit_code, mistake.exit_code) << result.out << result.err;
    // One message of ours; a compile's log may follow it.
    EXPECT_EQ(count("\n" + result.err, "\nkiln: ") + count("\n" + result.err, "\nwarning: "), 1u)
        << result.err;
    const auto message = result.err.substr(0, result.err.find("\nptxas"));
    EXPECT_NE(message.find(mistake.thing), std::string::npos) << message;
    EXPECT_NE(message.find(mistake.cure), std::string::npos) << message;
  }
};

const std::string kModelName = "deepseek-v4.1-flash";
const std::vector<std::string> kPrewarm = {"prewarm", "--model", kModelName, "--arch", "sm_90a"};

std::vector<std::string> compile(const std::string& file, const std::string& arch = "sm_90a") {
  return {"compile", file, "--arch", arch};
}

TEST_F(NewcomerErrors, EachGivesOneMessageThatNamesTheThingAndTheCure) {
  const auto write = [&](const char* name, std::string_view text) {
    write_file(work() / name, text);
    return std::string(name);
  };
  write("empty.cu", "");
  write("a\"b.cu", "__global__ void k() {}\n");
  write("none.cu", "int f() { return 1; }\n");
  write("zero.cu", std::string_view("__global__ void k() {}\0", 23));
  write("junk.cu", "\x01\x02\xff\xfe#include\x80\n");
  write("bad.cu", "extern \"C\" __global__ void entry(int* x) { *x = 1 }\n");
  write("std.cu", "#include <vector>\nextern \"C\" __global__ void entry(int* x) { *x = 1; }\n");
  write("lost.cu",
        "#include \"lost.cuh\"\nextern \"C\" __global__ void entry(int* x) { *x = 1; }\n");
  write("keyed.cu",
        "#include \"jit/key.cuh\"\n"
        "extern \"C\" __global__ void entry(int* x) { *x = key::block; }\n");
  write("hopper.cu",
        "extern \"C\" __global__ void entry() { asm volatile(\"wgmma.fence.sync.aligned;\"); }\n");
  write("two.cu", "__global__ void a() {}\n__global__ void b() {}\n");
  write("broken.json", "{\"schema\": 1,\n \"model\": }");
  write("other.json", R"({"schema": 1, "model": "m", "kernels": [{"kernel": "gemm", "key": {}}]})");
  ASSERT_EQ(::mkfifo((work() / "pipe.cu").c_str(), 0600), 0);
  ASSERT_EQ(kiln(kPrewarm).exit_code, 0);
  const auto file = write("file", "");
  const auto fresh = (directory_ / "fresh").string();

  const std::map<std::string, std::string> no_nvrtc = {{"KILN_NVRTC", "missing"},
                                                       {"KILN_CACHE_DIR", fresh}};
  const std::map<std::string, std::string> file_as_cache = {
      {"KILN_CACHE_DIR", (work() / "file").string()}};
  const Mistake mistakes[] = {
      {"no NVRTC to prewarm", kPrewarm, no_nvrtc, 3, "missing", "correct it or take it away"},
      {"no NVRTC to compile", compile("good.cu"), no_nvrtc, 3, "missing", "KILN_NVRTC"},
      {"a source that cannot be read",
       compile("/proc/self/mem"),
       {},
       1,
       "/proc/self/mem cannot be read: Input/output error",
       "name another"},
      {"a manifest that cannot be read",
       {"prewarm", "--manifest", "/proc/self/mem", "--arch", "sm_90a"},
       {},
       2,
       "/proc/self/mem",
       "an error while reading"},
      {"a recording that is not there",
       {"manifest", "merge", "missing.json", "-o", "merged.json"},
       {},
       2,
       "the recording missing.json cannot be read",
       "No such file"},
      {"no such verb", {"build"}, {}, 2, "build", "the verbs of kiln are"},
      {"no model", {"prewarm", "--arch", "sm_90a"}, {}, 2, "nothing to compile", "--model"},
      {"unknown model",
       {"prewarm", "--model", "llama", "--arch", "sm_90a"},
       {},
       2,
       "llama",
       "deepseek-v4.1-flash"},
      {"no architecture",
       {"prewarm", "--model", kModelName},
       {},
       2,
       "no architecture",
       "--arch sm_90a"},
      {"no architecture to compile for",
       {"compile", "good.cu"},
       {},
       2,
       "no architecture",
       "--arch sm_90a"},
      {"a number for an architecture", compile("good.cu", "90"), {}, 2, "\"90\"", "write sm_90a"},
      {"a virtual architecture",
       compile("good.cu", "compute_90"),
       {},
       2,
       "compute_90",
       "write sm_90a"},
      {"an architecture of the future",
       compile("good.cu", "sm_999"),
       {},
       1,
       "sm_999",
       "supports sm_75"},
      {"a file as cache to prewarm", kPrewarm, file_as_cache, 3, "file", "KILN_CACHE_DIR"},
      {"a file as cache to compile", compile("good.cu"), file_as_cache, 3, "file",
       "KILN_CACHE_DIR"},
      {"a file as cache to read", {"cache", "ls"}, file_as_cache, 3, "file", "not a directory"},
      {"no cache to read",
       {"cache", "ls", "--cache-dir", "nowhere"},
       {},
       3,
       "does not exist",
       "--cache-dir"},
      {"no such manifest",
       {"prewarm", "--manifest", "m.json", "--arch", "sm_90a"},
       {},
       2,
       "m.json",
       "No such file"},
      {"a model taken for a manifest",
       {"prewarm", "--manifest", "kimi-k3", "--arch", "sm_90a"},
       {},
       2,
       "there is no file kimi-k3",
       "--model kimi-k3"},
      {"a malformed manifest",
       {"prewarm", "--manifest", "broken.json", "--arch", "sm_90a"},
       {},
       2,
       "broken.json",
       "line 2"},
      {"a manifest of unknown kernels",
       {"prewarm", "--manifest", "other.json", "--arch", "sm_90a"},
       {},
       2,
       "gemm",
       "dsv41_kv_insert"},
      {"no such source", compile("nope.cu"), {}, 1, "nope.cu", "does not exist"},
      {"a directory as source", compile("."), {}, 1, ". is a directory", "name a CUDA source"},
      {"a pipe as source", compile("pipe.cu"), {}, 1, "pipe.cu", "write it to a file"},
      {"an empty source", compile("empty.cu"), {}, 1, "empty.cu is empty", "__global__"},
      {"a source with a quote in its name", compile("a\"b.cu"), {}, 1, "a\"b.cu", "rename it"},
      {"a source without a kernel", compile("none.cu"), {}, 1, "none.cu", "__global__"},
      {"a source with a zero byte", compile("zero.cu"), {}, 1, "zero.cu", "remove it"},
      {"a binary as source", compile("junk.cu"), {}, 1, "junk.cu", ""},
      {"a syntax error", compile("bad.cu"), {}, 1, "bad.cu(1): error", "expected a \";\""},
      {"the C++ library",
       compile("std.cu"),
       {},
       1,
       "header <vector>",
       "<cuda/std/...> no such header: leave it out"},
      {"a header that is not there", compile("lost.cu"), {}, 1, "lost.cuh", "-I"},
      {"a constant without a value", compile("keyed.cu"), {}, 1, "\"block\"", "--key block=VALUE"},
      {"an instruction of sm_90a",
       compile("hopper.cu", "sm_90"),
       {},
       1,
       "wgmma.fence",
       "compile for sm_90a"},
      {"two kernels", compile("two.cu"), {}, 2, "two.cu", "--name-expression"},
      {"jobs that are no number", kPrewarm, {{"KILN_JOBS", "all"}}, 2, "KILN_JOBS", "whole number"},
      {"a key that is none", {"cache", "show", "scale"}, {}, 2, "scale", "kiln cache ls"},
      {"a key that is not there",
       {"cache", "extract", "0000000", "--log"},
       {},
       1,
       "0000000",
       "kiln cache ls"},
      {"an output that cannot be written",
       {"compile", "good.cu", "--arch", "sm_90a", "-o", "no/k.cubin"},
       {},
       1,
       "no/k.cubin",
       "-o FILE"},
  };
  for (const auto& mistake : mistakes) check(mistake, run_process(wish(mistake)));
}

TEST_F(NewcomerErrors, AnotherUsersCacheIsNotWritable) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
  if (run_process({.arguments = {KILN_CLI_PATH, "--help"}, .user = kNobody}).exit_code == 127)
    GTEST_SKIP() << "another user cannot reach " << KILN_CLI_PATH;
  std::filesystem::create_directories(cache());
  for (const auto& arguments : {kPrewarm, compile("good.cu")}) {
    const Mistake mistake{"another user", arguments, {}, 1, "cache", "writable place"};
    auto made = wish(mistake);
    made.user = kNobody;
    const auto result = run_process(made);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(result.err.find("Permission denied"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(mistake.cure), std::string::npos) << result.err;
  }
}

TEST_F(NewcomerErrors, AReadOnlyMountIsNotWritable) {
  const auto cli = request({}).arguments.front();
  const auto mounted = [&](const std::string& command) {
    auto made = request({});
    made.arguments = {"/usr/bin/unshare", "-m", "/bin/sh", "-c",
                      "mount --bind '" + cache().string() + "' '" + cache().string() +
                          "' && mount -o remount,bind,ro '" + cache().string() +
                          "' || exit 77; cd '" + work().string() + "' && '" + cli + "' " + command};
    return run_process(made);
  };
  std::filesystem::create_directories(cache());
  const auto result = mounted("compile good.cu --arch sm_90a");
  if (result.exit_code == 77 || result.exit_code == 127 ||
      result.err.find("unshare:") != std::string::npos)
    GTEST_SKIP() << "mounting is not permitted here: " << result.err;
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_NE(result.err.find("Read-only file system"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("KILN_CACHE_DIR"), std::string::npos) << result.err;
  const auto doctor = mounted("doctor");
  EXPECT_EQ(doctor.exit_code, 3) << doctor.out;
  EXPECT_NE(doctor.out.find("Read-only file system"), std::string::npos) << doctor.out;
}

}  // namespace
}  // namespace kiln::test
