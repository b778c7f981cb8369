#include "runtime/deep_stack.hpp"

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "cache/without_signals.hpp"

namespace kiln {
namespace {

// Programs that a thread of 8 MiB takes need up to 2.
constexpr std::size_t kEnough = std::size_t{4} << 20;

bool has_room() {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return false;
  void* bottom = nullptr;
  std::size_t size = 0;
  const bool told = ::pthread_attr_getstack(&attributes, &bottom, &size) == 0;
  ::pthread_attr_destroy(&attributes);
  // A fiber is on a stack of its own.
  const auto left = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) -
                    reinterpret_cast<std::uintptr_t>(bottom);
  return told && left >= kEnough && left <= size;
}

void* run(void* work) {
  (*static_cast<const std::function<void()>*>(work))();
  return nullptr;
}

}  // namespace

void on_deep_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_t thread{};
  if (has_room() || ::pthread_attr_init(&attributes) != 0) return work();
  bool made = ::pthread_attr_setstacksize(&attributes, kDeepStackBytes) == 0;
  if (made) {
    const cache::WithoutSignals none;
    made =
        ::pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)) == 0;
  }
  ::pthread_attr_destroy(&attributes);
  if (made)
    ::pthread_join(thread, nullptr);
  else
    work();
}

}  // namespace kiln
