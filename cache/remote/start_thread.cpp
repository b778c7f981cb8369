// Compiles with exceptions: std::thread reports by one that no more threads can be made.
#include "cache/remote/start_thread.hpp"

#include <system_error>
#include <utility>

#include "cache/without_signals.hpp"

namespace kiln::cache {

bool start_thread(std::thread& thread, std::function<void()> work) {
  const WithoutSignals none;
  try {
    thread = std::thread(std::move(work));
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace kiln::cache
