#include "cache/remote/curl_library.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "cache/remote/secret_file.hpp"

namespace kiln::cache {
namespace {

RemoteFailure meaning_of(CURLcode result) noexcept {
  switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:  // all later deadlines are ours
      return RemoteFailure::cannot_connect;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
      return RemoteFailure::tls;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
      return RemoteFailure::reset;
    case CURLE_PARTIAL_FILE:
      return RemoteFailure::short_body;
    case CURLE_FILESIZE_EXCEEDED:
      return RemoteFailure::too_large;
    default:
      return RemoteFailure::bad_reply;
  }
}

// A program that the process starts meanwhile is not to have our connections.
curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

}  // namespace

bool start_curl() {
  // Never ended: handles may live in other libraries of the process.
  static const bool started = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return started;
}

Status check_authorities(const RemoteOptions& options) {
  if (options.authorities.empty()) return {};
  return check_readable(options.authorities, "authorities (KILN_REMOTE_CA)");
}

void set_common(CURL* handle, const RemoteOptions& options) {
  ::curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
#if CURL_AT_LEAST_VERSION(7, 87, 0)
  // The thread that resolves a name is otherwise waited for after the deadline: for as long as the
  // system waits for a nameserver that is mute.
  ::curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
#endif
  ::curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, open_socket);
  ::curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  ::curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  // No proxy of the environment: the server is named, and nothing else is to see what we send.
  ::curl_easy_setopt(handle, CURLOPT_PROXY, "");
  // It looks at its clock some milliseconds late; what the caller named is to hold.
  const auto connect = options.times.connect - options.times.connect / 32;
  ::curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(std::max<std::int64_t>(connect.count(), 1)));
  if (!options.authorities.empty())
    ::curl_easy_setopt(handle, CURLOPT_CAINFO, options.authorities.c_str());
}

Answer answer_of(CURLcode result) {
  // The library's own words for the code: what a server wrote is not in them.
  return Answer::failed(meaning_of(result), ::curl_easy_strerror(result));
}

}  // namespace kiln::cache
