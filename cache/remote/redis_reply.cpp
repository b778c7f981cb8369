#include "cache/remote/redis_reply.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cache {
namespace {

// More than any reply that we ask for; hiredis sets memory aside for as many as are announced.
constexpr int kMostElements = 16;

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
  const bool plain = word.size() <= 16 && std::all_of(word.begin(), word.end(),
                                                      [](char c) { return c >= 'A' && c <= 'Z'; });
  const std::string shown = plain ? std::string(word) : "an error";
  if (word == "NOAUTH" || word == "WRONGPASS" || word == "NOPERM")
    return Answer::failed(RemoteFailure::access_denied, "the server says " + shown);
  if (text.starts_with("ERR max number of clients"))
    return Answer::failed(RemoteFailure::overloaded,
                          "the server has as many clients as it takes (maxclients)");
  if (word == "LOADING" || word == "BUSY" || word == "TRYAGAIN")
    return Answer::failed(RemoteFailure::overloaded, "the server says " + shown);
  return Answer::failed(RemoteFailure::server_error, "the server says " + shown);
}

}  // namespace kiln::cache
