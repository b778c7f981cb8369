// The MLA layer of Kimi-K3 on the fake driver, whose kernels are stand-ins with the real ones'
// arguments: what is launched matters here, not what it computes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "kernel_src/layers/kimi_k3/attention.hpp"
#include "layer_fixture.hpp"

namespace kiln::test {

namespace mla = kernels::kimi_k3_mla;

class KimiK3Fixture : public LayerFixture {
 protected:
  using Launch = fake_driver::Launch;
  using LayerOptions = kernels::kimi_k3::LayerOptions;
  using MlaAttention = kernels::kimi_k3::MlaAttention;
  using u64 = kernels::u64;

  void SetUp() override {
    LayerFixture::SetUp();
    if (IsSkipped()) return;
    runtime_.emplace(open());
    const std::string args =
        "struct alignas(8) Args { char bytes[" + std::to_string(sizeof(mla::Args)) + "]; };\n";
    const std::string entry = "extern \"C\" __global__ void entry(";
    const std::string rest =
        "const __grid_constant__ Args args) {\n"
        "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n}\n";
    for (const auto* name : {"attend.cu", "attend_sm90a.cu"})
      add(name, "#include \"jit/tensor_map.cuh\"\n" + args + entry +
                    "const __grid_constant__ kiln::TensorMap latent, "
                    "const __grid_constant__ kiln::TensorMap rope, " +
                    rest);
    add("reduce.cu", args + entry + rest);
  }

  MlaAttention layer_of(const LayerOptions& options) { return make_layer<MlaAttention>(options); }

  /// A good call with made-up addresses: `query` new tokens of each request, over `pages` pages.
  static mla::Arguments arguments_of(u64 heads, u64 batch, u64 query, u64 pages) {
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address); };
    using mla::DataType;
    using mla::Tensor;
    return {.query = Tensor::dense(at(0x1'0000'0000), DataType::e4m3, {batch, query, heads, 576}),
            .cache = Tensor::dense(at(0x2'0000'0000), DataType::e4m3, {500, 64, 576}),
            .block_tables = Tensor::dense(at(0x3'0000'0000), DataType::int32, {batch, pages}),
            .lengths = Tensor::dense(at(0x3'8000'0000), DataType::int32, {batch}),
            .output = mla::OutputTensor::dense(at(0x4'0000'0000), DataType::bfloat16,
                                               {batch, query, heads, 512}),
            .workspace = at(0x5'0000'0000),
            .workspace_bytes = u64{1} << 30,
            .softmax_scale = 0.07f};
  }

  std::vector<Launch> run(mla::Launches& launches) {
    driver_.forget();
    const auto launched = launches.launch(nullptr);
    EXPECT_TRUE(launched) << message_of(launched);
    return driver_.launches();
  }
  static unsigned cluster_of(const Launch& launch) {
    const auto* cluster = launch.attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    return cluster == nullptr ? 1 : cluster->clusterDim.x;
  }
  static bool overlaps(const Launch& launch) {
    return launch.attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) != nullptr;
  }

 private:
  void add(const std::string& name, const std::string& text) {
    const auto added = runtime_->add_source("kernel_src/kimi_k3_mla/" + name, text);
    ASSERT_TRUE(added) << message_of(added);
  }
};

}  // namespace kiln::test
