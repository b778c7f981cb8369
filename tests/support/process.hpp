// Runs a program as a user would: arguments, an environment of its own, pipes or a terminal, and
// gives what it wrote and how it ended.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kiln::test {

/// A user who owns nothing.
inline constexpr unsigned kNobody = 65534;

/// Which of the program's streams are a terminal; the others are pipes.
enum class Terminal : unsigned char { none, standard_error, both };

struct ProcessRequest {
  std::vector<std::string> arguments{};  ///< the program first
  std::map<std::string, std::string> environment{};
  std::string directory{};  ///< empty: that of the caller
  std::optional<unsigned> user{};
  Terminal terminal = Terminal::none;
  unsigned columns = 100;
  std::chrono::seconds longest{120};  ///< then it is killed
};

struct ProcessResult {
  int exit_code = -1;  ///< 128 and the number of the signal that ended it
  std::string out{};   ///< all of it with Terminal::both
  std::string err{};
};

/// The environment of this process, so that a program finds NVRTC as this one does.
inline std::map<std::string, std::string> this_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

namespace detail {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  int get() const { return number_; }

 private:
  int number_ = -1;
};

struct Ends {
  Descriptor ours, theirs;
};

inline Ends open_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

inline Ends open_terminal(unsigned columns) {
  Descriptor ours(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (ours.get() < 0 || ::grantpt(ours.get()) != 0 || ::unlockpt(ours.get()) != 0) std::abort();
  const winsize size{
      .ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  ::ioctl(ours.get(), TIOCSWINSZ, &size);
  std::array<char, 128> name{};
  if (::ptsname_r(ours.get(), name.data(), name.size()) != 0) std::abort();
  return {std::move(ours), Descriptor(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC))};
}

inline std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Reads both until they end, or until the time is up; false then.
inline bool read_both(Descriptor& first, std::string& first_text, Descriptor& second,
                      std::string& second_text, std::chrono::steady_clock::time_point until) {
  for (;;) {
    std::array<pollfd, 2> waits = {pollfd{first.get(), POLLIN, 0}, pollfd{second.get(), POLLIN, 0}};
    if (first.get() < 0 && second.get() < 0) return true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    ::poll(waits.data(), waits.size(), static_cast<int>(left.count()));
    const auto take = [](Descriptor& from, short events, std::string& text) {
      if (events == 0) return;
      std::array<char, 4096> bytes{};
      const auto count = ::read(from.get(), bytes.data(), bytes.size());
      // A terminal whose other side is closed gives EIO.
      if (count > 0)
        text.append(bytes.data(), static_cast<std::size_t>(count));
      else
        from.close();
    };
    take(first, waits[0].revents, first_text);
    take(second, waits[1].revents, second_text);
  }
}

}  // namespace detail

/// fork and exec, not posix_spawn, which can change neither the user nor the session.
inline ProcessResult run_process(const ProcessRequest& request) {
  auto arguments = request.arguments;
  std::vector<std::string> variables;
  for (const auto& [name, value] : request.environment) variables.push_back(name + "=" + value);
  const auto argument_pointers = detail::pointers_to(arguments);
  const auto variable_pointers = detail::pointers_to(variables);

  auto out = request.terminal == Terminal::both ? detail::open_terminal(request.columns)
                                                : detail::open_pipe();
  auto err = request.terminal == Terminal::standard_error ? detail::open_terminal(request.columns)
                                                          : detail::open_pipe();
  const int err_number = request.terminal == Terminal::both ? out.theirs.get() : err.theirs.get();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool ready = null >= 0 && ::dup2(null, STDIN_FILENO) >= 0 &&
                 ::dup2(out.theirs.get(), STDOUT_FILENO) >= 0 &&
                 ::dup2(err_number, STDERR_FILENO) >= 0;
    if (!request.directory.empty()) ready &= ::chdir(request.directory.c_str()) == 0;
    if (request.user)
      ready &= ::setgroups(0, nullptr) == 0 &&
               ::setresgid(*request.user, *request.user, *request.user) == 0 &&
               ::setresuid(*request.user, *request.user, *request.user) == 0;
    if (ready)
      ::execve(argument_pointers.front(), argument_pointers.data(), variable_pointers.data());
    ::_exit(127);
  }
  out.theirs.close();
  err.theirs.close();

  ProcessResult result;
  if (child < 0 || !detail::read_both(out.ours, result.out, err.ours, result.err,
                                      std::chrono::steady_clock::now() + request.longest))
    if (child > 0) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace kiln::test
