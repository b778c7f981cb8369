#include "runtime/loader_cache.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/elf.hpp"

namespace kiln {
namespace {

constexpr std::string_view kOldMagic = "ld.so-1.7.0";
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kOldHeaderBytes = 16;
constexpr std::size_t kOldEntryBytes = 12;
constexpr std::size_t kHeaderBytes = 48;
constexpr std::size_t kEntryBytes = 24;

}  // namespace

std::vector<std::string> loader_cache_paths(std::string_view cache, std::string_view prefix) {
  if (cache.starts_with(kOldMagic)) {
    // Before glibc 2.32 the new table follows the old one, aligned to 8.
    const auto count = read_le<std::uint32_t>(std::as_bytes(std::span(cache)), 12);
    if (!count) return {};
    const std::uint64_t skip =
        (kOldHeaderBytes + std::uint64_t{*count} * kOldEntryBytes + 7) & ~std::uint64_t{7};
    if (skip > cache.size()) return {};
    cache.remove_prefix(static_cast<std::size_t>(skip));
  }
  if (!cache.starts_with(kMagic)) return {};
  const auto bytes = std::as_bytes(std::span(cache));
  const std::uint64_t count = read_le<std::uint32_t>(bytes, kMagic.size()).value_or(0);
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t entry = kHeaderBytes + i * kEntryBytes;
    const auto name_at = read_le<std::uint32_t>(bytes, entry + 4);
    const auto path_at = read_le<std::uint32_t>(bytes, entry + 8);
    if (!name_at || !path_at) break;  // the table is cut short
    // Compared before the end of the name is looked for: most names are others.
    if (*name_at > cache.size() || !cache.substr(*name_at).starts_with(prefix)) continue;
    const auto path = text_at(bytes, *path_at);
    if (!path.empty()) paths.emplace_back(path);
  }
  return paths;
}

}  // namespace kiln
