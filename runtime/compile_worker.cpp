#include "kiln/compile_worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string>

#include "runtime/background_threads.hpp"
#include "runtime/compiler.hpp"
#include "runtime/nvrtc_files.hpp"
#include "runtime/read_file.hpp"
#include "runtime/shared_header.hpp"
#include "runtime/worker_messages.hpp"

namespace kiln {
namespace {

constexpr int kWire = STDIN_FILENO;
constexpr int kPollMilliseconds = 500;

bool write_to(const char* path, std::string_view text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = ::write(file, text.data(), text.size()) >= 0;
  ::close(file);
  return written;
}

// In kB in /proc/self/status.
std::uint64_t peak_bytes() {
  std::array<char, 4096> bytes{};
  const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const auto count = ::read(file, bytes.data(), bytes.size());
  ::close(file);
  const std::string_view text(bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  const auto at = text.find("VmHWM:");
  if (at == std::string_view::npos) return 0;
  const auto digit = text.find_first_of("0123456789", at);
  std::uint64_t kilobytes = 0;
  if (digit != std::string_view::npos)
    std::from_chars(text.data() + digit, text.data() + text.size(), kilobytes);
  return kilobytes * 1024;
}

// The Runtime's process has ended, or has no more use for this one: a compile must not outlive
// that, whatever it is doing. The number of the parent is looked at as well, because a child of the
// Runtime's process could hold the other end open.
void end_with(pid_t parent) {
  for (;;) {
    pollfd wire{kWire, POLLRDHUP, 0};
    const int ready = ::poll(&wire, 1, kPollMilliseconds);
    if (::getppid() == parent && (ready <= 0 || wire.revents == 0)) continue;
    remove_unfinished_headers(::getpid());
    ::_exit(0);
  }
}

bool receive(char* bytes, std::size_t count) {
  while (count > 0) {
    const auto got = ::recv(kWire, bytes, count, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(kWire, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

WorkerAnswer answer_to(const WorkerJob& job, std::optional<Compiler>& compiler) {
  WorkerAnswer answer;
  if (!compiler || compiler->search().found->library != job.nvrtc) {
    auto files = examine_nvrtc(job.nvrtc);
    if (!files) {
      answer.status = files.error();
      return answer;
    }
    compiler.emplace(NvrtcSearch{.found = *std::move(files)});
  }
  CompileWatch watch{.share_header = job.share_header};
  // The peak of this compile alone.
  write_to("/proc/self/clear_refs", "5");
  auto artifact =
      compiler->compile(job.program, job.architecture, {.name = job.key}, job.toolchain, watch);
  answer.peak_bytes = peak_bytes();
  answer.passing = watch.passing;
  answer.header_shared = watch.header_shared;
  answer.header_trouble = watch.header_trouble;
  if (artifact)
    answer.artifact = *std::move(artifact);
  else
    answer.status = artifact.error();
  return answer;
}

}  // namespace

int serve_compiles() {
  const pid_t parent = ::getppid();
  // Where memory runs out, the kernel is to take a worker before the process that serves.
  write_to("/proc/self/oom_score_adj", "1000");
  BackgroundThreads threads;
  if (!threads.start([parent] { end_with(parent); })) ::_exit(kNoThreadExit);
  std::optional<Compiler> compiler;
  std::string message(kFrameHead, '\0');
  while (receive(message.data(), kFrameHead)) {
    const auto size = frame_size(message);
    if (size > kMostFrameBytes) break;
    std::string body(size, '\0');
    if (!receive(body.data(), body.size())) break;
    if (is_of_another_kiln(body)) ::_exit(kOtherKilnExit);
    const auto job = decode_job(body);
    if (!job || !send_all(framed(encode(answer_to(*job, compiler))))) break;
  }
  // Not by way of exit(): the thread that watches never ends, and NVRTC's own clean-up is of no
  // use.
  ::_exit(0);
}

}  // namespace kiln
