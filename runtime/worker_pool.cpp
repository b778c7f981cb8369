#include "runtime/worker_pool.hpp"

#include <fcntl.h>
#include <features.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "runtime/fork_generation.hpp"
#include "runtime/shared_header.hpp"
#include "runtime/worker_messages.hpp"

namespace kiln {
namespace {

// Between asking whether to stop.
constexpr int kPollMilliseconds = 20;

std::string text_of_error(int error) {
  std::array<char, 128> buffer{};
  return ::strerror_r(error, buffer.data(), buffer.size());
}

// How a process ended, for a message.
std::string end_text(std::optional<int> status) {
  if (!status) return "ended, and who else waits for this process's children knows why";
  if (WIFSIGNALED(*status)) {
    const int number = WTERMSIG(*status);
    const char* const name = ::sigabbrev_np(number);
    std::string text = "was ended by signal " + std::to_string(number) + " (SIG" +
                       (name != nullptr ? name : "?") + ")";
    if (number == SIGKILL) text += ", as the kernel does when memory runs out";
    return text;
  }
  if (WEXITSTATUS(*status) == kNoThreadExit)
    return "can make no thread; allow this process more of them, as by ulimit -u";
  if (WEXITSTATUS(*status) == kOtherKilnExit)
    return "is of another version of Kiln than this process; start this one anew, or name a "
           "command "
           "of its own version";
  return "ended with exit code " + std::to_string(WEXITSTATUS(*status));
}

}  // namespace

class WorkerPool::Process {
 public:
  static Result<std::shared_ptr<Process>> start(const std::vector<std::string>& command);
  Process(pid_t pid, int wire)
      : pid_(pid),
        handle_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))),
        wire_(wire),
        generation_(fork_generation()) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    // A forked child shares the wire, and the process is not its own.
    ::close(wire_);
    if (generation_ == fork_generation()) end();
    if (handle_ >= 0) ::close(handle_);
  }

  /// untaken: it ended, and had not read all that it was sent.
  enum class Exchange : unsigned char { answered, stopped, ended, untaken };
  /// Sends a frame and takes the one that comes back.
  Exchange exchange(const std::string& frame, std::string& answer, const CompileWatch& watch) {
    makes_header_ = watch.share_header;
    std::string_view out = frame;
    std::string in;
    for (;;) {
      if (watch.should_stop()) return Exchange::stopped;
      pollfd wire{wire_, static_cast<short>(out.empty() ? POLLIN : POLLIN | POLLOUT), 0};
      if (::poll(&wire, 1, kPollMilliseconds) <= 0) continue;
      if ((wire.revents & POLLOUT) != 0) {
        const auto sent = ::send(wire_, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) out.remove_prefix(static_cast<std::size_t>(sent));
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return Exchange::untaken;
      }
      if ((wire.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      std::array<char, 65536> bytes{};
      const auto got = ::recv(wire_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0) return out.empty() ? Exchange::ended : Exchange::untaken;
      if (got < 0 && errno != EAGAIN && errno != EINTR)
        return errno == ECONNRESET ? Exchange::untaken : Exchange::ended;
      if (got > 0) in.append(bytes.data(), static_cast<std::size_t>(got));
      if (in.size() < kFrameHead) continue;
      const auto size = frame_size(in);
      if (size > kMostFrameBytes) return Exchange::ended;
      if (in.size() < kFrameHead + size) continue;
      answer = in.substr(kFrameHead);
      return Exchange::answered;
    }
  }

  /// Waits for the end, which is there or is brought about; its status, if it can be told.
  std::optional<int> end(bool ended_by_itself = false) {
    if (pid_ < 0) return std::nullopt;
    int status = 0;
    pid_t waited = -1;
    if (!number_is_free()) {
      if (!ended_by_itself) ::kill(pid_, SIGKILL);
      while ((waited = ::waitpid(pid_, &status, 0)) < 0 && errno == EINTR) continue;
    }
    if (makes_header_) remove_unfinished_headers(pid_);
    pid_ = -1;
    return waited > 0 ? std::optional(status) : std::nullopt;
  }

  /// Whether the compile in hand may make a precompiled header.
  void makes_header(bool yes) noexcept { makes_header_ = yes; }

  bool ours() const noexcept { return generation_ == fork_generation(); }

 private:
  /// Who else waits for this process's children has taken it, and another may have its number.
  bool number_is_free() const noexcept {
    return ::syscall(SYS_pidfd_send_signal, handle_, 0, nullptr, 0) != 0 && errno == ESRCH;
  }

  pid_t pid_;
  int handle_;  // of the process, whatever becomes of its number; -1 before Linux 5.3
  int wire_;
  unsigned generation_;
  bool makes_header_ = false;
};

Result<std::shared_ptr<WorkerPool::Process>> WorkerPool::Process::start(
    const std::vector<std::string>& command) {
  const auto failed = [&](const char* what, int error) {
    return Error(ErrorCode::compile_failed,
                 "the compile worker " + command.front() +
                     " (RuntimeOptions::worker_command) cannot be started: " + what + ": " +
                     text_of_error(error));
  };
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return failed("socketpair", errno);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  // What a compiler may print is no result of ours.
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
#if __GLIBC_PREREQ(2, 34)
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
  // A terminal's signals go to all its processes; when to end is for the Runtime to say.
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&blocked, number);
  ::posix_spawnattr_setsigmask(&attributes, &blocked);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, arguments.front(), &actions, &attributes, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return failed("posix_spawn", error);
  }
  return std::make_shared<Process>(pid, ends[0]);
}

std::shared_ptr<WorkerPool::Process> WorkerPool::take_idle() {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Process> process;
  while (!idle_.empty() && process == nullptr) {
    if (idle_.back()->ours()) process = std::move(idle_.back());
    idle_.pop_back();
  }
  return process;
}

Result<Artifact> WorkerPool::compile(const Program& program, std::string_view architecture,
                                     const CompileKey& key, const ToolchainId& toolchain,
                                     const std::string& nvrtc, CompileWatch& watch) {
  used_.store(true, std::memory_order_relaxed);
  const auto job = encode(WorkerJob{.nvrtc = nvrtc,
                                    .toolchain = toolchain,
                                    .architecture = std::string(architecture),
                                    .key = key.name,
                                    .program = program,
                                    .share_header = watch.share_header});
  std::string message;
  std::shared_ptr<Process> process = take_idle();
  auto exchanged = Process::Exchange::untaken;
  if (process != nullptr) exchanged = process->exchange(framed(job), message, watch);
  // An idle one may have been killed, as for its memory, which is no fault of this compile.
  if (exchanged == Process::Exchange::untaken) {
    auto started = Process::start(command_);
    if (!started) {
      watch.passing = true;
      return Error(ErrorCode::compile_failed,
                   "kernel " + program.spec.name + ": " + started.error().message());
    }
    process = *std::move(started);
    exchanged = process->exchange(framed(job), message, watch);
  }
  if (exchanged == Process::Exchange::stopped) {
    watch.passing = true;
    return compile_stopped(program.spec.name, architecture);
  }
  std::optional<WorkerAnswer> answer;
  if (exchanged == Process::Exchange::answered) answer = decode_answer(message);
  if (!answer) {
    watch.passing = true;
    const auto how = end_text(process->end(exchanged != Process::Exchange::answered));
    return Error(ErrorCode::compile_failed, "kernel " + program.spec.name + " for " +
                                                std::string(architecture) + " [key " +
                                                key.name.hex() + "]: the compile worker " + how);
  }
  process->makes_header(false);
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(process));
  }
  watch.passing = answer->passing;
  watch.peak_bytes = answer->peak_bytes;
  watch.header_shared = answer->header_shared;
  watch.header_trouble = answer->header_trouble;
  if (!answer->status) return answer->status.error();
  answer->artifact->key = key.name;
  return *std::move(answer->artifact);
}

void WorkerPool::end_idle() {
  std::vector<std::shared_ptr<Process>> idle;
  {
    const std::lock_guard lock(mutex_);
    idle.swap(idle_);
  }
}

}  // namespace kiln
