#include "runtime/recorder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

namespace kiln {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestLock{1000}, kLockPoll{2};
// The file is written anew each time, and a tuner asks for thousands of kernels one by one: what
// goes beyond the first of these may take no more than a part of the time.
constexpr milliseconds kFreeTime{250};
constexpr int kPartOfTime = 20;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }

 private:
  int number_;
};

Error failed(const std::filesystem::path& file, const std::string& what) {
  return Error(ErrorCode::io_failed, "the recording " + file.string() +
                                         " cannot be written: " + what +
                                         "; name another file by KILN_RECORD or record_file");
}

Error failed(const std::filesystem::path& file) {
  return failed(file, std::strerror(errno));
}

// Past the limit on files the system does not only refuse: it sends a signal that ends the process.
bool is_too_large(std::size_t size) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur;
}

bool write_all(int file, std::string_view text) {
  if (is_too_large(text.size())) {
    errno = EFBIG;
    return false;
  }
  while (!text.empty()) {
    const auto written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

Result<std::string> read_all(int file, const std::filesystem::path& name) {
  std::string text;
  char bytes[65536];
  for (;;) {
    const auto count = ::read(file, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(name);
    if (count == 0) return text;
    text.append(bytes, static_cast<std::size_t>(count));
  }
}

// A file that another process has locked and does not give back must not hold a warmup up: what is
// recorded is kept, and written with what comes next. After the first time it waits no more to
// speak of.
Status lock(int file, const std::filesystem::path& name, std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return failed(name);
    if (std::chrono::steady_clock::now() > until)
      return failed(name, "another process has it locked");
    std::this_thread::sleep_for(kLockPoll);
  }
  return {};
}

// JSON holds nothing else: another text would come back as another kernel.
bool is_utf8(const nlohmann::json& json) {
  using Handler = nlohmann::json::error_handler_t;
  return json.dump(-1, ' ', false, Handler::ignore).size() ==
         json.dump(-1, ' ', false, Handler::replace).size();
}

// Whether `file` still has that name: another process may have put its own there meanwhile.
bool is_current(int file, const std::filesystem::path& name) {
  struct stat here {};
  struct stat there {};
  return ::fstat(file, &here) == 0 && ::stat(name.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

}  // namespace

void Recorder::note(std::uint32_t index, const KernelSpec& spec, std::string_view architecture,
                    const Program& program) {
  if (file_.empty()) return;
  const std::lock_guard lock(mutex_);
  if (!noted_.emplace(index, architecture).second) return;
  const auto leave_out = [&](const std::string& what) {
    not_recorded_ = "kernel " + spec.name + " is not recorded: its " + what +
                    " is not UTF-8, as JSON must be; save it as UTF-8";
  };
  nlohmann::json texts = {spec.name, spec.source, spec.entry, spec.name_expression, spec.options};
  for (const auto& variant : spec.variants) texts.push_back(variant.source);
  if (!is_utf8(texts)) return leave_out("name, source, entry or an option of it");
  std::map<std::string, std::string> sources;
  for (const auto& file : program.closure.memory) {
    // Stubs and generated headers are made anew from these.
    const auto source = sources_.find(file.name);
    if (!source || *source == nullptr) continue;
    const auto& text = *(*source)->text;
    if (!is_utf8({file.name, text})) return leave_out("source " + file.name);
    sources[file.name] = text;
  }
  news_.kernels.push_back({spec, {std::string(architecture)}});
  news_.sources.merge(sources);
}

Status Recorder::take_news() {
  if (news_.kernels.empty()) return {};
  return merge(recording_, std::exchange(news_, {}));
}

Recording Recorder::recording() {
  const std::lock_guard lock(mutex_);
  static_cast<void>(take_news().ok());  // less a source that was edited meanwhile
  return recording_;
}

Recorder::~Recorder() {
  if (generation_ == fork_generation()) write(Clock::duration::max());
}

void Recorder::flush() {
  write(kFreeTime + (Clock::now() - opened_) / kPartOfTime);
}

void Recorder::write(Clock::duration most) {
  if (file_.empty()) return;
  std::string trouble;
  {
    const std::lock_guard lock(mutex_);
    if (noted_.size() == written_ || spent_ > most) return;
    const auto started = Clock::now();
    auto status = take_news();
    const auto written = add_to_file(recording_);
    if (written) written_ = noted_.size();
    if (status) status = written;
    if (!status && !std::exchange(warned_, true))
      trouble = status.error().message();
    else
      trouble = std::exchange(not_recorded_, {});
    spent_ += Clock::now() - started;
  }
  // Without the mutex: the sink may ask the Runtime something.
  if (log_ && !trouble.empty()) log_(LogLevel::warning, trouble);
}

// Read, merged and replaced under a lock on the file itself, so that ranks can share one and a kill
// leaves the old or the new one whole.
Status Recorder::add_to_file(const Recording& news) const {
  const auto longest = warned_ ? milliseconds{20} : kLongestLock;
  for (const auto until = Clock::now() + longest;;) {
    // Non-blocking, for a pipe that nobody reads.
    const Descriptor file(::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
    if (file.get() < 0) return failed(file_);
    struct stat kind {};
    if (::fstat(file.get(), &kind) != 0) return failed(file_);
    // A device would be replaced by a file.
    if (!S_ISREG(kind.st_mode)) return failed(file_, "it is not a regular file");
    if (auto status = lock(file.get(), file_, longest); !status) return status;
    if (!is_current(file.get(), file_)) {
      // Or its file system gives it another number at each look.
      if (Clock::now() > until) return failed(file_, "it is replaced again and again");
      continue;
    }
    KILN_TRY(const auto text, read_all(file.get(), file_));
    Recording all;
    if (!text.empty()) {
      KILN_TRY(all, read_recording(text, file_.string()));
    }
    if (auto status = merge(all, news); !status) return failed(file_, status.error().message());
    // A link stays one: what it leads to is replaced.
    std::error_code lost;
    const auto place = std::filesystem::canonical(file_, lost);
    if (lost) return failed(file_, lost.message());
    // Under the lock it is what a killed process has left, or something else that is in the way.
    const auto pending = place.string() + ".new";
    ::unlink(pending.c_str());
    const Descriptor next(::open(pending.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (next.get() >= 0 && ::fchmod(next.get(), kind.st_mode & 07777) == 0 &&
        write_all(next.get(), to_json(all)) && std::rename(pending.c_str(), place.c_str()) == 0)
      return {};
    const auto error = failed(file_);
    ::unlink(pending.c_str());
    return error;
  }
}

}  // namespace kiln
