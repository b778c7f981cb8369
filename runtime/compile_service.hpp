// One compile per key: finds an artifact in this process or the store, or makes it, however many
// threads and processes ask at once.
//
// Nothing here waits for another process while there is other work: advance() takes a request one
// step further and comes back, so that a warmup goes on with its next kernel.
// Threads: any member from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kiln/artifact.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/error.hpp"
#include "kiln/explain.hpp"
#include "kiln/warmup.hpp"
#include "runtime/compiler.hpp"
#include "runtime/counters.hpp"
#include "runtime/fork_mutex.hpp"
#include "runtime/program.hpp"
#include "runtime/worker_pool.hpp"

namespace kiln {

/// The compilers that `store` has seen, newest first: by its records, or where those are lost by
/// its entries.
std::vector<ToolchainId> recorded_toolchains(const cache::Store& store);

/// Another one in each thread of each process. The system's own source is no faster for so little.
unsigned random_seed();

/// How long to wait until a key that another process compiles is looked at again: never the same,
/// so that many processes do not fall into step.
std::chrono::milliseconds poll_interval();

/// The end of a request.
struct Outcome {
  cache::Digest key{};
  std::optional<Artifact> artifact{};  ///< empty when it failed
  Status status{};
  Origin origin = Origin::failed;
  bool stored = true;
  Status storing{};  ///< why it is not
  /// A failure that may not come again with the same inputs, such as running out of memory.
  bool passing = false;
  std::chrono::nanoseconds verify_time{};   ///< in the store: reading and checking
  std::chrono::nanoseconds compile_time{};  ///< in the compiler
  std::uint64_t peak_bytes = 0;             ///< see CompileWatch
  bool header_shared = false;               ///< the same

  static Outcome failure(const cache::Digest& key, Error error) {
    return {.key = key, .status = std::move(error)};
  }
};

/// One caller's wish for one program on one architecture.
class CompileRequest {
 public:
  /// Makes the program anew from the files as they are then.
  using Remake = std::function<Result<Program>()>;

  /// `remake` is needed for programs that include files on disk.
  CompileRequest(std::shared_ptr<const Program> program, std::string architecture,
                 Remake remake = {})
      : program_(std::move(program)),
        architecture_(std::move(architecture)),
        remake_(std::move(remake)) {}

  const Program& program() const noexcept { return *program_; }
  /// Zero until the first look-up.
  cache::Digest key() const { return keys_.empty() ? cache::Digest{} : keys_.front().name; }

  /// Ends its compile, or its wait for somebody else's, once it gives true; see CompileWatch.
  std::function<bool()> stop{};
  /// See CompileWatch. Only a warmup knows of others.
  bool share_header = false;

 private:
  friend class CompileService;
  std::shared_ptr<const Program> program_;
  std::string architecture_;
  Remake remake_;
  std::vector<CompileKey> keys_;  // one for each toolchain that may have made it, best first
  std::vector<ToolchainId> toolchains_;
  // Kept while the fleet is waited for, so that one process of the host asks for all of them.
  std::shared_ptr<const cache::KeyLock> host_lock_;
  bool asked_before_ = false;
  unsigned changes_ = 0;  // of its files, each during a compile
};

/// How far a request is taken.
enum class Reach : unsigned char {
  look,   ///< what is there already
  fetch,  ///< and what the remote cache has
  make,   ///< and else a compile
};

class CompileService {
 public:
  struct Options {
    std::string toolchain{};
    std::chrono::milliseconds longest_wait{};
    LogSink log{};
    WorkerPool* workers = nullptr;  ///< what compiles in place of this process; may be null
  };
  /// `store` may be null: then nothing is kept on disk.
  CompileService(Options options, cache::Store* store, Compiler& compiler, Counters& counters);

  /// Takes `request` as far as it goes without waiting; empty when another thread or process is at
  /// work on it, so that the caller does something else and comes back. Under Reach::look it is
  /// empty as well when there is nothing yet.
  std::optional<Outcome> advance(CompileRequest& request, Reach reach = Reach::make);

  /// The outcome that this process holds already; touches no disk.
  /// Errors  as look_up().
  Result<std::optional<Outcome>> held(CompileRequest& request);

  /// Waits until something here has finished or `longest` has passed.
  void wait_for_change(std::chrono::microseconds longest);

  /// Looks `request` up in this process and the store.
  /// Errors  no_toolchain when no key can be made.
  Result<Lookup> look_up(CompileRequest& request);

  /// As look_up(), after the remote cache was asked for what is missing; waits while another host
  /// makes it.
  /// Errors  as look_up().
  Result<Lookup> fetch(CompileRequest& request);

  /// Why the store does not serve `request`, or that it does. Reads every entry.
  /// Errors  as look_up(); io_failed when the store cannot be read.
  Result<Explanation> explain(CompileRequest& request);

  /// advance() until there is an outcome; not_ready when the request is stopped.
  Outcome obtain(CompileRequest& request);

  /// The precompiled header that `request` could share with others; empty for none.
  std::optional<cache::Digest> shared_header_of(const CompileRequest& request) const;

  /// Puts the installed compiler among those that the store has seen, where it is missing.
  void record_toolchain();

  /// The identity that keys are made with; empty before the first request or without any.
  std::string toolchain_text() const;

 private:
  // What this process knows of one key.
  struct Flight {
    enum class State : unsigned char { idle, working, finished };
    State state = State::idle;
    unsigned generation = 0;  // fork_generation() of the process whose thread is at work
    std::optional<std::chrono::steady_clock::time_point> busy_since{};
    // That of the requests: whoever of them comes next goes on under it, and it ends with the last.
    std::weak_ptr<const cache::KeyLock> host_lock{};
    Outcome outcome{};
  };

  std::vector<ToolchainId> candidates();
  Status make_keys(CompileRequest& request);
  Result<Artifact> run_compiler(const CompileRequest& request, const CompileKey& key,
                                const ToolchainId& toolchain, CompileWatch& watch);
  // `unusable` tells of an entry that is whole and yet cannot be used.
  std::optional<Outcome> find(const CompileRequest& request, std::size_t which,
                              bool* unusable = nullptr);
  void count_hit(Outcome& outcome, const Flight& flight);
  bool may_store() const { return store_ != nullptr && !store_->directory().empty(); }
  std::string why_no_compiler() const;
  Status can_compile(const CompileRequest& request) const;
  // False once it has taken too long; warns now and then before.
  bool waits_on(const CompileRequest& request, Flight& flight, std::string_view whom);
  std::optional<Outcome> make(CompileRequest& request, Flight& flight, Reach reach);
  // Asks the remote cache: what it has, or nothing, and then whose turn it is to make it.
  std::optional<Outcome> fetch(const CompileRequest& request, std::size_t which, cache::Wish wish,
                               cache::Fetched& fetched);
  std::optional<Outcome> compile(CompileRequest& request, bool publish,
                                 cache::FleetLease lease = {});
  Result<bool> inputs_changed(CompileRequest& request) const;
  // Why compiled code is used and not kept; empty when it is to be published.
  std::optional<std::string> why_not_stored(const Program& program, const Artifact& artifact,
                                            bool publish) const;
  void log(LogLevel level, std::string_view message) const;

  Options options_;
  cache::Store* store_;
  Compiler& compiler_;
  Counters& counters_;

  mutable ForkMutex mutex_;
  ForkCondition changed_;
  std::map<cache::Digest, Flight> flights_;  // nodes never move
  std::vector<ToolchainId> recorded_;        // in the store, once there are any
  std::optional<ToolchainId> used_;
  std::optional<std::chrono::steady_clock::time_point> told_of_wait_;
};

}  // namespace kiln
