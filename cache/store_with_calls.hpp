// A store over a given table of system calls, for tests of what the file system can do to it.
#pragma once

#include "cache/system_calls.hpp"
#include "kiln/cache/result.hpp"
#include "kiln/cache/store.hpp"

namespace kiln::cache {

class StoreWithCalls {
 public:
  /// As Store::open. `calls` must outlive the store and its locks.
  static Result<Store> open(StoreOptions options, const SystemCalls& calls);
};

}  // namespace kiln::cache
