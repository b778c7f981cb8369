// Requests outside of a warmup: what this process holds at once, and the rest as the seal and the
// compile limit allow.
#include <utility>

#include "runtime/fork_mutex.hpp"
#include "runtime/runtime_state.hpp"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

// How long beyond its limit a compile on a thread of the Runtime is waited for.
constexpr std::chrono::milliseconds kGrace{200};

// Where one thread leaves an outcome for another, which may have gone.
class Pending {
 public:
  void put(Outcome outcome) {
    const std::lock_guard lock(mutex_);
    outcome_ = std::move(outcome);
    there_.notify_all();
  }
  std::optional<Outcome> wait(std::chrono::milliseconds longest) {
    std::unique_lock lock(mutex_);
    there_.wait_for(lock, longest, [this] { return outcome_.has_value(); });
    return outcome_;
  }

 private:
  ForkMutex mutex_;
  ForkCondition there_;
  std::optional<Outcome> outcome_;
};

Outcome failure(const CompileRequest& request, Error error) {
  return {.key = request.key(), .status = std::move(error)};
}

Error takes_too_long(const KernelSpec& spec, const std::string& architecture,
                     std::chrono::milliseconds limit) {
  return Error(ErrorCode::not_ready, "kernel " + spec.name + " for " + architecture +
                                         " could not be had within the compile limit of " +
                                         std::to_string(limit.count()) +
                                         " ms; fall back, ask again later, or raise the limit");
}

}  // namespace

void Runtime::State::note(KernelId id, const KernelSpec& spec, const CompileRequest& request,
                          std::string_view architecture, const Outcome& outcome) {
  recorder.note(id.index, spec, architecture, request.program());
  if (outcome.status) seal.warmed({id.index, std::string(architecture)}, spec, outcome.key);
}

bool Runtime::State::start_late_build(KernelId id, const KernelSpec& spec,
                                      const std::shared_ptr<CompileRequest>& wish,
                                      const Seal::Subject& subject) {
  return late_builds.add(threads, subject, [this, id, &spec, wish, subject] {
    const auto until = Clock::now() + options.compile_limit;
    wish->stop = [this, until] {
      return threads.stopping() || (options.compile_limit.count() > 0 && Clock::now() > until);
    };
    const auto outcome = service.obtain(*wish);
    note(id, spec, *wish, subject.second, outcome);
    if (outcome.origin == Origin::compiled)
      counters.late_compiles.fetch_add(1, std::memory_order_relaxed);
    if (options.log)
      options.log(outcome.status ? LogLevel::info : LogLevel::warning,
                  outcome.status ? "kernel " + spec.name + " was built late and is ready now"
                                 : "a late build failed: " + outcome.status.error().message());
  });
}

Outcome Runtime::State::obtain(KernelId id, const KernelSpec& spec, std::string_view architecture) {
  auto made = request(id, architecture);
  if (!made) return {.status = made.error()};
  const auto wish = std::make_shared<CompileRequest>(*std::move(made));
  auto known = service.held(*wish);
  if (!known) return {.status = known.error()};
  if (*known) return **std::move(known);

  const Seal::Subject subject{id.index, std::string(architecture)};
  bool late = false;
  if (seal.closed()) {
    late = true;
    counters.late_requests.fetch_add(1, std::memory_order_relaxed);
    // So that the next run is warmed up for it.
    recorder.note(id.index, spec, architecture, wish->program());
    recorder.flush();
    const auto miss = seal.miss(subject, spec, wish->key());
    const auto* const driver_here = open_driver();
    if (driver_here != nullptr && driver_here->capture_is_visible()) return failure(*wish, miss);
    switch (seal.decide(miss)) {
      case OnMiss::refuse:
        return failure(*wish, miss);
      case OnMiss::allow:
        if (options.log) options.log(LogLevel::warning, "late request: " + miss.message());
        break;
      case OnMiss::build_later:
        return failure(*wish, start_late_build(id, spec, wish, subject)
                                  ? Error(ErrorCode::not_ready,
                                          "it is being built and not ready yet: " + miss.message())
                                  : miss);
    }
  }

  const auto limit = options.compile_limit;
  std::optional<Outcome> outcome;
  if (limit.count() <= 0) {
    outcome = service.obtain(*wish);
  } else {
    // On another thread, which can be left behind where NVRTC does not listen.
    const auto pending = std::make_shared<Pending>();
    const auto until = Clock::now() + limit;
    wish->stop = [this, until] { return threads.stopping() || Clock::now() > until; };
    if (!threads.start([this, wish, pending] { pending->put(service.obtain(*wish)); }))
      pending->put(service.obtain(*wish));
    outcome = pending->wait(limit + kGrace);
    if (!outcome || outcome->status.code() == ErrorCode::not_ready)
      return {.status = takes_too_long(spec, subject.second, limit)};
  }
  if (late && outcome->origin == Origin::compiled)
    counters.late_compiles.fetch_add(1, std::memory_order_relaxed);
  note(id, spec, *wish, architecture, *outcome);
  recorder.flush();
  return *std::move(outcome);
}

}  // namespace kiln
