// Starts a thread where the rest of the library, which is built without exceptions, cannot learn
// that no more threads can be made.
//
// Threads: any.
#pragma once

#include <functional>
#include <thread>

namespace kiln::cache {

/// False when no more threads can be made; `thread` is then as it was.
bool start_thread(std::thread& thread, std::function<void()> work);

}  // namespace kiln::cache
