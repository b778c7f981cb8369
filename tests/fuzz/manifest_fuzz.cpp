// A manifest, which is JSON of a user's own.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz.hpp"
#include "kernel_src/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kiln::fuzz::must;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = kiln::kernels::read_manifest(text, "fuzz.json");
  if (!manifest) {
    must(manifest.error().message().find("fuzz.json") != std::string::npos,
         "an error names the file");
    return 0;
  }
  for (const auto& kernel : manifest->kernels)
    must(!kernel.name.empty() && !kernel.source.empty(), "what is taken can be registered");
  return 0;
}
