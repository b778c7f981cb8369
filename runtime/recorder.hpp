// Notes the kernels that a Runtime is asked for, and keeps a file of them where one is wanted.
//
// Threads: any member from any thread. Processes: any number add to one file.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "kiln/log.hpp"
#include "kiln/record.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/program.hpp"
#include "runtime/source_set.hpp"

namespace kiln {

class Recorder {
 public:
  /// Without a file nothing is noted.
  Recorder(std::filesystem::path file, const SourceSet& sources, LogSink log)
      : file_(std::move(file)), sources_(sources), log_(std::move(log)) {}

  /// `index`: that of the kernel in its registry. Cheap from the second time on.
  void note(std::uint32_t index, const KernelSpec& spec, std::string_view architecture,
            const Program& program);
  /// Adds what was noted since to the file, or leaves that to a later call where writing has taken
  /// more than a small part of the time. A file that cannot be written is warned about once.
  void flush();
  Recording recording();

  Recorder(const Recorder&) = delete;
  /// Writes what is left, though not in a forked child.
  ~Recorder();

 private:
  using Clock = std::chrono::steady_clock;
  void write(Clock::duration most);
  Status take_news();  // with the mutex held, as the next
  Status add_to_file(const Recording& news) const;

  const std::filesystem::path file_;
  const SourceSet& sources_;
  const LogSink log_;
  ForkMutex mutex_;
  std::set<std::pair<std::uint32_t, std::string>> noted_;
  std::size_t written_ = 0;  // of these
  const Clock::time_point opened_ = Clock::now();
  Clock::duration spent_{};  // on writing
  const unsigned generation_ = fork_generation();
  Recording news_;  // not in `recording_` yet
  Recording recording_;
  std::string not_recorded_{};  // why a kernel is not, until it is told
  bool warned_ = false;
};

}  // namespace kiln
