// A launch takes no lock and no memory: every allocation and every lock of the process is counted
// while 16 threads launch against the fake driver. In a binary of its own, since it stands in for
// the C library's functions.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "../fake_driver/deepseek_v41_layer.hpp"
#include "../fake_driver/kimi_k3_layer.hpp"

namespace {

std::atomic<bool> watching{false};
std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> locks{0};

[[maybe_unused]] void count(std::atomic<std::uint64_t>& counter) {
  if (watching.load(std::memory_order_relaxed)) counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#ifndef KILN_SANITIZE

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

void* malloc(std::size_t bytes) {
  count(allocations);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  count(allocations);
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count(allocations);
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count(allocations);
  return __libc_memalign(alignment, bytes);
}
void free(void* memory) {
  __libc_free(memory);
}

// What a wait in the kernel (futex) would come through.
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto real =
      reinterpret_cast<decltype(&pthread_mutex_lock)>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  count(locks);
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  static const auto real = reinterpret_cast<decltype(&pthread_rwlock_rdlock)>(
      ::dlsym(RTLD_NEXT, "pthread_rwlock_rdlock"));
  count(locks);
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  static const auto real = reinterpret_cast<decltype(&pthread_rwlock_wrlock)>(
      ::dlsym(RTLD_NEXT, "pthread_rwlock_wrlock"));
  count(locks);
  return real(lock);
}

}  // extern "C"

#endif

namespace kiln::test {
namespace {

class LaunchCost : public FakeDriverFixture {};

TEST_F(LaunchCost, SixteenThreadsLaunchWithoutMemoryAndWithoutLocks) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer has its own allocator";
#endif
  constexpr int kThreads = 16;
  constexpr int kLaunches = 100'000;
  auto runtime = runtime_with({kWaitSource});
  const auto kernel = get(runtime);
  const auto stream = cuda_->stream();  // that could be captured
  driver_.set_recording(false);
  std::vector<LaunchDescriptor> descriptors;
  for (int t = 0; t < kThreads; ++t) {
    auto launch = runtime.launches().prepare(
        kernel, {.grid_blocks = {8}, .cluster_blocks = {2}, .overlap_previous = Overlap::yes},
        CUdeviceptr{0});
    ASSERT_TRUE(launch) << message_of(launch);
    descriptors.push_back(*std::move(launch));
  }
  std::atomic<int> failures{0};
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (auto& descriptor : descriptors)
    threads.emplace_back([&, launch = &descriptor] {
      if (!launch->launch(stream.handle())) ++failures;  // the thread's first call of the driver
      ++ready;
      while (!go) std::this_thread::yield();
      for (int i = 0; i < kLaunches; ++i) {
        if (!launch->set_argument(0, CUdeviceptr{static_cast<unsigned>(i)})) ++failures;
        if (i % 100 == 0 && !launch->set_grid({static_cast<unsigned>(i % 7 + 1) * 2})) ++failures;
        if (!launch->launch(stream.handle())) ++failures;
      }
      ++done;
      while (watching) std::this_thread::yield();
    });
  while (ready < kThreads) std::this_thread::yield();
  const auto before = driver_.calls("cuLaunchKernelEx");
  watching = true;
  go = true;
  while (done < kThreads) std::this_thread::yield();
  watching = false;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(locks, 0u);
  EXPECT_EQ(driver_.calls("cuLaunchKernelEx") - before, std::uint64_t{kThreads} * kLaunches);
}

TEST_F(LaunchCost, PreparingInAReservedPoolTakesNoMemoryAndNoLock) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer has its own allocator";
#endif
  auto runtime = runtime_with({kWaitSource});
  const auto kernel = get(runtime);
  ASSERT_TRUE(runtime.launches().reserve(16));
  const auto prepare = [&] { return runtime.launches().prepare(kernel, {}, CUdeviceptr{0}); };
  ASSERT_TRUE(prepare());
  watching = true;
  for (int i = 0; i < 1000; ++i) {
    const auto launch = prepare();
    if (!launch) break;
  }
  watching = false;
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(locks, 0u);
}

/// `run` gives how many of its calls failed. Locks do not count: the driver has some, where a
/// step's cluster or map is another one than before.
template <class Run>
void expect_no_memory_taken(const Run& run) {
  ASSERT_EQ(run(), 0);  // the thread's first calls of the driver
  watching = true;
  const int failures = run();
  watching = false;
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(allocations.exchange(0), 0u);
  locks = 0;
}

class LayerCost : public DeepseekV41Fixture {};

TEST_F(LayerCost, AStepOfALayerTakesNoMemoryWhicheverKernelItTakes) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer has its own allocator";
#endif
  const auto layer = layer_of({.tp = 4, .ratio = 2, .widened_window = 192});
  auto launches = layer.prepare(step_of(1));
  ASSERT_TRUE(launches) << message_of(launches);
  driver_.set_recording(false);
  std::vector<Step> steps;
  for (std::uint64_t tokens = 1; tokens <= 64; ++tokens) {
    steps.push_back(step_of(tokens));
    steps.back().swa_slots = tokens % 3 == 0 ? 192 : 128;
  }
  const auto run = [&] {
    int failures = 0;
    for (const Step& step : steps) {
      if (!layer.update(*launches, step)) ++failures;
      if (!launches->insert(nullptr)) ++failures;
      if (!launches->attend(nullptr)) ++failures;
    }
    return failures;
  };
  expect_no_memory_taken(run);
}

class MlaLayerCost : public KimiK3Fixture {};

TEST_F(MlaLayerCost, AStepTakesNoMemoryWhicheverProgramsItTakes) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer has its own allocator";
#endif
  const auto layer = layer_of({.tp = 8, .max_batch = 200, .max_query = 9, .max_keys = 64000});
  auto launches = layer.prepare(arguments_of(12, 1, 1, 1000));
  ASSERT_TRUE(launches) << message_of(launches);
  driver_.set_recording(false);
  std::vector<mla::Arguments> steps;
  for (const u64 query : {1u, 2u, 4u, 5u, 8u, 9u})
    for (const u64 batch : {1u, 8u, 67u, 200u})
      for (const u64 pages : {1u, 100u, 1000u})
        steps.push_back(arguments_of(12, batch, query, pages));
  const auto run = [&] {
    int failures = 0;
    for (const mla::Arguments& step : steps)
      if (!layer.update(*launches, step) || !launches->launch(nullptr)) ++failures;
    return failures;
  };
  expect_no_memory_taken(run);
}

TEST_F(LaunchCost, TheCountersCount) {
#ifdef KILN_SANITIZE
  GTEST_SKIP() << "a sanitizer has its own allocator";
#endif
  watching = true;
  void* memory = std::malloc(100);
  asm volatile("" ::"r"(memory) : "memory");
  std::free(memory);
  std::mutex mutex;
  mutex.lock();
  mutex.unlock();
  watching = false;
  EXPECT_GE(allocations.exchange(0), 1u);
  EXPECT_GE(locks.exchange(0), 1u);
}

}  // namespace
}  // namespace kiln::test
