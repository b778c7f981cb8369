#include "runtime/launch_pool.hpp"

#include <bit>
#include <new>
#include <string>
#include <utility>

namespace kiln {
namespace {

constexpr std::size_t kMostSlots = 1'000'000;
constexpr std::uint64_t kIndexMask = 0xFFFFFFFF;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

// The slab that holds a slot, and where in it. Slabs 0 and 1 have `first` slots, each one after
// them twice as many as the one before, so that every growth doubles the whole.
struct Place {
  std::size_t slab;
  std::size_t offset;
};
Place place_of(std::uint32_t index, std::uint32_t first) {
  const auto multiple = index / first;
  const auto slab = static_cast<std::size_t>(std::bit_width(multiple));
  const auto start = slab == 0 ? 0 : std::size_t{first} << (slab - 1);
  return {slab, index - start};
}

}  // namespace

std::size_t LaunchPool::State::SizeClass::slot_bytes() const noexcept {
  return sizeof(Slot) + aligned(argument_bytes) + aligned(parameters * sizeof(void*));
}

LaunchDescriptor::Slot* LaunchPool::State::SizeClass::at(std::uint32_t index) const noexcept {
  const auto place = place_of(index, first_slots);
  auto* slab = slabs[place.slab].load(std::memory_order_acquire);
  return std::launder(reinterpret_cast<Slot*>(slab + place.offset * slot_bytes()));
}

LaunchDescriptor::Slot* LaunchPool::State::SizeClass::pop() noexcept {
  auto head = free.load(std::memory_order_acquire);
  while (true) {
    const auto first = static_cast<std::uint32_t>(head & kIndexMask);
    if (first == 0) return nullptr;
    auto* slot = at(first - 1);
    const std::uint64_t next = slot->next_free.load(std::memory_order_relaxed);
    const auto changed = ((head | kIndexMask) + 1) | next;
    if (free.compare_exchange_weak(head, changed, std::memory_order_acq_rel,
                                   std::memory_order_acquire))
      return slot;
  }
}

void LaunchPool::State::SizeClass::push(Slot* slot) noexcept {
  auto head = free.load(std::memory_order_relaxed);
  while (true) {
    slot->next_free.store(static_cast<std::uint32_t>(head & kIndexMask), std::memory_order_relaxed);
    const auto changed = ((head | kIndexMask) + 1) | (std::uint64_t{slot->index} + 1);
    if (free.compare_exchange_weak(head, changed, std::memory_order_acq_rel,
                                   std::memory_order_relaxed))
      return;
  }
}

bool LaunchPool::State::SizeClass::grow(std::uint8_t number) {
  const auto old = capacity.load(std::memory_order_relaxed);
  const auto added = old == 0 ? first_slots : old;
  const auto place = place_of(static_cast<std::uint32_t>(old), first_slots);
  if (place.slab >= kMostSlabs) return false;
  auto* slab = static_cast<std::byte*>(
      ::operator new (added* slot_bytes(), std::align_val_t{kSlotAlignment}, std::nothrow));
  if (slab == nullptr) return false;
  for (std::size_t i = 0; i < added; ++i) {
    auto* memory = slab + i * slot_bytes();
    auto* slot = new (memory) Slot;
    slot->index = static_cast<std::uint32_t>(old + i);
    slot->size_class = number;
    slot->arguments = memory + sizeof(Slot);
    slot->argument_table =
        reinterpret_cast<void**>(memory + sizeof(Slot) + aligned(argument_bytes));
  }
  slabs[place.slab].store(slab, std::memory_order_release);
  capacity.store(old + added, std::memory_order_relaxed);
  for (std::size_t i = added; i-- > 0;) push(at(static_cast<std::uint32_t>(old + i)));
  return true;
}

// Without memory for it the first descriptor says so.
LaunchPool::State::State() {
  classes_.front().grow(0);
}

LaunchPool::State::~State() {
  for (auto& size_class : classes_) {
    for (std::uint32_t i = 0; i < size_class.capacity; ++i) size_class.at(i)->~Slot();
    for (auto& slab : size_class.slabs)
      ::operator delete (slab.load(), std::align_val_t{kSlotAlignment});
  }
}

std::uint8_t LaunchPool::State::class_of(std::size_t bytes, std::size_t parameters) const noexcept {
  std::uint8_t number = 0;
  while (bytes > classes_[number].argument_bytes || parameters > classes_[number].parameters)
    ++number;
  return number;
}

LaunchDescriptor::Slot* LaunchPool::State::lease(Slot* slot) noexcept {
  if (slot == nullptr) return nullptr;
  slot->lease.fetch_add(1, std::memory_order_relaxed);
  const auto used = in_use_.fetch_add(1, std::memory_order_relaxed) + 1;
  auto high = high_water_.load(std::memory_order_relaxed);
  while (used > high && !high_water_.compare_exchange_weak(high, used, std::memory_order_relaxed)) {
  }
  return slot;
}

LaunchDescriptor::Slot* LaunchPool::State::acquire(std::size_t bytes,
                                                   std::size_t parameters) noexcept {
  return lease(classes_[class_of(bytes, parameters)].pop());
}

LaunchDescriptor::Slot* LaunchPool::State::grow_and_acquire(std::size_t bytes,
                                                            std::size_t parameters) {
  const auto number = class_of(bytes, parameters);
  auto& size_class = classes_[number];
  const std::lock_guard lock(size_class.growth);
  auto* slot = size_class.pop();  // somebody else may have made room meanwhile
  while (slot == nullptr) {
    if (!size_class.grow(number)) return nullptr;
    slot = size_class.pop();
  }
  return lease(slot);
}

void LaunchPool::State::release(Slot* slot) noexcept {
  slot->lease.fetch_add(1, std::memory_order_relaxed);
  slot->kernel.reset();  // may be the last owner of its library
  in_use_.fetch_sub(1, std::memory_order_relaxed);
  classes_[slot->size_class].push(slot);
}

Status LaunchPool::State::reserve(std::size_t slots, std::size_t bytes) {
  if (slots > kMostSlots)
    return Error(ErrorCode::invalid_argument, "LaunchPool::reserve: " + std::to_string(slots) +
                                                  " descriptors; at most " +
                                                  std::to_string(kMostSlots));
  if (bytes > kMostArgumentBytes)
    return Error(ErrorCode::invalid_argument, "LaunchPool::reserve: " + std::to_string(bytes) +
                                                  " bytes of arguments; a kernel has at most " +
                                                  std::to_string(kMostArgumentBytes));
  const auto number = class_of(bytes, 0);
  auto& size_class = classes_[number];
  const std::lock_guard lock(size_class.growth);
  while (size_class.capacity < slots)
    if (!size_class.grow(number))
      return Error(ErrorCode::invalid_argument, "LaunchPool::reserve: no memory for " +
                                                    std::to_string(slots) + " descriptors of " +
                                                    std::to_string(size_class.argument_bytes) +
                                                    " bytes; reserve fewer");
  return {};
}

LaunchPoolUsage LaunchPool::State::usage() const noexcept {
  LaunchPoolUsage usage;
  for (const auto& size_class : classes_) usage.capacity += size_class.capacity;
  usage.in_use = in_use_.load(std::memory_order_relaxed);
  usage.high_water = high_water_.load(std::memory_order_relaxed);
  return usage;
}

LaunchPool::LaunchPool() : state_(std::make_shared<State>()) {}

Status LaunchPool::reserve(std::size_t descriptors, std::size_t argument_bytes) {
  return state_->reserve(descriptors, argument_bytes);
}

LaunchPoolUsage LaunchPool::usage() const noexcept {
  return state_->usage();
}

}  // namespace kiln
