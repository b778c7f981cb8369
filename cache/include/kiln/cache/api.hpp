// KILN_API marks what the shared libraries export, KILN_HIDDEN a private struct within an exported
// class. Everything else in them is hidden, and in a static library all of it is, so that an engine
// does not hand Kiln's symbols on.
#pragma once

#ifdef KILN_EXPORTS  // while a shared library of ours is compiled, and nowhere else
#define KILN_API __attribute__((visibility("default")))
#define KILN_HIDDEN __attribute__((visibility("hidden")))
#else
#define KILN_API
#define KILN_HIDDEN
#endif
