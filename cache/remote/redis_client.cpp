#include "cache/remote/redis_client.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cache/remote/pool.hpp"
#include "cache/remote/redis_connection.hpp"
#include "cache/remote/secret_file.hpp"
#include "cache/remote/without_sigpipe.hpp"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

// Braces: both keys of a name are in one slot of a cluster.
std::string object_key(const std::string& name) {
  return "kiln:{" + name + "}:ac";
}
std::string lease_key(const std::string& name) {
  return "kiln:{" + name + "}:lease";
}

// A server that lost its memory has no lease; its holder still works, and takes it anew.
constexpr std::string_view kRenew =
    "local held = redis.call('GET', KEYS[1]) "
    "if held == ARGV[1] or not held then "
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1 end return 0";
constexpr std::string_view kRelease =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

constexpr std::string_view kObjectLife = "604800000";  // a week, in milliseconds

std::string_view text_of(const redisReply& reply) {
  return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}

Answer strange() {
  return Answer::failed(RemoteFailure::bad_reply,
                        "the reply is of another kind than was asked for");
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

struct RedisClient::State {
  RemoteUrl url;
  RemoteOptions options;
  std::shared_ptr<const LastMoment> last;
  std::string password;
  Pool<RedisConnection> connections;

  /// False after a failure in `answer`.
  bool open_connection(std::unique_ptr<RedisConnection>& connection, Clock::time_point& start,
                       Answer& answer) {
    connection = std::make_unique<RedisConnection>(url, options, last);
    answer = connection->connect();
    start = Clock::now();
    const auto is_done = [&](std::initializer_list<std::string_view> words) {
      const auto reply = connection->call(words, answer, start);
      if (reply == nullptr) return false;
      if (reply->type != REDIS_REPLY_ERROR) return true;
      refuse(text_of(*reply), answer);
      return false;
    };
    if (answer.failure != RemoteFailure::none) return false;
    if (!password.empty() &&
        !(url.user.empty() ? is_done({"AUTH", password}) : is_done({"AUTH", url.user, password})))
      return false;
    if (url.path.size() > 1 && !is_done({"SELECT", url.path.substr(1)})) {
      answer.why += " to database " + url.path.substr(1);
      return false;
    }
    return true;
  }

  /// What an error reply means; how long it was waited for stays.
  static void refuse(std::string_view text, Answer& answer) {
    const auto waited = answer.waited;
    answer = answer_of_error(text);
    answer.waited = waited;
  }

  /// The reply to a command, or null and why. `repeated` says whether the server may have done the
  /// command once before.
  Reply call(std::initializer_list<std::string_view> words, Answer& answer,
             bool* repeated = nullptr, const Inspect& inspect = {}) {
    const WithoutSigpipe guard;
    auto start = Clock::now();
    auto connection = connections.take(start);
    const bool kept = connection != nullptr;
    if (!kept && !open_connection(connection, start, answer)) return nullptr;
    auto reply = connection->call(words, answer, start, inspect);
    // A server that answers too slowly, or too much, is there.
    if (reply == nullptr && kept && answer.failure != RemoteFailure::too_slow &&
        answer.failure != RemoteFailure::too_large && !is_of_object(answer.failure)) {
      // It was closed while nobody used it, or what lies between forgot it; the others as well,
      // most likely. All that is asked here may be asked twice.
      connections.clear();
      if (repeated != nullptr) *repeated = true;
      if (!open_connection(connection, start, answer)) return nullptr;
      reply = connection->call(words, answer, start, inspect);
    }
    if (reply == nullptr) return nullptr;
    // What comes unasked would be taken for the next reply.
    if (!connection->has_more()) connections.give(std::move(connection), Clock::now());
    if (reply->type != REDIS_REPLY_ERROR) return reply;
    refuse(text_of(*reply), answer);
    return nullptr;
  }

  /// Whether a command is granted: "OK" or a number that is not 0.
  Answer granted(std::initializer_list<std::string_view> words, bool* repeated = nullptr) {
    Answer answer;
    const auto reply = call(words, answer, repeated);
    if (reply == nullptr) return answer;
    if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL &&
        reply->type != REDIS_REPLY_INTEGER)
      return strange();
    return {.yes = reply->type == REDIS_REPLY_STATUS || reply->integer != 0,
            .waited = answer.waited};
  }

  std::string lease_life() const { return std::to_string(options.times.lease.count()); }
};

RedisClient::RedisClient(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
RedisClient::~RedisClient() {
  // The end of a TLS connection is told to a server that may be gone.
  const WithoutSigpipe guard;
  state_.reset();
}

Result<std::unique_ptr<RedisClient>> RedisClient::open(const RemoteUrl& url,
                                                       const RemoteOptions& options,
                                                       std::shared_ptr<const LastMoment> last) {
  if (!start_curl()) return Error(ErrorCode::unsupported, "libcurl cannot start");
  auto state = std::make_unique<State>();
  state->url = url;
  state->options = options;
  state->last = last != nullptr ? std::move(last) : std::make_shared<const LastMoment>();
  if (!options.lease_password.empty()) {
    KILN_TRY(state->password, read_secret_line(options.lease_password, "password"));
  } else if (!url.user.empty()) {
    return Error(ErrorCode::invalid_argument,
                 "the remote cache " + without_secrets(options.leases) +
                     " names a user, and nothing its password; name a file that holds it "
                     "(KILN_REMOTE_PASSWORD)");
  }
  if (auto status = check_authorities(options); !status) return status.error();
  return std::unique_ptr<RedisClient>(new RedisClient(std::move(state)));
}

RedisClient::Look RedisClient::look(const std::string& name, const Inspect& inspect) {
  Look look;
  Answer& answer = look.object;
  const auto reply =
      state_->call({"MGET", object_key(name), lease_key(name)}, answer, nullptr, inspect);
  if (reply == nullptr) return look;
  const auto is_value = [](const redisReply& one) {
    return one.type == REDIS_REPLY_STRING || one.type == REDIS_REPLY_NIL;
  };
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || !is_value(*reply->element[0]) ||
      !is_value(*reply->element[1])) {
    answer = strange();
    return look;
  }
  look.leased = reply->element[1]->type == REDIS_REPLY_STRING;
  answer.yes = false;
  if (reply->element[0]->type == REDIS_REPLY_NIL) return look;
  const auto object = std::as_bytes(std::span(text_of(*reply->element[0])));
  if (object.empty()) {
    answer = Answer::failed(RemoteFailure::empty_body, "an object without a byte");
  } else {
    answer.yes = true;
    answer.body = {object.begin(), object.end()};
  }
  return look;
}

Answer RedisClient::put(const std::string& name, std::span<const std::byte> object) {
  return state_->granted({"SET", object_key(name), text_of(object), "PX", kObjectLife});
}

Answer RedisClient::take_lease(const std::string& name, const std::string& token) {
  bool repeated = false;
  auto answer =
      state_->granted({"SET", lease_key(name), token, "NX", "PX", state_->lease_life()}, &repeated);
  // Who holds it may be ourselves: by the first command, whose reply was lost.
  if (repeated && !answer.yes && answer.failure == RemoteFailure::none)
    answer = renew_lease(name, token);
  return answer;
}

Answer RedisClient::renew_lease(const std::string& name, const std::string& token) {
  return state_->granted({"EVAL", kRenew, "1", lease_key(name), token, state_->lease_life()});
}

Answer RedisClient::release_lease(const std::string& name, const std::string& token) {
  return state_->granted({"EVAL", kRelease, "1", lease_key(name), token});
}

Result<std::string> RedisClient::version() {
  Answer answer;
  const auto reply = state_->call({"INFO", "server"}, answer);
  if (reply == nullptr) return Error(ErrorCode::io_failed, answer.why);
  const auto text = text_of(*reply);
  for (const std::string_view label : {"valkey_version:", "redis_version:"}) {
    const auto at = text.find(label);
    if (at == std::string_view::npos) continue;
    auto number = text.substr(at + label.size());
    number = number.substr(0, number.find_first_not_of("0123456789."));
    return std::string(label.front() == 'v' ? "Valkey " : "Redis ") + std::string(number);
  }
  return std::string("a server that does not say its version");
}

}  // namespace kiln::cache
