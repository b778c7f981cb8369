// Attention layers of DeepSeek-V4.1 on the fake driver, whose kernels are stand-ins with the real
// ones' arguments: what is launched matters here, not what it computes.
#pragma once

#include "kernel_src/layers/deepseek_v41/decode_attention.hpp"
#include "layer_fixture.hpp"

namespace kiln::test {

class DeepseekV41Fixture : public LayerFixture {
 protected:
  using DecodeAttention = kernels::deepseek_v41::DecodeAttention;
  using LayerOptions = kernels::deepseek_v41::LayerOptions;
  using Step = kernels::deepseek_v41::Step;
  using StepLaunches = kernels::deepseek_v41::StepLaunches;
  using InsertArgs = kernels::dsv41_kv_insert::Args;
  using DecodeArgs = kernels::dsv41_decode::Args;

  void SetUp() override {
    LayerFixture::SetUp();
    if (IsSkipped()) return;
    runtime_.emplace(open());
    add_programs();
  }
  void add_programs() {
    add("kernel_src/dsv41_kv_insert/kernel.cu", sizeof(InsertArgs));
    for (const auto* program : {"swapab", "swapab_sm90a", "mega", "mega_sm90a"})
      add("kernel_src/dsv41_decode/" + std::string(program) + ".cu", sizeof(DecodeArgs));
  }

  DecodeAttention layer_of(const LayerOptions& options) {
    return make_layer<DecodeAttention>(options);
  }

  /// A good step with made-up addresses, for every layer that has a compressed cache of fp8.
  static Step step_of(std::uint64_t tokens) {
    // Far apart, so that steps of many tokens fit in between.
    const auto at = [](std::uintptr_t address) { return reinterpret_cast<void*>(address << 20); };
    const auto cache = [at](std::uintptr_t base) {
      return kernels::deepseek_v41::StepCache{
          .base = at(base),
          .pages = 10,
          .page_stride_bytes = 128 * 528,
          .rows = at(base + 0x1000),
          .row_slots = static_cast<const std::int64_t*>(at(base + 0x2000)),
          .slots = static_cast<const std::int32_t*>(at(base + 0x3000)),
          .lengths = static_cast<const std::int32_t*>(at(base + 0x4000))};
    };
    return {.tokens = tokens,
            .query = at(0x10000),
            .padded_query = at(0x20000),
            .positions = static_cast<const std::int64_t*>(at(0x30000)),
            .cos_sin = static_cast<const float*>(at(0x40000)),
            .rope_positions = 4096,
            .sinks = static_cast<const float*>(at(0x50000)),
            .swa = cache(0x100000),
            .compressed = cache(0x200000),
            .output = at(0x60000),
            .output_scales = at(0x70000),
            .scale_group_stride_words = 32 * 512,
            .scale_column_stride_words = 512};
  }

 private:
  void add(const std::string& name, std::size_t argument_bytes) {
    const auto text =
        "struct alignas(8) Args { char bytes[" + std::to_string(argument_bytes) +
        "]; };\nextern \"C\" __global__ void entry(const __grid_constant__ Args args) "
        "{\n  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n}\n";
    const auto added = runtime_->add_source(name, text);
    ASSERT_TRUE(added) << message_of(added);
  }
};

}  // namespace kiln::test
