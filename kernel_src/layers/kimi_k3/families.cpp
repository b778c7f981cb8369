#include "kernel_src/layers/kimi_k3/families.hpp"

#include <array>
#include <string>
#include <tuple>

#include "kernel_src/argument_checks.hpp"
#include "kernel_src/kimi_k3_mla/args.hpp"

namespace kiln::kernels::kimi_k3 {
namespace {

namespace mla = kimi_k3_mla;

constexpr ArgumentChecks kCheck{"kimi_k3"};

struct Row {
  MlaDimensions dimensions;
  MlaFamily family;
};
// A further family is a line here.
constexpr std::array kFamilies = {
    Row{{.latent = mla::kLatentDim,
         .rope = mla::kRopeDim,
         .page_keys = mla::kPageKeys,
         .query = DataType::e4m3,
         .cache = DataType::e4m3,
         .output = DataType::bfloat16},
        MlaFamily::kimi_k3_mla},
};

std::string text(const MlaDimensions& dimensions) {
  return std::to_string(dimensions.latent) + " + " + std::to_string(dimensions.rope) +
         " elements a key, pages of " + std::to_string(dimensions.page_keys) + ", query " +
         std::string(mla::to_string(dimensions.query)) + ", cache " +
         std::string(mla::to_string(dimensions.cache)) + ", output " +
         std::string(mla::to_string(dimensions.output));
}

template <class Data>
Status check_rank(std::string_view name, const mla::BasicTensor<Data>& tensor) {
  if (tensor.rank == 3 || tensor.rank == 4) return {};
  return kCheck.wrong(name, "of " + std::to_string(tensor.rank) + " dimensions",
                      "it must have 3 or 4");
}

}  // namespace

std::string_view to_string(MlaFamily family) noexcept {
  switch (family) {
    case MlaFamily::kimi_k3_mla:
      return "kimi_k3_mla";
  }
  return {};
}

Result<MlaDimensions> dimensions_of(const mla::Arguments& arguments) {
  const auto& [query, cache, output] = std::tie(arguments.query, arguments.cache, arguments.output);
  KILN_TRY(check_rank("query", query));
  KILN_TRY(check_rank("cache", cache));
  KILN_TRY(check_rank("output", output));
  const u64 key = query.shape[query.rank - 1], latent = output.shape[output.rank - 1];
  if (latent > key)
    return kCheck.wrong("output", std::to_string(latent) + " elements wide",
                        "it must not be wider than the query's " + std::to_string(key));
  return MlaDimensions{.latent = latent,
                       .rope = key - latent,
                       .page_keys = cache.shape[cache.rank - 2],
                       .query = query.type,
                       .cache = cache.type,
                       .output = output.type};
}

Result<MlaFamily> family_of(const MlaDimensions& dimensions) {
  for (const Row& row : kFamilies)
    if (row.dimensions == dimensions) return row.family;
  std::string known;
  for (const Row& row : kFamilies)
    known += (known.empty() ? "" : "; ") + std::string(to_string(row.family)) + " has " +
             text(row.dimensions);
  return Error{ErrorCode::unsupported,
               "kimi_k3: no family of MLA kernels has " + text(dimensions) + "; " + known};
}

}  // namespace kiln::kernels::kimi_k3
