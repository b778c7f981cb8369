#include "cache/remote/redis_reply.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cache {
namespace {

// More than any reply that we ask for; hiredis sets memory aside for as many as are announced.
constexpr int kMostElements = 16;

/// An error that a server replies, by the word or the words that it begins with.
struct KnownError {
  std::string_view beginning;
  std::string_view cure;
  RemoteFailure failure;
  bool is_word = true;
};
constexpr std::string_view kNoCluster =
    "it is a node of a cluster; name a server that stands alone";
constexpr std::string_view kLater = "it has no time now";
constexpr KnownError kErrors[] = {
    {"NOAUTH", "name a file with its password (KILN_REMOTE_PASSWORD)",
     RemoteFailure::access_denied},
    {"WRONGPASS", "put the user in the URL or the password (KILN_REMOTE_PASSWORD) right",
     RemoteFailure::access_denied},
    {"NOPERM", "allow its user +mget, and for leases +set +get +del +eval, on ~kiln:*",
     RemoteFailure::access_denied},
    {"ERR AUTH", "it has no password; name none (KILN_REMOTE_PASSWORD)",
     RemoteFailure::access_denied, false},
    {"ERR Client sent AUTH", "it has no password; name none (KILN_REMOTE_PASSWORD)",
     RemoteFailure::access_denied, false},
    {"MOVED", kNoCluster, RemoteFailure::wrong_server},
    {"ASK", kNoCluster, RemoteFailure::wrong_server},
    {"CROSSSLOT", kNoCluster, RemoteFailure::wrong_server},
    {"CLUSTERDOWN", kNoCluster, RemoteFailure::wrong_server},
    {"READONLY", "it is a replica; name its master", RemoteFailure::wrong_server},
    {"OOM", "its memory is full; set maxmemory-policy allkeys-lru, or raise maxmemory",
     RemoteFailure::server_error},
    {"MISCONF", "it cannot write to its disk; nothing of ours needs that (save \"\")",
     RemoteFailure::server_error},
    {"ERR max number of clients", "it has as many clients as it takes (maxclients)",
     RemoteFailure::overloaded, false},
    {"LOADING", kLater, RemoteFailure::overloaded},
    {"BUSY", kLater, RemoteFailure::overloaded},
    {"TRYAGAIN", kLater, RemoteFailure::overloaded},
    {"MASTERDOWN", kLater, RemoteFailure::overloaded},
};

/// One object in hiredis, which all its readers begin with.
std::atomic<const redisReplyObjectFunctions*> hiredis_functions{nullptr};

/// hiredis's own functions, but for arrays.
redisReplyObjectFunctions& bounded_functions(const redisReader& fresh) {
  hiredis_functions = fresh.fn;
  static redisReplyObjectFunctions bounded = [&fresh] {
    auto made = *fresh.fn;
    // The type of the number differs between versions.
    made.createArray = [](const redisReadTask* task, auto elements) -> void* {
      return elements > kMostElements ? nullptr
                                      : hiredis_functions.load()->createArray(task, elements);
    };
    return made;
  }();
  return bounded;
}

}  // namespace

ReplyParser::ReplyParser(std::uint64_t limit) : limit_(limit), reader_(::redisReaderCreate()) {
  if (reader_ != nullptr) reader_->fn = &bounded_functions(*reader_);
}

void ReplyParser::feed(std::span<const std::byte> bytes) {
  if (reader_ == nullptr || fed_ > limit_) return;
  fed_ += bytes.size();
  // A failure shows in the next reply.
  static_cast<void>(
      ::redisReaderFeed(reader_.get(), reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Reply ReplyParser::next(RemoteFailure& failure) {
  void* reply = nullptr;
  if (reader_ == nullptr || ::redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    failure = RemoteFailure::bad_reply;
    return nullptr;
  }
  if (reply != nullptr) {
    fed_ = 0;
  } else if (fed_ > limit_) {
    failure = RemoteFailure::too_large;
  }
  return Reply(static_cast<redisReply*>(reply));
}

std::string_view first_string_in(std::string_view reply) noexcept {
  constexpr std::string_view kEnd = "\r\n";
  const auto array_end = reply.find(kEnd);
  if (!reply.starts_with('*') || array_end == std::string_view::npos) return {};
  reply.remove_prefix(array_end + kEnd.size());
  const auto length_end = reply.find(kEnd);
  if (!reply.starts_with('$') || length_end == std::string_view::npos) return {};
  std::size_t length = 0;
  const auto* const end = reply.data() + length_end;
  if (const auto [last, error] = std::from_chars(reply.data() + 1, end, length);
      error != std::errc{} || last != end)
    return {};
  return reply.substr(length_end + kEnd.size(), length);
}

std::string command_of(std::span<const std::string_view> words) {
  // The form with lengths: its format strings do not know all modifiers, and fail by null.
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const auto word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* bytes = nullptr;
  const auto size =
      ::redisFormatCommandArgv(&bytes, static_cast<int>(words.size()), texts.data(), sizes.data());
  if (size <= 0 || bytes == nullptr) return {};
  std::string command(bytes, static_cast<std::size_t>(size));
  ::redisFreeCommand(bytes);
  return command;
}

Answer answer_of_error(std::string_view text) {
  const auto word = text.substr(0, std::min(text.find(' '), text.size()));
  const auto* const known =
      std::find_if(std::begin(kErrors), std::end(kErrors), [&](const KnownError& error) {
        return error.beginning == (error.is_word ? word : text.substr(0, error.beginning.size()));
      });
  if (known != std::end(kErrors))
    return Answer::failed(known->failure,
                          "the server says " + std::string(word) + ": " + std::string(known->cure));
  const bool plain = word.size() <= 16 && std::all_of(word.begin(), word.end(),
                                                      [](char c) { return c >= 'A' && c <= 'Z'; });
  return Answer::failed(RemoteFailure::server_error,
                        "the server says " + (plain ? std::string(word) : "an error"));
}

}  // namespace kiln::cache
