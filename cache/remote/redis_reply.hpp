// Replies of a Redis server, parsed by hiredis within bounds: of what is read before a reply is
// whole, of how much it holds, and of what memory its announcements set aside.
//
// Threads: one object is used by one thread at a time.
#pragma once

#include <hiredis/hiredis.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/remote/answer.hpp"

namespace kiln::cache {

struct EndReply {
  void operator()(redisReply* reply) const noexcept { ::freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, EndReply>;

class ReplyParser {
 public:
  /// Of replies of up to `limit` bytes.
  explicit ReplyParser(std::uint64_t limit);
  /// The limit from now on.
  void allow(std::uint64_t limit) noexcept { limit_ = limit; }

  /// Takes what was read.
  void feed(std::span<const std::byte> bytes);
  /// The next reply, or null while more is needed. `failure` is set for good when what came is not
  /// the protocol, or too much.
  Reply next(RemoteFailure& failure);
  /// Whether there is more than the replies that were taken.
  bool has_more() const noexcept { return reader_ != nullptr && reader_->pos < reader_->len; }

 private:
  struct EndReader {
    void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
  };
  std::uint64_t limit_;
  std::uint64_t fed_ = 0;  // since the last whole reply
  std::unique_ptr<redisReader, EndReader> reader_;
};

/// What has come of the string that is the first element of an array; empty where there is none, or
/// none yet. `reply` is what has come of the whole.
std::string_view first_string_in(std::string_view reply) noexcept;

/// The bytes that a command is on the wire; empty when there is no memory for it.
std::string command_of(std::span<const std::string_view> words);

/// What an error reply means, and its cure. Of its text only the first word is shown, since servers
/// put arguments into the rest.
Answer answer_of_error(std::string_view text);

}  // namespace kiln::cache
