#include "cli/progress_bar.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace kiln::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRedraw{100};

// "1:07", "2:00:05".
std::string clock_text(milliseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  std::array<char, 48> text{};
  if (seconds < 3600)
    std::snprintf(text.data(), text.size(), "%lld:%02lld", static_cast<long long>(seconds / 60),
                  static_cast<long long>(seconds % 60));
  else
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld",
                  static_cast<long long>(seconds / 3600), static_cast<long long>(seconds / 60 % 60),
                  static_cast<long long>(seconds % 60));
  return text.data();
}

}  // namespace

std::optional<milliseconds> time_left(const BarState& state) {
  if (state.left && state.done < state.requested)
    return std::max(std::chrono::ceil<std::chrono::seconds>(*state.left), std::chrono::seconds(1));
  if (state.done == 0) return std::nullopt;
  const auto slow = state.done - std::min(state.done, state.hits);
  const auto paid = slow != 0 ? slow : state.done;
  const auto left = state.requested - std::min(state.requested, state.done);
  // Rounded up to a second: "0:00" would say that it is done.
  const auto time =
      state.elapsed * static_cast<milliseconds::rep>(left) / static_cast<milliseconds::rep>(paid);
  return left == 0 ? milliseconds{0} : std::chrono::ceil<std::chrono::seconds>(time);
}

std::string bar_line(const BarState& state, unsigned columns) {
  const std::size_t room = columns > 1 ? columns - 1 : 1;
  const std::size_t cells = room >= 60 ? 24 : room >= 30 ? 10 : 0;
  std::string line;
  if (cells != 0) {
    const auto filled = state.requested == 0 ? cells : cells * state.done / state.requested;
    line = "[" + std::string(filled, '=') + std::string(cells - filled, ' ') + "] ";
  }
  line += std::to_string(state.done) + "/" + std::to_string(state.requested);

  const auto left = time_left(state);
  std::string counts =
      counted(state.hits, "hit") + ", " + std::to_string(state.compiled) + " compiled";
  if (state.failed != 0) counts += ", " + std::to_string(state.failed) + " failed";
  for (const auto& part : {"ETA " + (left ? clock_text(*left) : std::string("-:--")), counts})
    if (line.size() + 2 + part.size() <= room) line += "  " + part;

  constexpr std::size_t kLeastName = 8;
  // What runs now tells more than what is done.
  const auto name = state.compiling.empty()
                        ? state.latest
                        : "compiling " + state.compiling.front() +
                              (state.compiling.size() > 1
                                   ? " and " + std::to_string(state.compiling.size() - 1) + " more"
                                   : std::string());
  if (!name.empty() && line.size() + 2 + kLeastName <= room) {
    const auto rest = room - line.size() - 2;
    line += "  " + (name.size() <= rest ? name : name.substr(0, rest - 3) + "...");
  }
  return line.substr(0, room);
}

ProgressBar::ProgressBar(Output& output) : output_(output) {
  if (!output_.live()) return;
  redraw_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kRedraw, [this] { return end_; })) draw();
  });
}

ProgressBar::~ProgressBar() {
  if (!redraw_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  redraw_.join();
  output_.clear_status();
}

void ProgressBar::update(const Progress& progress) {
  if (!output_.live()) return;
  const std::lock_guard lock(mutex_);
  const bool first = state_.requested == 0;
  state_.done = progress.done;
  state_.requested = progress.requested;
  state_.compiling = progress.compiling;
  state_.left = progress.left;
  if (const auto* latest = progress.latest; latest != nullptr) {
    state_.hits += latest->origin == Origin::memory || latest->origin == Origin::disk ||
                           latest->origin == Origin::lower_tier || latest->origin == Origin::remote
                       ? 1u
                       : 0u;
    state_.compiled += latest->origin == Origin::compiled ? 1u : 0u;
    state_.failed += latest->origin == Origin::failed ? 1u : 0u;
    state_.latest = latest->kernel + " " + latest->architecture;
  }
  // The rest is drawn at the redraw thread's pace, however fast the kernels come.
  if (first) draw();
}

void ProgressBar::draw() {
  if (state_.requested == 0) return;
  state_.elapsed =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start_);
  output_.show_status(bar_line(state_, Output::columns()));
}

}  // namespace kiln::cli
