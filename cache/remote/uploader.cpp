#include "cache/remote/uploader.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/capped.hpp"
#include "cache/remote/object.hpp"
#include "cache/remote/random.hpp"
#include "cache/remote/start_thread.hpp"

namespace kiln::cache {
namespace {

constexpr std::chrono::milliseconds kPause{200};  // between two tries of one upload

/// What a server says to the same request at any time: 401, 403, 405, 413 and their like.
bool is_final(RemoteFailure failure) noexcept {
  return failure == RemoteFailure::access_denied || failure == RemoteFailure::bad_status ||
         failure == RemoteFailure::redirected || failure == RemoteFailure::wrong_server;
}

}  // namespace

Uploader::~Uploader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Uploader::is_late(const Job& job, Clock::time_point now) const {
  return job.first_try != Clock::time_point{} &&
         now - job.first_try >= servers_->options().times.upload;
}

bool Uploader::has_room_for(const Job& job) const {
  return waiting_bytes_ + job.bytes() <= servers_->options().most_waiting_bytes;
}

bool Uploader::add(Job job, bool waits_for_room) {
  {
    std::unique_lock lock(mutex_);
    const auto& options = servers_->options();
    if (waits_for_room && job.bytes() <= options.most_waiting_bytes)
      changed_.wait_for(lock, options.times.upload, [&] { return stopping_ || has_room_for(job); });
    if (stopping_ || !has_room_for(job) ||
        (!thread_.joinable() && !start_thread(thread_, [this] { work(); }))) {
      ++dropped_;
      return false;  // and its lease goes
    }
    waiting_bytes_ += job.bytes();
    waiting_.push_back(std::move(job));
  }
  changed_.notify_all();
  return true;
}

Status Uploader::flush(std::chrono::milliseconds longest, const std::stop_token& stop) {
  // Before the lock, which it takes: it may be called from here, and is waited for at the end.
  const std::stop_callback wakes(stop, [&] {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  const auto is_done = [&] { return waiting_.empty() && !busy_; };
  changed_.wait_for(lock, capped(longest), [&] { return stop.stop_requested() || is_done(); });
  const bool done = is_done();
  const std::uint64_t lost = dropped_ + failed_ - lost_before_;
  lost_before_ += lost;
  const std::uint64_t left = waiting_.size() + (busy_ ? 1 : 0);
  if (done && lost == 0) return {};
  return Error(ErrorCode::io_failed, "of the uploads to the remote cache " + std::to_string(lost) +
                                         " failed and " + std::to_string(left) +
                                         " are not done; kiln remote check tells how it does, and "
                                         "kiln push sends them again");
}

void Uploader::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (stopping_) {
      dropped_ += waiting_.size();
      waiting_.clear();
      return;
    }
    const auto now = Clock::now();
    // One whose time is over comes first, since it decides what becomes of those behind it.
    auto next = std::find_if(waiting_.begin(), waiting_.end(),
                             [&](const Job& job) { return is_late(job, now); });
    if (next == waiting_.end()) {
      next = std::min_element(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
        return a.not_before < b.not_before;
      });
      if (const auto when = next->not_before; now < when) {
        changed_.wait_until(lock, when);
        continue;
      }
    }
    Job job = std::move(*next);
    waiting_.erase(next);
    waiting_bytes_ -= job.bytes();
    busy_ = true;
    lock.unlock();
    std::chrono::seconds retry_after{};
    const Step step = advance(job, retry_after);
    if (step == Step::done) ++uploaded_;
    if (step == Step::failed || step == Step::gave_up) ++failed_;
    const auto first_try = job.first_try;
    // Its lease is given up even if it is tried again: the others do not wait for a server.
    job.lease = {};
    if (step != Step::again) job = {};
    lock.lock();
    busy_ = false;
    if (step == Step::done) last_done_ = Clock::now();
    // Those behind would each take as long to find out that nothing can be sent.
    if (step == Step::gave_up && last_done_ < first_try) {
      failed_ += waiting_.size();
      waiting_.clear();
      waiting_bytes_ = 0;
    }
    if (step == Step::again) {
      // As late as the server asks for, but not after its time.
      const auto pause = std::max(jittered(kPause, 0.5, 1.5), jittered(retry_after, 1, 1.5));
      job.not_before =
          std::min(Clock::now() + pause, job.first_try + servers_->options().times.upload);
      waiting_bytes_ += job.bytes();
      waiting_.push_back(std::move(job));
    }
    changed_.notify_all();
  }
}

Uploader::Step Uploader::advance(Job& job, std::chrono::seconds& retry_after) {
  const auto& options = servers_->options();
  if (job.object.empty()) {
    auto object = encode_object(job.key_text, job.facts, job.payload,
                                options.describe ? options.describe(job.key_text) : EntryLabels{},
                                options.signer.get());
    if (!object) {
      servers_->note_object(job.name, RemoteFailure::unsigned_object, object.error().message());
      return Step::failed;
    }
    if (object->size() > options.most_object_bytes) {
      servers_->note_object(job.name, RemoteFailure::too_large,
                            "it has " + std::to_string(object->size()) + " bytes, over the limit");
      return Step::failed;
    }
    job.object = *std::move(object);
    std::vector<std::byte>().swap(job.payload);
  }
  if (job.first_try == Clock::time_point{})
    job.first_try = Clock::now();
  else if (is_late(job, Clock::now()))
    return Step::gave_up;
  const auto failed = [&](const Answer& answer) {
    if (is_final(answer.failure)) return Step::failed;
    retry_after = answer.retry_after;
    return is_late(job, Clock::now()) ? Step::gave_up : Step::again;
  };
  if (servers_->keep_objects() && !job.stored) {
    const Answer put = servers_->put(job.name, job.object);
    job.stored = put.failure == RemoteFailure::none;
    if (!job.stored) return failed(put);
  }
  if (!servers_->keep_leases()) return Step::done;
  // Without a server of objects there is no other place.
  if (job.object.size() > options.small_object_bytes && servers_->keep_objects()) return Step::done;
  const Answer small = servers_->put_small(job.name, job.object);
  return small.failure == RemoteFailure::none || job.stored ? Step::done : failed(small);
}

}  // namespace kiln::cache
