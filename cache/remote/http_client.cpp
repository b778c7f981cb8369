#include "cache/remote/http_client.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cache/remote/curl_library.hpp"
#include "cache/remote/pool.hpp"
#include "cache/remote/secret_file.hpp"
#include "cache/remote/without_sigpipe.hpp"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

enum class Method : unsigned char { get, head, put };

struct EndList {
  void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, EndList>;

void append(Headers& headers, const std::string& line) {
  // Null when memory runs out; what is there stays then.
  if (curl_slist* const longer = ::curl_slist_append(headers.get(), line.c_str())) {
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
}

// Of one answer, with its interim ones and what follows the body.
constexpr std::size_t kMostHeaderBytes = 64 << 10;
// Of a body that only explains a status.
constexpr std::size_t kMostSkippedBytes = 64 << 10;

/// One request and how far it is.
struct Transfer {
  std::uint64_t limit = 0;
  std::size_t header_bytes = 0;
  int status = 0;  // of the headers at hand, which may be interim ones, such as 103
  bool wants_body = false;
  std::vector<std::byte> body{};
  const Inspect& inspect;
  Verdict verdict{};
  bool too_large = false;
  std::size_t skipped = 0;  // of a body that is not wanted
  std::optional<Clock::time_point> first_byte{};
  std::span<const std::byte> upload{};
  std::size_t sent = 0;

  bool keeps_body() const noexcept { return wants_body && status == 200; }
};

int status_in(std::string_view status_line) {
  int status = 0;
  const auto at = std::min(status_line.find(' '), status_line.size() - 1) + 1;
  std::from_chars(status_line.data() + at, status_line.data() + status_line.size(), status);
  return status;
}

std::size_t on_header(char* bytes, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::string_view line(bytes, size * count);
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > kMostHeaderBytes) return 0;  // ends the transfer
  if (line.starts_with("HTTP/")) transfer.status = status_in(line);
  // The answer itself is waited for: a server could say for ever that it is at work.
  const bool interim = transfer.status >= 100 && transfer.status < 200;
  if (!interim && !transfer.first_byte) transfer.first_byte = Clock::now();
  return line.size();
}

std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::size_t got = size * count;
  if (!transfer.keeps_body()) {
    // Up to the end of a usual one, so that the connection can be kept.
    transfer.skipped += got;
    return transfer.skipped > kMostSkippedBytes ? 0 : got;
  }
  if (got > transfer.limit - transfer.body.size()) {
    transfer.too_large = true;
    return 0;  // ends the transfer
  }
  const auto* const first = reinterpret_cast<const std::byte*>(bytes);
  transfer.body.insert(transfer.body.end(), first, first + got);
  auto& verdict = transfer.verdict;
  if (!transfer.inspect || verdict.most_bytes) return got;
  verdict = transfer.inspect(transfer.body);
  if (verdict.failure != RemoteFailure::none) return 0;
  if (!verdict.most_bytes) return got;
  transfer.limit = std::min(transfer.limit, *verdict.most_bytes);
  transfer.too_large = transfer.body.size() > transfer.limit;
  return transfer.too_large ? 0 : got;
}

std::size_t on_upload(char* to, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::size_t part = std::min(size * count, transfer.upload.size() - transfer.sent);
  std::memcpy(to, transfer.upload.data() + transfer.sent, part);
  transfer.sent += part;
  return part;
}

// A kept connection that turned out to be closed is replaced, and the request sent anew.
int on_rewind(void* self, curl_off_t offset, int origin) {
  auto& transfer = *static_cast<Transfer*>(self);
  if (origin != SEEK_SET || offset < 0 ||
      static_cast<std::uint64_t>(offset) > transfer.upload.size())
    return CURL_SEEKFUNC_FAIL;
  transfer.sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

struct Connection {
  Easy easy{};
  Multi multi{};  // ended first: the easy handle is in it only during a transfer
};

/// Runs the transfer to its end or its deadline.
Answer run(Connection& connection, const Transfer& transfer, const RemoteOptions& options,
           const LastMoment& last) {
  CURL* const easy = connection.easy.get();
  CURLM* const multi = connection.multi.get();
  if (::curl_multi_add_handle(multi, easy) != CURLM_OK)
    return Answer::failed(RemoteFailure::bad_reply, "libcurl takes no transfer");
  const auto start = Clock::now();
  const auto deadline = [&] {
    if (!transfer.first_byte)
      return start + options.times.connect + time_for(transfer.upload.size(), options.times);
    curl_off_t length = -1;
    if (!transfer.inspect || transfer.verdict.most_bytes)
      ::curl_easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    // Without a length each part buys the time of its own size, so that a trickle does not live on.
    const auto known = length < 0 ? transfer.body.size() : static_cast<std::uint64_t>(length);
    const auto limit = transfer.keeps_body() ? transfer.limit : kMostSkippedBytes;
    return *transfer.first_byte + time_for(std::min(known, limit), options.times);
  };
  std::optional<Answer> answer;
  for (int running = 1; !answer;) {
    if (::curl_multi_perform(multi, &running) != CURLM_OK) {
      answer = Answer::failed(RemoteFailure::bad_reply, "libcurl gives up");
      break;
    }
    int left = 0;
    const CURLMsg* const message = ::curl_multi_info_read(multi, &left);
    if (message != nullptr && message->msg == CURLMSG_DONE) {
      const CURLcode result = message->data.result;
      answer = result == CURLE_OK ? Answer{.yes = true} : answer_of(result);
      break;
    }
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(last.or_earlier(deadline()) - Clock::now());
    if (rest.count() <= 0) {
      const bool stalled = !transfer.first_byte;
      answer = Answer::failed(stalled ? RemoteFailure::stalled : RemoteFailure::too_slow,
                              stalled ? "no answer in time" : "the answer did not end in time");
      break;
    }
    const auto nap = std::min(rest, LastMoment::kLongestNap);
    ::curl_multi_poll(multi, nullptr, 0, static_cast<int>(nap.count()), nullptr);
  }
  // One that has not ended takes its connection with it.
  ::curl_multi_remove_handle(multi, easy);
  if (transfer.skipped > kMostSkippedBytes) return {.yes = true};
  if (transfer.verdict.failure != RemoteFailure::none)
    return Answer::failed(transfer.verdict.failure, transfer.verdict.why);
  if (transfer.too_large)
    return Answer::failed(RemoteFailure::too_large,
                          "the answer has over " + std::to_string(transfer.limit) + " bytes");
  if (transfer.header_bytes > kMostHeaderBytes)
    return Answer::failed(
        RemoteFailure::too_large,
        "the answer has over " + std::to_string(kMostHeaderBytes) + " bytes of headers");
  return *std::move(answer);
}

}  // namespace

struct HttpClient::State {
  std::string base;  // up to the name
  RemoteOptions options;
  std::shared_ptr<const LastMoment> last;
  Headers headers;
  Pool<Connection> connections;

  Answer request(Method method, const std::string& name, std::span<const std::byte> upload,
                 const Inspect& inspect = {}) {
    const WithoutSigpipe guard;
    auto connection = connections.take(Clock::now());
    if (connection == nullptr)
      connection = std::make_unique<Connection>(Connection{.multi = Multi(::curl_multi_init())});
    // A fresh one each time, since the connection is kept by the other: libcurl before 8.1 looks at
    // a freed header of the handle's last transfer when an answer begins with a folded line.
    connection->easy.reset(::curl_easy_init());
    if (!connection->easy || !connection->multi)
      return Answer::failed(RemoteFailure::cannot_connect, "libcurl has no memory");
    CURL* const easy = connection->easy.get();
    Transfer transfer{.limit = options.most_object_bytes,
                      .wants_body = method == Method::get,
                      .inspect = inspect,
                      .upload = upload};
    prepare(easy, method, base + name, transfer);
    const auto asked = Clock::now();
    Answer answer = run(*connection, transfer, options, *last);
    const auto waited = Clock::now() - asked - connecting_time(easy);
    if (answer.failure == RemoteFailure::none)
      answer = finish(method, transfer, std::move(connection));
    answer.waited = waited;
    return answer;
  }

 private:
  static Clock::duration connecting_time(CURL* easy) {
    curl_off_t microseconds = 0;
    ::curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &microseconds);
    return std::chrono::microseconds(microseconds);
  }

  /// What a transfer that has ended means; its connection is kept.
  Answer finish(Method method, Transfer& transfer, std::unique_ptr<Connection> connection) {
    CURL* const easy = connection->easy.get();
    long status = 0;
    ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    Answer answer = answer_of_status(status, method != Method::put);
    if (answer.failure == RemoteFailure::overloaded) {
      curl_off_t seconds = 0;
      ::curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &seconds);
      answer.retry_after = std::chrono::seconds(std::clamp<curl_off_t>(seconds, 0, 3600));
    }
    connections.give(std::move(connection), Clock::now());
    if (method == Method::get && answer.yes) {
      if (transfer.body.empty())
        return Answer::failed(RemoteFailure::empty_body, "status 200 without a body");
      answer.body = std::move(transfer.body);
    }
    return answer;
  }

  void prepare(CURL* easy, Method method, const std::string& url, Transfer& transfer) const {
    set_common(easy, options);
    ::curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    ::curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
    if (!options.netrc.empty()) {
      ::curl_easy_setopt(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_REQUIRED));
      ::curl_easy_setopt(easy, CURLOPT_NETRC_FILE, options.netrc.c_str());
    }
    ::curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    ::curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
    ::curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    ::curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
    ::curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(transfer.limit));
    if (method == Method::head) ::curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (method != Method::put) return;
    ::curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    ::curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
                       static_cast<curl_off_t>(transfer.upload.size()));
    ::curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
    ::curl_easy_setopt(easy, CURLOPT_READDATA, &transfer);
    ::curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_rewind);
    ::curl_easy_setopt(easy, CURLOPT_SEEKDATA, &transfer);
  }
};

Answer answer_of_status(long status, bool reads) {
  const auto failed = [&](RemoteFailure failure) {
    return Answer::failed(failure, "status " + std::to_string(status));
  };
  if (status == 200 || (!reads && (status == 201 || status == 204))) return {.yes = true};
  if (reads && status == 404) return {};
  if (status == 401 || status == 403) return failed(RemoteFailure::access_denied);
  if (status >= 300 && status < 400) return failed(RemoteFailure::redirected);
  // Of these 503 comes from limits of rate too: it is what nginx and S3 answer then.
  if (status == 408 || status == 429 || status == 503) return failed(RemoteFailure::overloaded);
  if (status >= 500 && status < 600) return failed(RemoteFailure::server_error);
  return failed(RemoteFailure::bad_status);
}

HttpClient::HttpClient(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HttpClient::~HttpClient() {
  // The end of a TLS connection is told to a server that may be gone.
  const WithoutSigpipe guard;
  state_.reset();
}

Result<std::unique_ptr<HttpClient>> HttpClient::open(const RemoteUrl& url,
                                                     const RemoteOptions& options,
                                                     std::shared_ptr<const LastMoment> last) {
  if (!start_curl()) return Error(ErrorCode::unsupported, "libcurl cannot start");
  auto state = std::make_unique<State>();
  state->options = options;
  state->last = last != nullptr ? std::move(last) : std::make_shared<const LastMoment>();
  state->base = std::string(url.tls ? "https://" : "http://") + url.server() + url.path + "/ac/";
  // Not asked for: a server that waits with its answer until the body is there would cost a second.
  append(state->headers, "Expect:");
  append(state->headers, "Content-Type: application/octet-stream");
  if (!options.bearer_token.empty()) {
    KILN_TRY(const auto token, read_secret_line(options.bearer_token, "bearer token"));
    append(state->headers, "Authorization: Bearer " + token);
  }
  if (!options.headers.empty()) {
    KILN_TRY(const auto lines, read_header_file(options.headers));
    for (const auto& line : lines) append(state->headers, line);
  }
  if (!options.netrc.empty())
    if (auto status = check_secret_file(options.netrc, "netrc"); !status) return status.error();
  if (auto status = check_authorities(options); !status) return status.error();
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(state)));
}

Answer HttpClient::get(const std::string& name, const Inspect& inspect) {
  return state_->request(Method::get, name, {}, inspect);
}
Answer HttpClient::head(const std::string& name) {
  return state_->request(Method::head, name, {});
}
Answer HttpClient::put(const std::string& name, std::span<const std::byte> object) {
  return state_->request(Method::put, name, object);
}

}  // namespace kiln::cache
