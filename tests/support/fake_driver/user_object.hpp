// User objects: what a graph keeps for its owner, and tells it of when it goes.
#pragma once

#include <vector>

#include "tests/support/fake_driver/state.hpp"

namespace fake_driver {

/// Calls the destructors of the user objects that lost their last reference; made before the
/// state's lock is taken, so that they run after it. They may not call the driver.
class Destructors {
 public:
  Destructors() = default;
  Destructors(const Destructors&) = delete;
  Destructors& operator=(const Destructors&) = delete;
  ~Destructors();

  /// One reference to each; with the state's lock held.
  void release(const std::vector<CUuserObject>& objects);

 private:
  std::vector<CUuserObject> gone_;
};

}  // namespace fake_driver
