// How an artifact that this process has not and the store does not hold is made: under its lock, by
// the remote cache or by the compiler.
#include <algorithm>
#include <utility>

#include "kiln/options.hpp"
#include "runtime/artifact_facts.hpp"
#include "runtime/compile_service.hpp"
#include "runtime/decimal_text.hpp"
#include "runtime/stored_artifact.hpp"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

// Compiles of one request whose headers change meanwhile. Some file systems tell of a change at
// each look.
constexpr unsigned kMostChanges = 8;

// A holder that is stopped or hangs keeps its lock, and nothing else tells why nothing happens.
constexpr std::chrono::seconds kSilentWait(10);
constexpr std::chrono::minutes kBetweenWarnings(1);

std::string seconds_text(std::chrono::duration<double> time) {
  return decimal_text(time.count(), time < std::chrono::seconds(10) ? 1 : 0) + " s";
}

bool names_directory(std::string_view code, std::string_view directory) {
  for (auto at = code.find(directory); at != std::string_view::npos;
       at = code.find(directory, at + 1)) {
    const auto end = at + directory.size();
    if (end == code.size() || code[end] == '/' || code[end] == '\0') return true;
  }
  return false;
}

// A directory of this machine that the code names; empty for the usual kernel.
std::string place_in(const Artifact& artifact, const Program& program) {
  const auto& options = program.options.arguments;
  if (std::find(options.begin(), options.end(), "--device-debug") != options.end())
    return "the working directory, as debug information does";
  std::string code(reinterpret_cast<const char*>(artifact.cubin), artifact.cubin_bytes);
  // The names that sources in memory go by are no place, however much they look like one.
  for (const auto& file : program.closure.memory) {
    const auto name = std::string(kProgramPrefix) + file.name;
    for (auto at = code.find(name); at != std::string::npos; at = code.find(name, at))
      std::fill_n(code.begin() + static_cast<std::ptrdiff_t>(at), name.size(), ' ');
  }
  for (const auto& directory : program.closure.include_directories)
    if (names_directory(code, directory.native())) return directory.string();
  return {};
}

Error not_there(const CompileRequest& request) {
  return Error(ErrorCode::io_failed,
               "kernel " + request.program().spec.name +
                   " is neither in the cache nor in the remote one; compile it "
                   "first, by kiln prewarm or a warmup");
}

}  // namespace

// An installed compiler is none only where the options ask for another one.
std::string CompileService::why_no_compiler() const {
  const auto& installed = compiler_.search().found;
  if (!installed) return no_nvrtc_error(compiler_.search()).message();
  return "the installed compiler is " + installed->toolchain().to_text() +
         ", and RuntimeOptions::toolchain is \"" + options_.toolchain +
         "\": leave that empty to compile with it";
}

Status CompileService::can_compile(const CompileRequest& request) const {
  const auto& installed = compiler_.search().found;
  if (installed && installed->toolchain() == request.toolchains_.front()) return {};
  return Error(ErrorCode::no_toolchain,
               "kernel " + request.program_->spec.name + " for " + request.architecture_ +
                   " is not in the cache and cannot be compiled: " + why_no_compiler());
}

std::optional<Outcome> CompileService::fetch(const CompileRequest& request, std::size_t which,
                                             cache::Wish wish, cache::Fetched& fetched) {
  const auto& key = request.keys_[which];
  fetched = store_->fetch(key.name, key.text, wish);
  if (!fetched.entry) return std::nullopt;
  std::string why;
  auto artifact = artifact_of(*std::move(fetched.entry), key.name, request.architecture_, why);
  if (artifact) {
    // As after a compile: where there is no compiler, the store is to know the toolchain.
    record_toolchain();
    return Outcome{.key = key.name, .artifact = *std::move(artifact), .origin = Origin::remote};
  }
  log(LogLevel::warning, "entry " + key.name.hex() +
                             " of the remote cache is not used and will be made again: " + why);
  static_cast<void>(store_->discard(key.name).ok());
  return std::nullopt;
}

bool CompileService::waits_on(const CompileRequest& request, Flight& flight,
                              std::string_view whom) {
  const auto now = Clock::now();
  if (!flight.busy_since) flight.busy_since = now;
  const auto waited = now - *flight.busy_since;
  const auto& limit = options_.longest_wait;
  if (waited < std::min<Clock::duration>(kSilentWait, limit / 2)) return true;
  const bool ends = waited >= limit;
  if (!ends) {
    const std::lock_guard lock(mutex_);
    if (told_of_wait_ && now - *told_of_wait_ < kBetweenWarnings) return true;
    told_of_wait_ = now;
  }
  const auto what = "kernel " + request.program_->spec.name + " for " + request.architecture_ +
                    ": " + std::string(whom) + " for ";
  const auto limit_text = seconds_text(limit);
  log(LogLevel::warning,
      ends ? what + "longer than the wait limit of " + limit_text + "; going on without"
           : what + seconds_text(waited) + " (cache " + store_->directory().string() +
                 "); waiting for that up to the limit of " + limit_text +
                 ": end what is stopped or hangs there");
  return !ends;
}

std::optional<Outcome> CompileService::make(CompileRequest& request, Flight& flight, Reach reach) {
  const auto& key = request.keys_.front();
  const auto able = can_compile(request);
  const bool may_fetch = store_ != nullptr && store_->has_remote();
  if (!able && !may_fetch) return Outcome::failure(key.name, able.error());
  if (!may_store() || !request.program_->closure.cacheable)
    return able && reach == Reach::make
               ? compile(request, false)
               : Outcome::failure(key.name, able ? not_there(request) : able.error());

  // Ours for as long as this call, and longer where it ends in a wait for the fleet.
  auto lock = std::exchange(request.host_lock_, nullptr);
  if (lock == nullptr) lock = flight.host_lock.lock();
  if (lock == nullptr) {
    auto attempt = store_->try_lock(key.name);
    if (attempt.outcome == cache::LockOutcome::busy) {
      if (waits_on(request, flight, "another process has been compiling it")) return std::nullopt;
    }
    lock = std::make_shared<const cache::KeyLock>(std::move(attempt.lock));
  }
  // The holder before us may have published between our look-up and our lock.
  bool unusable = false;
  if (auto outcome = find(request, 0, &unusable)) {
    count_hit(*outcome, flight);
    return outcome;
  }
  // A failure shows when the new entry is published.
  if (unusable) static_cast<void>(store_->discard(key.name).ok());
  cache::Fetched fetched;
  // Nobody is to wait for who makes nothing.
  const auto wish = able && reach == Reach::make ? cache::Wish::make : cache::Wish::look;
  for (std::size_t which = 0; may_fetch && which < request.keys_.size(); ++which) {
    if (auto outcome = fetch(request, which, wish, fetched)) {
      count_hit(*outcome, flight);
      return outcome;
    }
    if (!fetched.busy) continue;
    if (waits_on(request, flight,
                 "another host has been compiling it, or the remote cache has been away")) {
      flight.host_lock = request.host_lock_ = std::move(lock);
      return std::nullopt;
    }
  }
  if (!able) return Outcome::failure(key.name, able.error());
  if (reach != Reach::make) return Outcome::failure(key.name, not_there(request));
  return compile(request, true, std::move(fetched.lease));
}

// NVRTC reads headers on disk by itself, after the key was made from them. If one has changed
// since, and be it back to what it was, the machine code may belong to no key: the request starts
// over with the files as they are now.
Result<bool> CompileService::inputs_changed(CompileRequest& request) const {
  if (request.program_->closure.disk.empty() || !request.remake_) return false;
  KILN_TRY(auto remade, request.remake_());
  const auto& now = remade.closure.disk;
  const auto& before = request.program_->closure.disk;
  if (now == before) return false;
  if (++request.changes_ == kMostChanges) {
    const auto changed = std::find_if(now.begin(), now.end(), [&](const auto& file) {
      return std::find(before.begin(), before.end(), file) == before.end();
    });
    return Error(ErrorCode::io_failed,
                 "kernel " + request.program_->spec.name + " for " + request.architecture_ +
                     ": its headers changed during each of " + std::to_string(kMostChanges) +
                     " compiles" +
                     (changed == now.end() ? std::string() : ", at last " + changed->label) +
                     "; leave them as they are while it is compiled, or add them by "
                     "Runtime::add_source");
  }
  request.program_ = std::make_shared<const Program>(std::move(remade));
  request.keys_.clear();
  return true;
}

Result<Artifact> CompileService::run_compiler(const CompileRequest& request, const CompileKey& key,
                                              const ToolchainId& toolchain, CompileWatch& watch) {
  const auto& program = *request.program_;
  const auto& installed = compiler_.search().found;
  if (options_.workers == nullptr || !installed)
    return compiler_.compile(program, request.architecture_, key, toolchain, watch);
  return options_.workers->compile(program, request.architecture_, key, toolchain,
                                   installed->library.string(), watch);
}

// What holds of the program was said before it was compiled, and what holds of the cache when it
// was opened: only the others are warned of here.
std::optional<std::string> CompileService::why_not_stored(const Program& program,
                                                          const Artifact& artifact,
                                                          bool publish) const {
  if (!program.closure.cacheable) return program.closure.why_not;
  if (!publish) return "no cache directory that may be written is in force";
  const auto warned_of = [&](const std::string& why, const std::string& more) {
    log(LogLevel::warning, "kernel " + program.spec.name + " is not stored: " + why + more);
    return why;
  };
  if (const auto version = process_environment()("NV_NVVM_VERSION"))
    return warned_of(
        "NV_NVVM_VERSION=" + *version +
            " has been set since this Runtime was opened, and changes what NVRTC makes",
        "; unset it");
  if (const auto place = place_in(artifact, program); !place.empty())
    return warned_of("its code holds " + place + ", and entries hold no place",
                     ". -G, -lineinfo and __FILE__ in files of include directories do that");
  return std::nullopt;
}

std::optional<Outcome> CompileService::compile(CompileRequest& request, bool publish,
                                               cache::FleetLease lease) {
  // Copies: the request may get other ones when its files have changed.
  const auto key = request.keys_.front();
  const auto toolchain = request.toolchains_.front();
  const auto kept = request.program_;
  const auto& program = *kept;
  if (!program.closure.cacheable)
    log(LogLevel::warning,
        "kernel " + program.spec.name +
            " is compiled anew in each process and not stored: " + program.closure.why_not);

  CompileWatch watch{.stop = request.stop, .share_header = request.share_header};
  const auto started = Clock::now();
  auto artifact = run_compiler(request, key, toolchain, watch);
  const auto took = Clock::now() - started;
  const auto changed = inputs_changed(request);
  if (!changed) return Outcome::failure(key.name, changed.error());
  if (*changed) {
    // Perhaps since a precompiled header was made of them.
    compiler_.forget_headers();
    if (options_.workers != nullptr) options_.workers->end_idle();
    return std::nullopt;
  }
  if (!watch.header_trouble.empty())
    log(LogLevel::warning, "kernel " + program.spec.name +
                               " was compiled without the precompiled header that its #pragma "
                               "nv_hdrstop asks for, which takes longer: " +
                               watch.header_trouble);
  if (!artifact) {
    if (artifact.error().code() != ErrorCode::no_toolchain &&
        artifact.error().code() != ErrorCode::not_ready)
      counters_.failed_compiles.fetch_add(1, std::memory_order_relaxed);
    auto outcome = Outcome::failure(key.name, artifact.error());
    outcome.passing = watch.passing;
    outcome.compile_time = took;
    outcome.peak_bytes = watch.peak_bytes;
    return outcome;
  }
  counters_.compiles.fetch_add(1, std::memory_order_relaxed);
  log(LogLevel::info,
      "compiled kernel " + program.spec.name + " for " + request.architecture_ + " in " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) +
          " ms [key " + key.name.hex() + "]");
  if (!artifact->facts.log.empty())
    log(LogLevel::warning,
        "kernel " + program.spec.name + " compiles with warnings:\n" + artifact->facts.log);

  Outcome outcome{.key = key.name,
                  .origin = Origin::compiled,
                  .stored = false,
                  .compile_time = took,
                  .peak_bytes = watch.peak_bytes,
                  .header_shared = watch.header_shared};
  if (auto why = why_not_stored(program, *artifact, publish)) {
    outcome.storing = Error(ErrorCode::not_cacheable, *std::move(why));
  } else {
    // First, so that no entry is ever there without its toolchain.
    record_toolchain();
    const auto status = store_->publish(key.text, to_json(artifact->facts),
                                        {artifact->cubin, artifact->cubin_bytes}, std::move(lease));
    outcome.stored = status.ok();
    outcome.storing = status;
    // The store has said why, once; the kernel runs all the same.
    if (!status) counters_.failed_stores.fetch_add(1, std::memory_order_relaxed);
  }
  outcome.artifact = *std::move(artifact);
  return outcome;
}

}  // namespace kiln
