#include "runtime/compile_service.hpp"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

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
                   ", so nothing in it can be used; " + why_no_compiler());
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
  if (auto status = make_keys(request); !status) return Outcome::failure({}, status.error());

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
      return Outcome::failure(request.key(),
                              compile_stopped(request.program_->spec.name, request.architecture_));
    wait_for_change(poll_interval());
  }
}

}  // namespace kiln
