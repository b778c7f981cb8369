// Whose directories and files are believed: an entry is code that runs.
//
// What lies above a root is the choice of who named it, and links on the way to it are followed;
// the root that is reached, and each file below it, must pass this test on its open descriptor. The
// directories between need not: in a root that only trusted users write, an entry can come from
// nobody else, and one that was moved is refused by its key. How many names a file has says
// nothing: owner and mode go with the file, and layers of images and backups share files by links.
// Threads: pure functions.
#pragma once

#include <sys/stat.h>

#include <string>

#include "kiln/cache/store.hpp"

namespace kiln::cache {

/// Why what `status` describes is not believed, and the cure; empty when it is.
std::string distrust(const struct stat& status, const Trust& trust);

}  // namespace kiln::cache
