// What a Kiln that was built without the remote tier says of a URL: remote_absent.cpp, which is
// linked here in place of the tier, as KILN_WITH_REMOTE=OFF does.
#include <cstdio>
#include <string>

#include "kiln/cache/store.hpp"

int main() {
  using namespace kiln;
  const cache::RemoteOptions remote{.objects = "https://cache.example/kiln"};
  const auto store = cache::Store::open({.directory = "none", .remote = remote});
  const auto check = cache::check_remote(remote);
  const bool right = !store && !check && store.error().code() == ErrorCode::unsupported &&
                     check.error().code() == ErrorCode::unsupported &&
                     store.error().message().find("KILN_WITH_REMOTE=ON") != std::string::npos &&
                     cache::Store::open({.directory = "none"}).has_value();
  if (!right) std::fputs("a URL is not refused as unsupported\n", stderr);
  return right ? 0 : 1;
}
