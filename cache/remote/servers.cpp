#include "cache/remote/servers.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "cache/remote/url.hpp"

namespace kiln::cache {
namespace {

Answer& answer_in(Answer& answer) {
  return answer;
}
Answer& answer_in(Servers::Got& got) {
  return got.answer;
}

/// Checks the beginning of an object as it comes, and keeps what it says in `front`.
Inspect inspection(std::optional<ObjectFront>& front, const WantedObject& wanted) {
  return [&](std::span<const std::byte> so_far) {
    auto checked = check_front(so_far, wanted);
    front = std::move(checked.front);
    return Verdict{.failure = checked.failure,
                   .why = std::move(checked.why),
                   .most_bytes = front ? std::optional(front->most_bytes()) : std::nullopt};
  };
}

/// What is refused counts against the server that gave it.
void decode(Servers::Got& got, const std::optional<ObjectFront>& front,
            const WantedObject& wanted) {
  auto decoded =
      front ? decode_body(got.answer.body, *front, wanted) : decode_object(got.answer.body, wanted);
  got.entry = std::move(decoded.entry);
  if (got.entry) return;
  got.answer.yes = false;
  got.answer.failure = decoded.failure;
  got.answer.why = std::move(decoded.why);
}

}  // namespace

Servers::Servers(const RemoteOptions& options, LogSink log)
    : options_(options),
      log_(std::move(log)),
      object_server_{without_secrets(options.objects), Breaker(options.times)},
      lease_server_{without_secrets(options.leases), Breaker(options.times)} {}

Result<std::shared_ptr<Servers>> Servers::open(const RemoteOptions& options, const LogSink& log) {
  std::shared_ptr<Servers> servers(new Servers(options, log));
  if (!options.objects.empty()) {
    KILN_TRY(const auto url, parse_remote_url(options.objects));
    if (!url.keeps_objects)
      return Error(ErrorCode::invalid_argument, "the remote cache " +
                                                    without_secrets(options.objects) +
                                                    " keeps no objects; name one of http or https");
    KILN_TRY(servers->objects_, HttpClient::open(url, options, servers->last_));
  }
  if (!options.leases.empty()) {
    KILN_TRY(const auto url, parse_remote_url(options.leases));
    if (url.keeps_objects)
      return Error(ErrorCode::invalid_argument,
                   "the remote cache " + without_secrets(options.leases) +
                       " grants no leases; name one of redis or rediss");
    KILN_TRY(servers->leases_, RedisClient::open(url, options, servers->last_));
  }
  return servers;
}

template <class Ask>
auto Servers::ask(Server& server, Kind kind, const Ask& question) {
  using Given = std::decay_t<decltype(question())>;
  const auto asked = Breaker::Clock::now();
  if (!server.breaker.admits(asked)) {
    count(RemoteFailure::skipped);
    Given given{};
    answer_in(given) = Answer::failed(RemoteFailure::skipped, "it failed a moment ago");
    return given;
  }
  Given given = question();
  note(server, kind, answer_in(given), asked);
  return given;
}

template <class Ask>
Answer Servers::insist(Server& server, const Ask& question) {
  const auto asked = Breaker::Clock::now();
  Answer answer = question();
  note(server, Kind::background, answer, asked);
  return answer;
}

void Servers::note(Server& server, Kind kind, const Answer& answer, Breaker::Time asked) {
  const auto now = Breaker::Clock::now();
  // What we gave up ourselves says nothing of the server.
  if (last_->or_earlier(now) < now) return;
  const auto took = now - asked;
  const auto failure = answer.failure;
  // What is refused costs nothing where it comes at once: the server serves others, and leases.
  const bool serves =
      failure == RemoteFailure::none || (is_of_object(failure) && took <= options_.times.connect);
  const bool is_hit = kind == Kind::read && answer.yes;
  const bool is_late =
      kind != Kind::background && !is_hit && answer.waited > options_.times.connect;
  if (failure != RemoteFailure::none) report(server, answer);
  // Another key may be of this node of a cluster.
  const bool is_of_key = failure == RemoteFailure::wrong_server || kind != Kind::read;
  if (!serves && (!is_of_key || is_for_all(failure))) {
    server.breaker.failed(now, failure, took, answer.retry_after);
  } else if (is_late) {
    if (server.breaker.lagged(now, took))
      report(server, Answer::failed(RemoteFailure::too_slow,
                                    "again and again it takes long, the last time " +
                                        std::to_string(took / std::chrono::milliseconds(1)) +
                                        " ms, and gives no object"));
  } else if (serves) {
    server.breaker.served(now);
  } else {
    server.breaker.answered();
  }
}

void Servers::report(const Server& server, const Answer& answer) {
  count(answer.failure);
  const std::string what =
      " (" + std::string(to_string(answer.failure)) + ": " + answer.why + "); ";
  if (is_of_object(answer.failure))
    return warn(answer.failure, 2,
                "an object of the remote cache " + server.shown + " is not used" + what +
                    "it will be made again");
  warn(answer.failure, &server == &object_server_ ? 0 : 1,
       "the remote cache " + server.shown + " fails" + what +
           "going on without it, and trying it again from time to time. kiln remote check tells "
           "more");
}

void Servers::note_object(const std::string& name, RemoteFailure failure, const std::string& why) {
  count(failure);
  warn(failure, 2,
       "object " + name + " is not sent to the remote cache (" + std::string(to_string(failure)) +
           ": " + why + ")");
}

void Servers::warn(RemoteFailure failure, std::size_t kind, const std::string& message) {
  if (log_ && told_.first_time(1 + kind * kRemoteFailures + static_cast<std::size_t>(failure)))
    log_(LogLevel::warning, message);
}

Servers::Got Servers::get(const std::string& name, const WantedObject& wanted) {
  return ask(object_server_, Kind::read, [&] {
    std::optional<ObjectFront> front;
    Got got{.answer = objects_->get(name, inspection(front, wanted))};
    if (got.answer.yes) decode(got, front, wanted);
    return got;
  });
}
Answer Servers::put(const std::string& name, std::span<const std::byte> object) {
  return insist(object_server_, [&] { return objects_->put(name, object); });
}
Servers::Got Servers::look(const std::string& name, const WantedObject& wanted) {
  return ask(lease_server_, Kind::read, [&] {
    std::optional<ObjectFront> front;
    auto seen = leases_->look(name, inspection(front, wanted));
    Got got{.answer = std::move(seen.object), .leased = seen.leased};
    if (got.answer.yes) decode(got, front, wanted);
    return got;
  });
}
Answer Servers::put_small(const std::string& name, std::span<const std::byte> object) {
  return insist(lease_server_, [&] { return leases_->put(name, object); });
}
Answer Servers::take_lease(const std::string& name, const std::string& token) {
  return ask(lease_server_, Kind::write, [&] { return leases_->take_lease(name, token); });
}
Answer Servers::renew_lease(const std::string& name, const std::string& token) {
  return insist(lease_server_, [&] { return leases_->renew_lease(name, token); });
}
Answer Servers::release_lease(const std::string& name, const std::string& token) {
  return insist(lease_server_, [&] { return leases_->release_lease(name, token); });
}

bool Servers::objects_are_waited_for() const {
  return object_server_.breaker.is_waited_for(Breaker::Clock::now());
}
bool Servers::leases_are_just_back() const {
  return lease_server_.breaker.is_just_back(Breaker::Clock::now());
}
bool Servers::leases_are_waited_for() const {
  return lease_server_.breaker.is_waited_for(Breaker::Clock::now());
}

}  // namespace kiln::cache
