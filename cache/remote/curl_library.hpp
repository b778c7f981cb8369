// What the two clients share of libcurl: its start, its handles, and the meaning of its results.
//
// Threads: pure functions.
#pragma once

#include <curl/curl.h>

#include <memory>

#include "cache/remote/answer.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

struct EndEasy {
  void operator()(CURL* handle) const noexcept { ::curl_easy_cleanup(handle); }
};
using Easy = std::unique_ptr<CURL, EndEasy>;

struct EndMulti {
  void operator()(CURLM* handle) const noexcept { ::curl_multi_cleanup(handle); }
};
using Multi = std::unique_ptr<CURLM, EndMulti>;

/// Starts the library once in a process; false when it cannot start.
bool start_curl();

/// Whether the file of authorities is there, so that a wrong name is told at the start.
/// Errors  io_failed.
Status check_authorities(const RemoteOptions& options);

/// What every connection of ours has: no signals, no redirects, no proxy, the checks of TLS, and a
/// socket that no other program inherits.
void set_common(CURL* handle, const RemoteOptions& options);

/// What a failed transfer means.
Answer answer_of(CURLcode result);

}  // namespace kiln::cache
