// Requests that are being decoded over a paged cache, in host memory: what an engine's scheduler
// and its projections would hand to an MLA layer in a step. Numbers are random, shapes are not.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace paged {

constexpr unsigned kTp = 8;
constexpr std::size_t kHeads = 96 / kTp;  // of this rank
constexpr std::size_t kKeyDim = 576;      // a byte each
constexpr std::size_t kPageKeys = 64;
constexpr std::size_t kPlaces = 8;       // of the batch; a place may be empty
constexpr std::size_t kTablePages = 32;  // of a request, at most
constexpr std::size_t kMostKeys = kTablePages * kPageKeys;
constexpr std::size_t kPages = kPlaces * kTablePages;  // never too few

/// Bytes of the cache that are new.
struct Write {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// What the layer reads.
struct Batch {
  std::vector<std::uint8_t> query = std::vector<std::uint8_t>(kPlaces * kHeads * kKeyDim);
  /// NaN where nobody has written yet: a kernel that looked there would be noticed.
  std::vector<std::uint8_t> cache = std::vector<std::uint8_t>(kPages * kPageKeys * kKeyDim, 0xff);
  std::vector<std::int32_t> tables = std::vector<std::int32_t>(kPlaces * kTablePages, -1);
  std::vector<std::int32_t> lengths = std::vector<std::int32_t>(kPlaces);  // 0: an empty place
};

class Requests {
 public:
  Requests() {
    std::iota(free_.begin(), free_.end(), 0);
    // As in an engine that has run for a while.
    std::shuffle(free_.begin(), free_.end(), random_);
  }

  /// Goes on by one token in each request. One that has reached its end gives its pages back, and
  /// a step later another has its place.
  void next() {
    writes_.clear();
    changed_ = false;
    for (std::size_t place = 0; place < kPlaces; ++place) {
      if (ends_[place] == 0) {
        begin(place);
      } else if (length(place) == ends_[place]) {
        end(place);
      } else {
        append(place, 1);
      }
    }
    for (std::size_t place = 0; place < kPlaces; ++place)
      if (length(place) != 0) ask(place);
  }

  const Batch& batch() const { return batch_; }
  /// Of the latest step, as are the next.
  const std::vector<Write>& writes() const { return writes_; }
  /// A request ended or began.
  bool changed() const { return changed_; }

  std::size_t ended() const { return ended_; }
  /// Pages that a second request, or a third, took.
  std::size_t pages_taken_over() const { return taken_over_; }

 private:
  std::size_t length(std::size_t place) const {
    return static_cast<std::size_t>(batch_.lengths[place]);
  }

  // A prompt, whose keys an engine's prefill would have written, and its first new token.
  void begin(std::size_t place) {
    const std::size_t prompt = 500 + random_() % 1000;
    ends_[place] = prompt + 50 + random_() % 300;
    append(place, prompt);
    changed_ = true;
  }

  void end(std::size_t place) {
    const auto table = batch_.tables.begin() + static_cast<std::ptrdiff_t>(place * kTablePages);
    for (auto entry = table; entry != table + kTablePages && *entry >= 0; ++entry) {
      free_.push_back(*entry);
      *entry = -1;
    }
    ends_[place] = 0;
    batch_.lengths[place] = 0;
    ++ended_;
    changed_ = true;
  }

  void append(std::size_t place, std::size_t keys) {
    const std::size_t last = length(place) + keys;
    for (std::size_t key = length(place); key < last;) {
      auto& page = batch_.tables[place * kTablePages + key / kPageKeys];
      if (page < 0) page = take_page();
      const std::size_t in_page = key % kPageKeys;
      const std::size_t count = std::min(last - key, kPageKeys - in_page);
      const Write write{(static_cast<std::size_t>(page) * kPageKeys + in_page) * kKeyDim,
                        count * kKeyDim};
      fill(batch_.cache.data() + write.first, write.count);
      writes_.push_back(write);
      key += count;
    }
    batch_.lengths[place] = static_cast<std::int32_t>(last);
  }

  // The one that was given back last: what it holds is some other request's.
  std::int32_t take_page() {
    const std::int32_t page = free_.back();
    free_.pop_back();
    bool& used = used_[static_cast<std::size_t>(page)];
    taken_over_ += used ? 1 : 0;
    used = true;
    return page;
  }

  // Each head asks for one key, which then has nearly all of its weight, and some for the newest:
  // one that is missed, or is another request's, shows.
  void ask(std::size_t place) {
    for (std::size_t head = 0; head < kHeads; ++head) {
      const std::size_t key = head < 4 ? length(place) - 1 : random_() % length(place);
      const auto page =
          static_cast<std::size_t>(batch_.tables[place * kTablePages + key / kPageKeys]);
      std::copy_n(batch_.cache.data() + (page * kPageKeys + key % kPageKeys) * kKeyDim, kKeyDim,
                  batch_.query.data() + (place * kHeads + head) * kKeyDim);
    }
  }

  // E4M3 of either sign, from 1/8 to 1.
  void fill(std::uint8_t* bytes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = static_cast<unsigned>(random_());
      bytes[i] = static_cast<std::uint8_t>((bits & 0x80) | (0x20 + (bits >> 8) % 24));
    }
  }

  std::mt19937 random_{3};
  Batch batch_;
  std::vector<Write> writes_;
  std::vector<std::int32_t> free_ = std::vector<std::int32_t>(kPages);
  std::array<bool, kPages> used_{};
  std::array<std::size_t, kPlaces> ends_{};  // keys at the end; 0: an empty place
  bool changed_ = false;
  std::size_t ended_ = 0, taken_over_ = 0;
};

}  // namespace paged
