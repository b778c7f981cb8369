#include "runtime/bench/outputs.hpp"

#include <algorithm>

namespace kiln::bench {

Status poison(const std::vector<Buffer>& outputs) {
  for (const auto& output : outputs) KILN_TRY(output.fill(kPoison));
  return {};
}

Result<std::vector<Bytes>> download(const std::vector<Buffer>& outputs) {
  std::vector<Bytes> all;
  for (const auto& output : outputs) {
    all.emplace_back(output.bytes());
    KILN_TRY(output.read(all.back()));
  }
  return all;
}

std::string first_difference(const std::vector<Bytes>& first, const std::vector<Bytes>& second) {
  if (first.size() != second.size())
    return "one arm has " + std::to_string(first.size()) + " outputs, the other " +
           std::to_string(second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto output = "output " + std::to_string(i);
    if (first[i].size() != second[i].size())
      return output + " has " + std::to_string(first[i].size()) + " bytes, then " +
             std::to_string(second[i].size());
    const auto at = std::mismatch(first[i].begin(), first[i].end(), second[i].begin());
    if (at.first == first[i].end()) continue;
    return output + " at byte " + std::to_string(at.first - first[i].begin()) + " is " +
           std::to_string(std::to_integer<int>(*at.first)) + ", then " +
           std::to_string(std::to_integer<int>(*at.second));
  }
  return {};
}

}  // namespace kiln::bench
