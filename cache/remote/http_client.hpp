// Objects on an HTTP server: GET, HEAD and PUT of <prefix>/ac/<name>, with connections that are
// kept and a deadline for each stage.
//
// Threads: any member from any thread; each request has a connection of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cache/remote/answer.hpp"
#include "cache/remote/last_moment.hpp"
#include "cache/remote/url.hpp"
#include "kiln/cache/remote.hpp"
#include "kiln/cache/result.hpp"

namespace kiln::cache {

class HttpClient {
 public:
  /// Reads the files of credentials; connects at the first request. `last` may be null.
  /// Errors  io_failed, invalid_argument for those files; unsupported for a libcurl without TLS.
  static Result<std::unique_ptr<HttpClient>> open(const RemoteUrl& url,
                                                  const RemoteOptions& options,
                                                  std::shared_ptr<const LastMoment> last = {});
  ~HttpClient();

  /// `inspect` may be empty. What a server says of the body's length buys it no time before that
  /// has told.
  Answer get(const std::string& name, const Inspect& inspect = {});
  Answer head(const std::string& name);
  Answer put(const std::string& name, std::span<const std::byte> object);

 private:
  struct State;
  explicit HttpClient(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// The meaning of a status, for a request that reads or writes.
Answer answer_of_status(long status, bool reads);

}  // namespace kiln::cache
