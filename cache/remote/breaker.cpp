#include "cache/remote/breaker.hpp"

#include <algorithm>

#include "cache/remote/answer.hpp"
#include "cache/remote/random.hpp"

namespace kiln::cache {
namespace {

constexpr int kMostFailures = 3;
constexpr int kSettlePart = 5;  // of the patience

/// What will not be better at the next request.
bool is_grave(RemoteFailure failure) noexcept {
  return (is_for_all(failure) && failure != RemoteFailure::reset) || is_of_object(failure) ||
         failure == RemoteFailure::access_denied;
}

}  // namespace

bool Breaker::admits(Time now) {
  const std::lock_guard lock(mutex_);
  if (!closed_until_) return true;
  if (now < *closed_until_ || sent_ahead_) return false;
  sent_ahead_ = true;
  return true;
}

void Breaker::served(Time now) {
  const std::lock_guard lock(mutex_);
  if (closed_until_) back_until_ = now + times_.patience / kSettlePart;
  failures_ = 0;
  break_ = {};
  closed_until_.reset();
  sent_ahead_ = false;
  waited_until_ = now + jittered(times_.patience, 1, 2);
}

void Breaker::answered() {
  const std::lock_guard lock(mutex_);
  sent_ahead_ = false;
}

bool Breaker::lagged(Time now, Clock::duration took) {
  const std::lock_guard lock(mutex_);
  sent_ahead_ = false;
  if (!is_spent(now, took) && !closed_until_) return false;
  return begin_break(now, took, {});
}

bool Breaker::failed(Time now, RemoteFailure failure, Clock::duration took, Clock::duration asked) {
  const std::lock_guard lock(mutex_);
  ++failures_;
  sent_ahead_ = false;
  // What it keeps will be no better in a moment.
  if (is_of_object(failure)) waited_until_.reset();
  const bool is_slow = is_spent(now, took);
  if (!closed_until_ && failures_ < kMostFailures && !is_grave(failure) && !is_slow) return false;
  const bool is_first = break_ == Clock::duration{};
  if (!begin_break(now, took, asked)) return false;
  // One that served is tried once more before it is waited for no longer.
  if (is_first && waited_until_ && now - took < *waited_until_)
    waited_until_ = std::max(*waited_until_, *closed_until_ + times_.first_byte);
  return true;
}

bool Breaker::is_spent(Time now, Clock::duration took) {
  if (now >= spent_until_) {
    spent_ = {};
    spent_until_ = now + times_.longest_break;
  }
  // One that is far away and has much to tell takes some of these round trips.
  if (took > times_.connect) spent_ += took;
  return spent_ > times_.first_byte;
}

bool Breaker::begin_break(Time now, Clock::duration took, Clock::duration asked) {
  // Others that were under way when it began do not make it longer.
  if (closed_until_ && now < *closed_until_) return false;
  break_ = std::min<Clock::duration>(
      break_ == Clock::duration{} ? times_.shortest_break : 2 * break_, times_.longest_break);
  const auto least = std::min<Clock::duration>(std::max(took, asked), times_.longest_break);
  closed_until_ = now + std::max(jittered(break_, 0.5, 1.5), jittered(least, 1, 1.5));
  return true;
}

bool Breaker::is_just_back(Time now) const {
  const std::lock_guard lock(mutex_);
  return back_until_ && now < *back_until_;
}

bool Breaker::is_waited_for(Time now) const {
  const std::lock_guard lock(mutex_);
  return waited_until_ && now < *waited_until_;
}

}  // namespace kiln::cache
