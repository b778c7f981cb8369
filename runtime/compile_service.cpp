#include "runtime/compile_service.hpp"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "runtime/artifact_facts.hpp"
#include "runtime/cubin.hpp"
#include "runtime/fork_generation.hpp"
#include "runtime/stored_artifact.hpp"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kToolchainRecords = "toolchain";

// Only what the inputs alone decide is remembered; a missing compiler may be there next time.
bool is_final(const Outcome& outcome) {
  return outcome.status.ok() ||
         (!outcome.passing && (outcome.status.code() == ErrorCode::compile_failed ||
                               outcome.status.code() == ErrorCode::unsupported));
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
  return Error(ErrorCode::io_failed, "kernel " + request.program().spec.name +
                                         " is neither in the cache nor in the remote one");
}

Outcome failure(const cache::Digest& key, Error error) {
  return Outcome{.key = key, .status = std::move(error)};
}

}  // namespace

unsigned random_seed() {
  const auto time = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  const auto process = static_cast<std::uint64_t>(::getpid()) << 40;
  return static_cast<unsigned>((time ^ process) * 0x9e3779b97f4a7c15u >> 32);
}

std::chrono::milliseconds poll_interval() {
  thread_local std::minstd_rand random(random_seed());
  return std::chrono::milliseconds(std::uniform_int_distribution<int>(5, 15)(random));
}

std::vector<ToolchainId> recorded_toolchains(const cache::Store& store) {
  std::vector<ToolchainId> found;
  for (const auto& text : store.records(kToolchainRecords))
    if (const auto id = ToolchainId::from_text(text)) found.push_back(*id);
  // The records are an index that may be lost; the entries know as well.
  if (found.empty())
    if (const auto entries = store.list())
      for (const auto& info : *entries)
        if (const auto entry = store.read(info.name))
          if (const auto id = toolchain_in(entry->key_text());
              id && std::find(found.begin(), found.end(), *id) == found.end())
            found.push_back(*id);
  std::sort(found.begin(), found.end(), newer_first);
  return found;
}

CompileService::CompileService(Options options, cache::Store* store, Compiler& compiler,
                               Counters& counters)
    : options_(std::move(options)), store_(store), compiler_(compiler), counters_(counters) {}

void CompileService::log(LogLevel level, std::string_view message) const {
  if (options_.log) options_.log(level, message);
}

std::string CompileService::toolchain_text() const {
  const std::lock_guard lock(mutex_);
  return used_ ? used_->to_text() : std::string();
}

// The installed compiler, or else every one that the store has seen, newest first, so that a filled
// cache serves on a machine without a compiler.
std::vector<ToolchainId> CompileService::candidates() {
  const auto wanted = [&](const ToolchainId& id) {
    return options_.toolchain.empty() || id.matches(options_.toolchain);
  };
  if (const auto& found = compiler_.search().found; found && wanted(found->toolchain()))
    return {found->toolchain()};
  std::vector<ToolchainId> recorded;
  if (store_ == nullptr) return recorded;
  {
    const std::lock_guard lock(mutex_);
    recorded = recorded_;
  }
  if (recorded.empty()) {
    recorded = recorded_toolchains(*store_);
    const std::lock_guard lock(mutex_);
    recorded_ = recorded;
  }
  recorded.erase(
      std::remove_if(recorded.begin(), recorded.end(), [&](const auto& id) { return !wanted(id); }),
      recorded.end());
  return recorded;
}

Status CompileService::make_keys(CompileRequest& request) {
  if (!request.keys_.empty()) return {};
  request.toolchains_ = candidates();
  for (const auto& toolchain : request.toolchains_)
    request.keys_.push_back(key_of(*request.program_, request.architecture_, toolchain));
  if (!request.keys_.empty()) return {};
  return Error(ErrorCode::no_toolchain,
               "kernel " + request.program_->spec.name + ": the cache names no toolchain" +
                   (options_.toolchain.empty() ? std::string() : " like " + options_.toolchain) +
                   ", so nothing in it can be used; " +
                   no_nvrtc_error(compiler_.search()).message());
}

Result<std::optional<Outcome>> CompileService::held(CompileRequest& request) {
  if (auto status = make_keys(request); !status) return status.error();
  const std::lock_guard lock(mutex_);
  const auto flight = flights_.find(request.keys_.front().name);
  if (flight == flights_.end() || flight->second.state != Flight::State::finished)
    return std::optional<Outcome>();
  auto outcome = std::optional(flight->second.outcome);
  if (outcome->status.ok()) outcome->origin = Origin::memory;
  return outcome;
}

Result<Lookup> CompileService::look_up(CompileRequest& request) {
  KILN_TRY(const auto known, held(request));
  if (known && known->status.ok())
    return Lookup{known->key, known->artifact->facts.toolchain, true};
  for (std::size_t which = 0; which < request.keys_.size(); ++which)
    if (find(request, which))
      return Lookup{request.keys_[which].name, request.toolchains_[which].to_text(), true};
  return Lookup{request.keys_.front().name, request.toolchains_.front().to_text(), false};
}

std::optional<Outcome> CompileService::advance(CompileRequest& request, Reach reach) {
  if (auto status = make_keys(request); !status) return failure({}, status.error());

  Flight* flight = nullptr;
  {
    const std::lock_guard lock(mutex_);
    flight = &flights_[request.keys_.front().name];
    // A forked child has inherited the state and not the thread that would end it.
    if (flight->state == Flight::State::working && flight->generation == fork_generation()) {
      if (reach == Reach::make) request.asked_before_ = true;
      return std::nullopt;
    }
    if (flight->state == Flight::State::finished) {
      request.host_lock_.reset();
      auto outcome = flight->outcome;
      // What they were belongs to the request that took them.
      outcome.verify_time = outcome.compile_time = {};
      outcome.header_shared = false;
      if (outcome.status.ok())
        outcome.origin = request.asked_before_ ? Origin::waited : Origin::memory;
      return outcome;
    }
    flight->state = Flight::State::working;
    flight->generation = fork_generation();
  }

  // This thread alone works on the flight from here on.
  std::optional<Outcome> outcome;
  const auto looked = Clock::now();
  for (std::size_t which = 0; which < request.keys_.size() && !outcome; ++which)
    outcome = find(request, which);
  if (outcome) {
    outcome->verify_time = Clock::now() - looked;
    count_hit(*outcome, *flight);
  } else if (reach != Reach::look) {
    if (!flight->busy_since) counters_.disk_misses.fetch_add(1, std::memory_order_relaxed);
    outcome = make(request, *flight, reach);
  }

  if (outcome && outcome->artifact) {
    if (outcome->origin == Origin::waited) counters_.waits.fetch_add(1, std::memory_order_relaxed);
    auto& bytes =
        outcome->origin == Origin::compiled ? counters_.compiled_bytes : counters_.disk_bytes;
    bytes.fetch_add(outcome->artifact->cubin_bytes, std::memory_order_relaxed);
    if (outcome->origin == Origin::compiled)
      counters_.compile_time.add(outcome->compile_time);
    else
      counters_.verify_time.add(outcome->verify_time);
  }
  {
    const std::lock_guard lock(mutex_);
    if (outcome) flight->busy_since.reset();
    if (outcome && is_final(*outcome)) {
      flight->outcome = *outcome;
      flight->state = Flight::State::finished;
    } else {
      flight->state = Flight::State::idle;
      if (reach == Reach::make) request.asked_before_ = true;
    }
    if (outcome && outcome->status.ok()) {
      for (std::size_t i = 0; i < request.keys_.size(); ++i)
        if (request.keys_[i].name == outcome->key) used_ = request.toolchains_[i];
    }
  }
  // Of a key that is busy elsewhere nobody needs to know: those who wait for it would ask in turn,
  // and wake each other without end.
  if (outcome) changed_.notify_all();
  return outcome;
}

std::optional<Outcome> CompileService::find(const CompileRequest& request, std::size_t which,
                                            bool* unusable) {
  if (store_ == nullptr || !request.program_->closure.cacheable) return std::nullopt;
  const auto& key = request.keys_[which];
  auto found = store_->find(key.name, key.text);
  if (!found.damage.empty()) counters_.damaged_entries.fetch_add(1, std::memory_order_relaxed);
  if (!found.entry) return std::nullopt;

  std::string why;
  const bool lower_tier = found.in_lower_tier;
  auto artifact = artifact_of(*std::move(found.entry), key.name, request.architecture_, why);
  if (!artifact) {
    // Told once: the look-up under the lock, which asks, comes after one that does not.
    if (unusable == nullptr)
      log(LogLevel::warning,
          "cache entry " + key.name.hex() + " is not used and will be made again: " + why);
    else
      *unusable = true;
    return std::nullopt;
  }

  return Outcome{.key = key.name,
                 .artifact = *std::move(artifact),
                 .origin = lower_tier ? Origin::lower_tier : Origin::disk};
}

// find() has set the origin to that of the tier.
void CompileService::count_hit(Outcome& outcome, const Flight& flight) {
  auto& hits = outcome.origin == Origin::lower_tier ? counters_.lower_tier_hits
               : outcome.origin == Origin::remote   ? counters_.remote_hits
                                                    : counters_.disk_hits;
  hits.fetch_add(1, std::memory_order_relaxed);
  if (flight.busy_since) outcome.origin = Origin::waited;
}

Status CompileService::can_compile(const CompileRequest& request) const {
  const auto& installed = compiler_.search().found;
  if (installed && installed->toolchain() == request.toolchains_.front()) return {};
  const auto why = installed ? "the installed compiler is " + installed->toolchain().to_text()
                             : no_nvrtc_error(compiler_.search()).message();
  return Error(ErrorCode::no_toolchain, "kernel " + request.program_->spec.name + " for " +
                                            request.architecture_ +
                                            " is not in the cache and cannot be compiled: " + why);
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

std::optional<Outcome> CompileService::make(CompileRequest& request, Flight& flight, Reach reach) {
  const auto& key = request.keys_.front();
  const auto able = can_compile(request);
  const bool may_fetch = store_ != nullptr && store_->has_remote();
  if (!able && !may_fetch) return failure(key.name, able.error());
  if (!may_store() || !request.program_->closure.cacheable)
    return able && reach == Reach::make
               ? compile(request, false)
               : failure(key.name, able ? not_there(request) : able.error());

  const auto busy = [&] {
    if (!flight.busy_since) flight.busy_since = Clock::now();
  };
  // Ours for as long as this call, and longer where it ends in a wait for the fleet.
  auto lock = std::exchange(request.host_lock_, nullptr);
  if (lock == nullptr) lock = flight.host_lock.lock();
  if (lock == nullptr) {
    auto attempt = store_->try_lock(key.name);
    if (attempt.outcome == cache::LockOutcome::busy) {
      busy();
      if (Clock::now() - *flight.busy_since < options_.longest_wait) return std::nullopt;
      log(LogLevel::warning, "kernel " + request.program_->spec.name +
                                 ": another process has been compiling it for longer than the "
                                 "wait limit; compiling it here as well");
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
    busy();
    if (Clock::now() - *flight.busy_since < options_.longest_wait) {
      flight.host_lock = request.host_lock_ = std::move(lock);
      return std::nullopt;
    }
    log(LogLevel::warning, "kernel " + request.program_->spec.name +
                               ": another host has been compiling it, or the remote cache has been "
                               "away, for longer than the wait limit; going on without");
  }
  if (!able) return failure(key.name, able.error());
  if (reach != Reach::make) return failure(key.name, not_there(request));
  return compile(request, true, std::move(fetched.lease));
}

Result<Lookup> CompileService::fetch(CompileRequest& request) {
  for (;;) {
    if (auto outcome = advance(request, Reach::fetch)) {
      // What keeps a key from being made at all; a compile is not what was asked for.
      if (!outcome->status && request.keys_.empty()) return outcome->status.error();
      return look_up(request);
    }
    wait_for_change(poll_interval());
  }
}

// NVRTC reads headers on disk by itself, after the key was made from them. If one has changed
// since, the machine code belongs to no key: the request starts over with the files as they are
// now.
Result<bool> CompileService::inputs_changed(CompileRequest& request) const {
  if (request.program_->closure.disk.empty() || !request.remake_) return false;
  KILN_TRY(auto remade, request.remake_());
  if (remade.closure.disk == request.program_->closure.disk) return false;
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
  if (!changed) return failure(key.name, changed.error());
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
    auto outcome = failure(key.name, artifact.error());
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
  const auto not_stored = [&](std::string why) {
    outcome.storing = Error(ErrorCode::not_cacheable, std::move(why));
  };
  if (!program.closure.cacheable) {
    not_stored(program.closure.why_not);
  } else if (!publish) {
    not_stored("no cache directory that may be written is in force");
  } else if (const auto place = place_in(*artifact, program); !place.empty()) {
    const auto why = "its code holds " + place + ", and entries hold no place";
    log(LogLevel::warning, "kernel " + program.spec.name + " is not stored: " + why +
                               ". -G, -lineinfo and __FILE__ in files of include directories do "
                               "that");
    not_stored(why);
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

std::optional<cache::Digest> CompileService::shared_header_of(const CompileRequest& request) const {
  if (request.toolchains_.empty()) return std::nullopt;
  const auto& toolchain = request.toolchains_.front();
  return kiln::shared_header_of(
      *request.program_, nvrtc_arguments(*request.program_, request.architecture_, toolchain),
      toolchain);
}

void CompileService::record_toolchain() {
  const auto& installed = compiler_.search().found;
  if (!may_store() || !installed) return;
  // The store warns by itself; without the record the entries still serve where a compiler is.
  static_cast<void>(store_->add_record(kToolchainRecords, installed->toolchain().to_text()).ok());
}

void CompileService::wait_for_change(std::chrono::microseconds longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest);
}

Outcome CompileService::obtain(CompileRequest& request) {
  for (;;) {
    if (auto outcome = advance(request)) return *std::move(outcome);
    if (request.stop && request.stop())
      return failure(request.key(),
                     compile_stopped(request.program_->spec.name, request.architecture_));
    wait_for_change(poll_interval());
  }
}

}  // namespace kiln
