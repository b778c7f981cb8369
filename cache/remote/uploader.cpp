#include "cache/remote/uploader.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "cache/remote/object.hpp"
#include "cache/remote/random.hpp"

namespace kiln::cache {
namespace {

constexpr std::chrono::milliseconds kPause{200};  // between two tries of one upload

}  // namespace

Uploader::~Uploader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Uploader::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || waiting_bytes_ + job.bytes() > servers_->options().most_waiting_bytes) {
      ++dropped_;
      return;  // and its lease goes
    }
    job.give_up = Clock::now() + servers_->options().times.upload;
    waiting_bytes_ += job.bytes();
    waiting_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

Status Uploader::flush(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  const bool done = changed_.wait_for(lock, longest, [&] { return waiting_.empty() && !busy_; });
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
    const auto next =
        std::min_element(waiting_.begin(), waiting_.end(),
                         [](const auto& a, const auto& b) { return a.not_before < b.not_before; });
    if (const auto when = next->not_before; Clock::now() < when) {
      changed_.wait_until(lock, when);
      continue;
    }
    Job job = std::move(*next);
    waiting_.erase(next);
    waiting_bytes_ -= job.bytes();
    busy_ = true;
    lock.unlock();
    const Step step = advance(job);
    if (step == Step::done) ++uploaded_;
    if (step == Step::failed) ++failed_;
    if (step != Step::again) job = {};  // gives the lease up
    lock.lock();
    busy_ = false;
    if (step == Step::again) {
      job.not_before = Clock::now() + jittered(kPause, 0.5, 1.5);
      waiting_bytes_ += job.bytes();
      waiting_.push_back(std::move(job));
    }
    changed_.notify_all();
  }
}

Uploader::Step Uploader::advance(Job& job) {
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
    job.payload = {};
  }
  const auto failed = [&] { return Clock::now() < job.give_up ? Step::again : Step::failed; };
  if (servers_->keep_objects() && !job.stored) {
    job.stored = servers_->put(job.name, job.object).failure == RemoteFailure::none;
    if (!job.stored) return failed();
  }
  if (!servers_->keep_leases()) return Step::done;
  // Without a server of objects there is no other place.
  if (job.object.size() > options.small_object_bytes && servers_->keep_objects()) return Step::done;
  const Answer small = servers_->put_small(job.name, job.object);
  return small.failure == RemoteFailure::none || job.stored ? Step::done : failed();
}

}  // namespace kiln::cache
