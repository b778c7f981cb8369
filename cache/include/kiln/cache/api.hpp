// KILN_API: marks what the shared libraries export. Everything else in them is hidden, and in a
// static library all of it is, so that an engine does not hand Kiln's symbols on.
#pragma once

#ifdef KILN_EXPORTS  // while a shared library of ours is compiled, and nowhere else
#define KILN_API __attribute__((visibility("default")))
#else
#define KILN_API
#endif
