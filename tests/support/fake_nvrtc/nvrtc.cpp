// An NVRTC for tests, which does what the source's comments tell it, in no time:
//
//   // fake: slow 20       takes 20 ms, and asks the flow callback meanwhile
//   // fake: deaf 3000     takes 3000 ms, and asks nobody
//   // fake: deaf until /file   takes until the file is there, and asks nobody
//   // fake: eat 64        takes 64 MiB while it compiles, and fails where it does not get them
//   // fake: fail          has an error in it
//   // fake: starve /file  fails as NVRTC does where memory ran out, unless the file is there; it
//                         makes the file
//   // fake: crash         ends the process by a signal
//   // fake: crash once /file   the same, unless the file is there, which it makes
//
// KILN_FAKE_NVRTC_MS is a time that every compile takes beside, asleep, KILN_FAKE_NVRTC_CPU_MS one
// that it keeps a processor busy for; KILN_FAKE_NVRTC_GATE names a file that must be there before
// one ends. KILN_FAKE_NVRTC_LOG names a file that gets a line when a
// compile begins and one when it ends, by which tests count compiles over all processes. The
// "machine code" holds nothing but the kernel.
#include <fcntl.h>
#include <nvrtc.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

#include "tests/runtime/fake_cubin.hpp"

struct _nvrtcProgram {
  std::string text{};
  std::string cubin{};
  std::string log{};
  int (*callback)(void*, void*) = nullptr;
  void* payload = nullptr;
};

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kSm = 90;
// What a compile that the callback ended gives.
constexpr auto kStopped = NVRTC_ERROR_INTERNAL_ERROR;

void note(const std::string& line) {
  const char* const name = std::getenv("KILN_FAKE_NVRTC_LOG");
  if (name == nullptr) return;
  const int file = ::open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  const auto text = line + "\n";
  if (::write(file, text.data(), text.size()) < 0) std::abort();
  ::close(file);
}

void crash() {
  // A sanitizer would take the signal for its own report.
  ::signal(SIGSEGV, SIG_DFL);
  ::raise(SIGSEGV);
}

bool first_time(const std::string& file) {
  const int made = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made >= 0) ::close(made);
  return made >= 0;
}

// By this thread's own time: while others have the processor, nothing is done.
void keep_busy(milliseconds time) {
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto until = used() + time;
  while (used() < until) continue;
}

nvrtcResult take_memory(std::size_t mebibytes) {
  const std::size_t bytes = mebibytes << 20;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NVRTC_ERROR_OUT_OF_MEMORY;
  std::memset(memory, 1, bytes);
  ::munmap(memory, bytes);
  return NVRTC_SUCCESS;
}

nvrtcResult obey(_nvrtcProgram& program, const std::string& command) {
  std::istringstream words(command);
  std::string verb, more, file;
  int number = 0;
  words >> verb;
  if (verb == "crash") {
    words >> more >> file;
    if (more != "once" || first_time(file)) crash();
  } else if (verb == "fail") {
    program.log = "fake.cu(1): error: told to fail\n";
    return NVRTC_ERROR_COMPILATION;
  } else if (verb == "starve") {
    words >> file;
    if (!first_time(file)) return NVRTC_SUCCESS;
    program.log = "fake.cu(1): catastrophic error: out of memory\n";
    return NVRTC_ERROR_COMPILATION;
  } else if (verb == "eat") {
    words >> number;
    return take_memory(static_cast<std::size_t>(number));
  } else if (verb == "deaf") {
    if (words >> number) {
      std::this_thread::sleep_for(milliseconds(number));
    } else {
      words.clear();
      words >> more >> file;
      while (::access(file.c_str(), F_OK) != 0) std::this_thread::sleep_for(milliseconds(10));
    }
  } else if (verb == "slow") {
    words >> number;
    const auto until = Clock::now() + milliseconds(number);
    while (Clock::now() < until) {
      if (program.callback != nullptr && program.callback(program.payload, nullptr) != 0)
        return kStopped;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  // A version that is none, so that it can be in one process with a real one: the builtins of each
  // version go by one name.
  *major = 13;
  *minor = 9;
  return NVRTC_SUCCESS;
}
const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_ERROR_OUT_OF_MEMORY ? "NVRTC_ERROR_OUT_OF_MEMORY" : "a fake error";
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* numbers) {
  *numbers = kSm;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char*, int,
                               const char* const*, const char* const*) {
  *program = new _nvrtcProgram{.text = text};
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char*) {
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcSetFlowCallback(nvrtcProgram program, int (*callback)(void*, void*),
                                 void* payload) {
  program->callback = callback;
  program->payload = payload;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  // By which a process begins; no kernel.
  if (program->text.starts_with("__global__ void nothing()")) {
    note("nothing");
    return NVRTC_SUCCESS;
  }
  const auto name = program->text.substr(0, program->text.find('\n'));
  note("begin " + name);
  if (const char* const time = std::getenv("KILN_FAKE_NVRTC_MS"); time != nullptr)
    std::this_thread::sleep_for(milliseconds(std::atoi(time)));
  if (const char* const time = std::getenv("KILN_FAKE_NVRTC_CPU_MS"); time != nullptr)
    keep_busy(milliseconds(std::atoi(time)));
  if (const char* const gate = std::getenv("KILN_FAKE_NVRTC_GATE"); gate != nullptr)
    while (::access(gate, F_OK) != 0 &&
           (program->callback == nullptr || program->callback(program->payload, nullptr) == 0))
      std::this_thread::sleep_for(milliseconds(1));
  auto result = NVRTC_SUCCESS;
  std::istringstream lines(program->text);
  for (std::string line; result == NVRTC_SUCCESS && std::getline(lines, line);) {
    constexpr std::string_view kCommand = "// fake: ";
    if (line.starts_with(kCommand)) result = obey(*program, line.substr(kCommand.size()));
  }
  program->cubin = kiln::test::cubin_bytes(kSm, {{.name = "entry"}});
  note((result == kStopped ? "stopped " : "end ") + name);
  return result;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char*, const char**) {
  return NVRTC_ERROR_INVALID_INPUT;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  *size = program->cubin.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  std::memcpy(cubin, program->cubin.data(), program->cubin.size());
  return NVRTC_SUCCESS;
}
}
