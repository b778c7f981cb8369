#include "runtime/fork_probe.hpp"

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "cache/without_signals.hpp"
#include "runtime/deep_stack.hpp"

namespace kiln {
namespace {

constexpr std::chrono::seconds kStandstill{1};
constexpr timespec kProbeTick{.tv_sec = 0, .tv_nsec = 500'000};

// A copy of its own, since the thread may stay for ever.
struct NvrtcProbe {
  NvrtcProbe(const NvrtcLibrary& library, void (*what)(const NvrtcLibrary&))
      : nvrtc(library), work(what) {}

  NvrtcLibrary nvrtc;
  void (*work)(const NvrtcLibrary&);
  std::atomic<bool> done{false};
};

void* run_probe(void* handed) {
  const std::unique_ptr<std::shared_ptr<NvrtcProbe>> probe(
      static_cast<std::shared_ptr<NvrtcProbe>*>(handed));
  (*probe)->work((*probe)->nvrtc);
  (*probe)->done.store(true);
  return nullptr;
}

}  // namespace

bool answers_after_fork(const NvrtcLibrary& nvrtc, void (*work)(const NvrtcLibrary&)) {
  const auto probe = std::make_shared<NvrtcProbe>(nvrtc, work);
  auto handed = std::make_unique<std::shared_ptr<NvrtcProbe>>(probe);
  pthread_attr_t attributes;
  pthread_t thread{};
  if (::pthread_attr_init(&attributes) != 0) return true;
  // Room for the compile, which would go to a thread of its own, and this one's clock stand still.
  bool made = ::pthread_attr_setstacksize(&attributes, kDeepStackBytes) == 0;
  if (made) {
    const cache::WithoutSignals none;
    made = ::pthread_create(&thread, &attributes, run_probe, handed.get()) == 0;
  }
  ::pthread_attr_destroy(&attributes);
  if (!made) return true;
  static_cast<void>(handed.release());
  // By its own clock, so that a busy machine is not taken for a lock that nobody will release.
  clockid_t clock{};
  const bool has_clock = ::pthread_getcpuclockid(thread, &clock) == 0;
  timespec used{};
  for (auto moved = std::chrono::steady_clock::now(); !probe->done.load();
       ::nanosleep(&kProbeTick, nullptr)) {
    timespec now{};
    if (has_clock && ::clock_gettime(clock, &now) == 0 &&
        (now.tv_sec != used.tv_sec || now.tv_nsec != used.tv_nsec)) {
      used = now;
      moved = std::chrono::steady_clock::now();
    }
    if (std::chrono::steady_clock::now() - moved < kStandstill) continue;
    ::pthread_detach(thread);
    return false;
  }
  ::pthread_join(thread, nullptr);
  return true;
}

}  // namespace kiln
