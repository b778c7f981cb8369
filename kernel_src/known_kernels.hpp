// The kernels that a manifest can name. The table in known_kernels.cpp has one line for each.
//
// Threads: pure functions over constant data.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "kiln/kernel_spec.hpp"

namespace kiln::kernels {

struct KnownKernel {
  std::string_view name{};
  /// The names of the key's fields, in declared order.
  std::vector<std::string> (*fields)() = nullptr;
  /// Gives what is allowed when `value` does not fit `field`, and nothing when it does.
  std::string (*check)(std::string_view field, const nlohmann::json& value) = nullptr;
  /// The spec for a key that has every field, each with a value that check() accepts.
  /// Errors  those of the kernel's own check of its key.
  Result<KernelSpec> (*make)(const nlohmann::json& key) = nullptr;
};

std::span<const KnownKernel> known_kernels();

}  // namespace kiln::kernels
