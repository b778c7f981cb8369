// What servers of a remote tier send. The first byte says what the rest is: an object, one whose
// digest is put right first, so that what comes after it is reached, or replies of Redis.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "cache/bundle_format.hpp"
#include "cache/remote/object.hpp"
#include "cache/remote/redis_reply.hpp"
#include "fuzz.hpp"

namespace {

using namespace kiln::cache;
using kiln::fuzz::must;

constexpr std::string_view kKey = "k=1";
constexpr std::uint64_t kMostBytes = 1 << 20;
constexpr std::uint64_t kMostReplyBytes = 2048;

void look_at_object(std::span<std::byte> bytes, bool mended) {
  BundleHead head;
  if (mended && decode_head_alone(bytes, head).empty() && !head.signer) {
    const auto size = kBundleHeadBytes + static_cast<std::size_t>(head.index_bytes);
    if (size + kBundleSealBytes <= bytes.size()) {
      const auto digest = *sha256_of(bytes.first(size));
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(size), kBundleSealBytes,
                  std::byte{0});
      std::copy(digest.bytes.begin(), digest.bytes.end(),
                bytes.begin() + static_cast<std::ptrdiff_t>(size));
    }
  }
  static const Sha256 key = *sha256_of(std::as_bytes(std::span(kKey)));
  const Signers anyone{.anyone = true};
  const WantedObject wanted{.name = digest_of(kKey),
                            .key_sha256 = key,
                            .key_text = kKey,
                            .accepted = anyone,
                            .most_bytes = kMostBytes};
  const auto decoded = decode_object(bytes, wanted);
  must(decoded.entry.has_value() == (decoded.failure == RemoteFailure::none),
       "there is an entry, or a reason");
  must(!decoded.entry || decoded.entry->key_text() == kKey, "the entry is the one asked for");
  const auto early = check_front(bytes.first(bytes.size() / 2), wanted);
  must(early.failure == RemoteFailure::none || early.failure == decoded.failure,
       "what is refused early is refused");
  must(!early.front || !decoded.entry || bytes.size() <= early.front->most_bytes(),
       "no object is longer than its front says");
}

/// Two readers of the same bytes, one whole and one in parts, see the same replies.
void look_at_replies(std::span<const std::byte> bytes, std::size_t part) {
  const auto replies = [&](std::size_t step) {
    ReplyParser parser(kMostReplyBytes);
    std::string seen;
    RemoteFailure failure = RemoteFailure::none;
    for (std::size_t at = 0; at <= bytes.size() && failure == RemoteFailure::none; at += step) {
      parser.feed(bytes.subspan(at, std::min(step, bytes.size() - at)));
      while (failure == RemoteFailure::none) {
        const auto reply = parser.next(failure);
        if (reply == nullptr) break;
        if (seen.empty() && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
            reply->element[0]->type == REDIS_REPLY_STRING)
          must(first_string_in({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) ==
                   std::string_view(reply->element[0]->str, reply->element[0]->len),
               "what is looked at early is what comes of it");
        seen += std::to_string(reply->type) + ' ' + std::to_string(reply->elements) + '\n';
        if (reply->type == REDIS_REPLY_ERROR)
          must(answer_of_error({reply->str, reply->len}).why.size() < 128,
               "little of what a server writes is shown");
      }
    }
    return seen;
  };
  const auto whole = replies(bytes.size() + 1);
  const auto parts = replies(part);
  // A limit of the whole may be met sooner by parts, and no other way round.
  must(whole.starts_with(parts) || parts.starts_with(whole), "how it was cut does not matter");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t length = size - 1;
  // Exactly as long as the input, so that a read beyond its end is seen.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[length]);
  if (length != 0) std::memcpy(bytes.get(), data + 1, length);
  const std::span<std::byte> all(bytes.get(), length);
  if (data[0] % 4 < 2)
    look_at_object(all, data[0] % 4 == 1);
  else
    look_at_replies(all, std::size_t{1} + data[0] / 4u);
  return 0;
}
