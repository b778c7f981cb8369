#include "cache/remote/url.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

namespace kiln::cache {
namespace {

struct Scheme {
  std::string_view name;
  bool keeps_objects;
  bool tls;
  std::string_view port;
};
constexpr Scheme kSchemes[] = {
    {"http", true, false, "80"},      {"https", true, true, "443"},
    {"redis", false, false, "6379"},  {"rediss", false, true, "6379"},
    {"valkey", false, false, "6379"}, {"valkeys", false, true, "6379"},
};
constexpr std::string_view kAfterScheme = "://";
constexpr std::string_view kOfAddress = "0123456789abcdefABCDEF:.";
constexpr std::string_view kOfName =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._";

bool is_port(std::string_view text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number > 0 && number < 65'536;
}

bool is_plain(char c) {
  return c > ' ' && c < 0x7F && c != '"' && c != '\\' && c != '<' && c != '>' && c != '%';
}

/// A name, or an address; one of IPv6 within brackets.
bool is_host(std::string_view text) {
  const bool bracketed = text.starts_with('[') && text.ends_with(']');
  if (bracketed) text = text.substr(1, text.size() - 2);
  return !text.empty() &&
         text.find_first_not_of(bracketed ? kOfAddress : kOfName) == std::string_view::npos;
}

Error refused(std::string_view url, std::string_view why) {
  return Error(ErrorCode::invalid_argument,
               "the remote cache " + without_secrets(url) + ' ' + std::string(why));
}

}  // namespace

std::string without_secrets(std::string_view url) {
  auto at = url.find(kAfterScheme);
  // Without a scheme nothing tells its parts apart.
  if (at == std::string_view::npos) return "(a URL without a scheme)";
  at += kAfterScheme.size();
  std::string shown(url.substr(0, at));
  auto rest = url.substr(at);
  const auto secrets = rest.find_first_of("?#");
  const bool cut = secrets != std::string_view::npos;
  if (cut) rest = rest.substr(0, secrets);
  // The last @ before the path; and of any later one, too, since the path may be a mistyped secret.
  if (const auto user = rest.rfind('@'); user != std::string_view::npos) {
    shown += "***@";
    rest = rest.substr(user + 1);
  }
  for (const char c : rest) shown += is_plain(c) ? c : '?';
  return cut ? shown + "?***" : shown;
}

Result<RemoteUrl> parse_remote_url(std::string_view url) {
  const auto colon = url.find(kAfterScheme);
  const auto name = url.substr(0, colon == std::string_view::npos ? 0 : colon);
  const auto* scheme = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                    [&](const auto& known) { return known.name == name; });
  if (scheme == std::end(kSchemes))
    return refused(url,
                   "has no scheme that is known; write http://, https://, redis:// or rediss://");
  auto rest = url.substr(colon + kAfterScheme.size());
  if (rest.find_first_of("?#") != std::string_view::npos)
    return refused(url,
                   "has a query or a fragment, where secrets would be seen; leave it out, and "
                   "put credentials into a file");
  RemoteUrl parsed{.keeps_objects = scheme->keeps_objects, .tls = scheme->tls};
  const auto slash = std::min(rest.find('/'), rest.size());
  parsed.path = rest.substr(slash);
  auto authority = rest.substr(0, slash);
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    if (at > slash || parsed.keeps_objects ||
        authority.substr(0, at).find(':') != std::string_view::npos)
      return refused(url,
                     "holds a user or a password, which everybody sees who may list processes; "
                     "put it into a file (KILN_REMOTE_TOKEN, KILN_REMOTE_NETRC, "
                     "KILN_REMOTE_PASSWORD)");
    parsed.user = authority.substr(0, at);
    authority.remove_prefix(at + 1);
  }
  while (parsed.path.ends_with('/')) parsed.path.pop_back();
  // A colon within brackets belongs to an address.
  const auto bracket = authority.rfind(']');
  const auto port = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  parsed.host = authority.substr(0, port);
  parsed.port = port == std::string_view::npos ? scheme->port : authority.substr(port + 1);
  if (!is_host(parsed.host) || !is_port(parsed.port))
    return refused(
        url,
        "names no host, or a port that is none; write such as https://host:port/kiln, with "
        "brackets around an IPv6 address");
  const auto all_plain = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(), is_plain);
  };
  if (!all_plain(parsed.path) || !all_plain(parsed.user))
    return refused(
        url,
        "holds a blank, a control, one of \" \\ < > %, or what is not ASCII; choose another "
        "prefix or name");
  if (!parsed.keeps_objects && !parsed.path.empty() &&
      !std::all_of(parsed.path.begin() + 1, parsed.path.end(),
                   [](char c) { return c >= '0' && c <= '9'; }))
    return refused(url, "has a path that is no number of a database; write such as redis://host/0");
  return parsed;
}

}  // namespace kiln::cache
