#include "runtime/stored_artifact.hpp"

#include <memory>
#include <utility>

#include "runtime/artifact_facts.hpp"
#include "runtime/cubin.hpp"

namespace kiln {

std::optional<Artifact> artifact_of(cache::Entry entry, const cache::Digest& key,
                                    std::string_view architecture, std::string& why) {
  auto facts = facts_from_json(entry.facts());
  const auto info = inspect_cubin(entry.payload());
  if (!facts)
    why = "its facts are of another form";
  else if (!info)
    why = info.error().message();
  else if (auto fits = check_architecture(*info, architecture); !fits)
    why = fits.error().message();
  else if (auto read = read_cubin_facts(*info, *facts); !read)
    why = read.error().message();
  if (!why.empty()) return std::nullopt;

  const auto owner = std::make_shared<cache::Entry>(std::move(entry));
  return Artifact{.key = key,
                  .facts = *std::move(facts),
                  .cubin = owner->payload().data(),
                  .cubin_bytes = owner->payload().size(),
                  .owner = owner};
}

}  // namespace kiln
