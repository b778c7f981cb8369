// Precompiled headers: what programs that begin with the same includes of the toolkit share.
//
// An author asks for one by the line "#pragma nv_hdrstop" after those includes. A header is a file
// of one process: it is made when a warmup has several programs for it, and has no name by the time
// that it is used, so that nothing of it stays, however the process ends. It is called by a digest
// of all that goes into it, since NVRTC notices no change of what it was handed in memory. Any
// trouble costs the time of a compile without it.
// Threads: any member from any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/digest.hpp"
#include "kiln/error.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/program.hpp"

namespace kiln {

/// What `program` begins with, up to and with its "#pragma nv_hdrstop". Empty without one, and
/// where more than includes of the toolkit, plain macros and comments comes before it.
std::string_view shared_prefix(const Program& program);

/// Whether the option is one that a shared header would not go together with.
bool forbids_shared_header(std::string_view option);

/// The name of the header that `program` may use when it is compiled with `arguments`, which hold
/// the architecture; empty for none.
std::optional<cache::Digest> shared_header_of(const Program& program,
                                              const std::vector<std::string>& arguments,
                                              const ToolchainId& toolchain);

/// The files that stand for a program's own when its header is made: all but the root and the key.
std::vector<ProgramFile> shared_header_files(const Program& program);

/// How the names of the directories begin that `process` makes headers in.
std::string unfinished_header_prefix(pid_t process);

/// What `process`, which has ended, or ends now, in the middle of making one has left behind.
void remove_unfinished_headers(pid_t process);

/// An open file without a name.
class SharedHeader {
 public:
  explicit SharedHeader(int file) : file_(file) {}
  SharedHeader(const SharedHeader&) = delete;
  SharedHeader& operator=(const SharedHeader&) = delete;
  ~SharedHeader();
  /// What it goes by in this process as long as it lives.
  std::string path() const;

 private:
  int file_;
};

class SharedHeaders {
 public:
  /// Writes the header to the path; an error says why not.
  using Make = std::function<Status(const std::string& path)>;

  /// The header of that name. The first who asks makes it, and others wait for it, since NVRTC
  /// reads one program at a time. Null where there is none: `trouble` then says why, to the first
  /// one. `stop` ends a wait.
  std::shared_ptr<const SharedHeader> get(const cache::Digest& name, const Make& make,
                                          const std::function<bool()>& stop, std::string& trouble);
  /// It was not taken; nobody gets it any more.
  void give_up(const cache::Digest& name);
  /// Those that nobody uses are gone from now on, the others after their last use.
  void clear();

 private:
  struct Slot {
    bool making = false;
    unsigned generation = 0;                       // fork_generation() of the process it belongs to
    std::shared_ptr<const SharedHeader> header{};  // null: it could not be made
  };

  ForkMutex mutex_;
  ForkCondition made_;
  std::map<cache::Digest, Slot> slots_;
};

}  // namespace kiln
