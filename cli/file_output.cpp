#include "cli/file_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace kiln::cli {
namespace {

constexpr int kPollMilliseconds = 100;
constexpr int kPollsOnceStopped = 5;

Failure cannot_write(const std::string& path, const std::string& option, int error, ExitCode exit) {
  const auto why = error == ENXIO ? std::string("it is a pipe that nobody reads")
                                  : std::generic_category().message(error);
  return {.exit = exit,
          .code = exit == ExitCode::usage ? "usage" : "io_failed",
          .message =
              "cannot write " + path + ": " + why + "; name another file with " + option + " FILE"};
}

// 0, or the errno of the write that failed.
int write_all(int file, std::string_view bytes, const std::stop_token& stop) {
  int polls_left = kPollsOnceStopped;
  while (!bytes.empty()) {
    const auto written = ::write(file, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{.fd = file, .events = POLLOUT, .revents = 0};
      const bool stopped = stop.stop_requested();
      if (::poll(&ready, 1, kPollMilliseconds) == 0 && stopped && --polls_left == 0)
        return ETIMEDOUT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

std::optional<Failure> output_is_input(const std::string& option, const std::string& output,
                                       std::span<const InputFile> inputs) {
  struct stat written {};
  // What is not there yet is nobody's input, and a device keeps nothing.
  if (::stat(output.c_str(), &written) != 0 || !S_ISREG(written.st_mode)) return std::nullopt;
  for (const auto& input : inputs) {
    struct stat read {};
    if (input.path.empty() || ::stat(input.path.c_str(), &read) != 0) continue;
    if (read.st_dev == written.st_dev && read.st_ino == written.st_ino)
      return usage_failure(option + " " + output + " is the same file as " + input.what + " " +
                           input.path + ", which would be lost; name another file");
  }
  return std::nullopt;
}

std::variant<OutputFile, Failure> OutputFile::open(std::string path, std::string option) {
  // Non-blocking, for a pipe that nobody reads.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  constexpr mode_t kMode = 0666;  // less the umask
  int file = ::open(path.c_str(), kFlags | O_EXCL, kMode);
  const bool made = file >= 0;
  if (!made && errno == EEXIST) file = ::open(path.c_str(), kFlags, kMode);
  if (file < 0) return cannot_write(path, option, errno, ExitCode::usage);
  return OutputFile(std::move(path), std::move(option), file, made);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      option_(std::move(other.option_)),
      file_(std::exchange(other.file_, -1)),
      made_(std::exchange(other.made_, false)) {}

OutputFile::~OutputFile() {
  if (made_) ::unlink(path_.c_str());
  if (file_ >= 0) ::close(file_);
}

std::optional<Failure> OutputFile::write(std::string_view bytes, const std::stop_token& stop) {
  made_ = false;
  struct stat status {};
  int error = 0;
  if (::fstat(file_, &status) == 0 && S_ISREG(status.st_mode) && ::ftruncate(file_, 0) != 0)
    error = errno;
  if (error == 0) error = write_all(file_, bytes, stop);
  // Some filesystems say only now that there was no room.
  if (::close(std::exchange(file_, -1)) != 0 && error == 0) error = errno;
  if (error == 0) return std::nullopt;
  return cannot_write(path_, option_, error, ExitCode::failed);
}

std::optional<Failure> write_output(const std::string& path, std::string_view bytes) {
  auto opened = OutputFile::open(path, "-o");
  if (auto* failure = std::get_if<Failure>(&opened)) {
    failure->exit = ExitCode::failed;
    failure->code = "io_failed";
    return std::move(*failure);
  }
  return std::get<OutputFile>(opened).write(bytes);
}

}  // namespace kiln::cli
