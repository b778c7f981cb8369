// How a Runtime is set up. The environment is read in one place, which engines need not call.
//
// Precedence in the CLI and the examples: option, then environment, then default.
// Threads: values; an EnvironmentReader is called on the caller's thread, while nobody changes the
// environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/cache/api.hpp"
#include "kiln/cache/store.hpp"
#include "kiln/error.hpp"
#include "kiln/log.hpp"

namespace kiln {

struct RuntimeOptions {
  /// Where compiled kernels are kept; made at the first publish. Empty: nothing is kept on disk.
  std::filesystem::path cache_directory{};
  /// Why options_from() found no directory for the cache; a Runtime without any cache warns of it.
  std::string why_no_cache{};
  /// Caches that are asked after it and never written, such as layers of an image, or bundles.
  std::vector<std::filesystem::path> read_only_caches{};
  /// Whose caches are believed, and how large the one that is written may grow.
  cache::Trust cache_trust{};
  cache::Limits cache_limits{};
  /// A cache that a fleet shares; used only beside a directory, and under the signatures of
  /// cache_trust.
  cache::RemoteOptions remote{};
  /// fsync what is published: for building images.
  bool durable = false;
  /// An NVRTC library, or a directory that holds one. Nothing else is tried when this is set.
  std::filesystem::path nvrtc{};
  /// Root of a source tree whose files replace the added sources of the same include name, so that
  /// a kernel can be edited without rebuilding. Empty: off.
  std::filesystem::path source_directory{};
  /// Include directories, in order: where includes are looked for that are no added source, before
  /// the toolkit's own. In place of -I, which is refused among KernelSpec::options.
  std::vector<std::filesystem::path> include_roots{};
  /// Makes keys for this toolchain ("13.0", or a whole identity as reports show it) out of those
  /// recorded in the store, as if no NVRTC were installed. Empty: the installed NVRTC.
  std::string toolchain{};
  /// Compiles at a time in a warmup; 0: as many as this process has processors for, by affinity
  /// and cgroup.
  unsigned jobs = 0;
  /// The longest that one compile may take; 0: no limit. Beyond it the kernel is not_ready: its
  /// worker process is ended, or its thread left to the Runtime until NVRTC gives it back.
  std::chrono::milliseconds compile_limit{};
  /// Starts a process that calls serve_compiles() of <kiln/compile_worker.hpp>, such as {"kiln",
  /// "compile-worker"}: all compiles then run in such processes, and a compiler that crashes or
  /// eats all memory costs one compile. Empty: on threads of this process; the first compile then
  /// has NVRTC's handlers of SIGINT and SIGTERM in place for some 20 ms, in which such a signal
  /// ends the process unless it is blocked in all threads, to be taken by sigwait() or a signalfd.
  std::vector<std::string> worker_command{};
  /// Where the kernels that are asked for are written down, with their sources, for `kiln prewarm
  /// --manifest` on another machine; processes that share the file add to it. Written at once, but
  /// of a run that asks for hundreds one by one now and then, and at its end. Empty: nowhere.
  std::filesystem::path record_file{};
  /// How long to wait for another process that compiles a key before compiling it here as well.
  std::chrono::milliseconds longest_wait{std::chrono::minutes(10)};
  /// Where warnings and notes go; empty: nowhere. <kiln/spdlog.hpp> has one that writes them. It is
  /// let go with the Runtime, whatever kernels, descriptors and graphs remain.
  LogSink log{};
};

/// Reads one environment variable; empty when it is not set.
using EnvironmentReader = std::function<std::optional<std::string>(const char* name)>;

/// The process's environment.
KILN_API EnvironmentReader process_environment();

/// The names of the process's variables that begin with `prefix`, in order.
KILN_API std::vector<std::string> variables_of_process(std::string_view prefix);

/// The variables that options_from() took its settings from; empty for a default.
struct OptionOrigins {
  std::string cache_directory{};  ///< KILN_CACHE_DIR, XDG_CACHE_HOME or HOME
  std::string read_only_caches{};
  std::string remote{};
  std::string source_directory{};
  std::string nvrtc{};
  std::string jobs{};
  std::string record_file{};
};

/// A number of bytes such as "512M": a whole number, and K, M, G or T for powers of 1024.
KILN_API std::optional<std::uint64_t> bytes_from(std::string_view text);

/// Options as KILN_CACHE_DIR, KILN_JOBS, KILN_SOURCE_DIR, KILN_NVRTC and KILN_RECORD set them.
/// Without KILN_CACHE_DIR the cache is XDG_CACHE_HOME/kiln or HOME/.cache/kiln, and off when
/// neither is set. KILN_CACHE_READONLY lists read-only caches with colons between, KILN_CACHE_USERS
/// trusted users by number with commas between; KILN_CACHE_SIGNERS public keys that may have signed
/// bundles among those caches, with commas between; KILN_CACHE_GROUP is the number of a group that
/// shares the cache; KILN_CACHE_MAX_BYTES and KILN_CACHE_MIN_FREE_BYTES are its limits, with K, M,
/// G or T for powers of 1024. KILN_REMOTE names the remote cache by one or two URLs with a comma
/// between, and KILN_REMOTE_KEY the file with the secret key that signs what is sent there;
/// KILN_REMOTE_TOKEN, _NETRC, _HEADERS, _PASSWORD and _CA name files as cache::RemoteOptions takes
/// them, and KILN_REMOTE_UNSIGNED=accept takes unsigned objects. A variable that is set but empty
/// counts as not set. `origins`, if not null, says where each setting came from.
/// Errors  invalid_argument for a KILN_JOBS that is not a whole number from 0 to 1024, and for
///         numbers that are none.
KILN_API Result<RuntimeOptions> options_from(const EnvironmentReader& environment,
                                             OptionOrigins* origins = nullptr);

}  // namespace kiln
