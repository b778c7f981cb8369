// Numbers with a fraction as text that programs read.
//
// Threads: pure functions.
#pragma once

#include <string>

namespace kiln {

/// With a point, whatever locale the embedding program has set: printf would follow it.
std::string decimal_text(double value, int decimals);
/// The shortest that reads back as `value`.
std::string decimal_text(double value);

}  // namespace kiln
