#include "kernel_src/layers/deepseek_v41/decode_attention.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "kernel_src/argument_checks.hpp"

namespace kiln::kernels::deepseek_v41 {
namespace {

namespace decode = dsv41_decode;
namespace kv_insert = dsv41_kv_insert;

constexpr ArgumentChecks kCheck{"deepseek_v41"};

// Places in StepLaunches::attention_.
constexpr std::size_t kSwapab = 0, kMega = 1, kWidened = 2;

// The batch-invariant split of a token: what mega::blocks_for() takes for a step of this size.
constexpr std::uint64_t kInvariantTokens = 32;

decode::mega::Program mega_program(const LayerOptions& layer, u32 swa_slots) {
  const decode::Key key = decode_key(layer, swa_slots);
  return {key, layer.batch_invariant ? decode::mega::blocks_for(key, kInvariantTokens) : 0};
}

kv_insert::Arguments insert_arguments(const Step& step, const StepCache& cache) {
  return {.rows = cache.rows,
          .positions = step.positions,
          .slots = cache.row_slots,
          .cos_sin = step.cos_sin,
          .cache = cache.base,
          .input_stride_bytes = cache.input_stride_bytes,
          .page_stride_bytes = cache.page_stride_bytes,
          .row_stride_bytes = cache.row_stride_bytes,
          .pages = cache.pages,
          .rope_positions = step.rope_positions,
          .tokens = step.tokens};
}

kv_insert::Arguments query_and_swa_arguments(const Step& step) {
  kv_insert::Arguments arguments = insert_arguments(step, step.swa);
  arguments.query = step.query;
  arguments.padded_query = step.padded_query;
  arguments.query_stride_bytes = step.query_stride_bytes;
  return arguments;
}

decode::Arguments attention_arguments(const Step& step) {
  return {.query = step.padded_query,
          .positions = step.positions,
          .cos_sin = step.cos_sin,
          .sinks = step.sinks,
          .swa_cache = step.swa.base,
          .swa_slots = step.swa.slots,
          .swa_lengths = step.swa.lengths,
          .compressed_cache = step.compressed.base,
          .compressed_slots = step.compressed.slots,
          .compressed_lengths = step.compressed.lengths,
          .output = step.output,
          .output_scales = step.output_scales,
          .swa_page_stride_bytes = step.swa.page_stride_bytes,
          .swa_row_stride_bytes = step.swa.row_stride_bytes,
          .swa_pages = step.swa.pages,
          .compressed_page_stride_bytes = step.compressed.page_stride_bytes,
          .compressed_row_stride_bytes = step.compressed.row_stride_bytes,
          .compressed_pages = step.compressed.pages,
          .output_stride_bytes = step.output_stride_bytes,
          .scale_group_stride_words = step.scale_group_stride_words,
          .scale_column_stride_words = step.scale_column_stride_words,
          .rope_positions = step.rope_positions,
          .tokens = step.tokens};
}

Error bad_launches(const std::string& what) {
  return {ErrorCode::invalid_argument, "deepseek_v41: " + what};
}

/// Of the writer of the compressed cache, whose arguments have the names of the window's.
Error of_compressed(const Error& error) {
  if (error.code() != ErrorCode::invalid_argument) return error;
  return {error.code(), "deepseek_v41: step.compressed: " + error.message()};
}

}  // namespace

Status StepLaunches::check() const noexcept {
  if (chosen_ < attention_.size() && attention_[chosen_]) return {};
  return bad_launches(
      "there is no step to launch; update() or prepare() the launches first, and see that it "
      "succeeds");
}

Status StepLaunches::insert(CUstream stream) noexcept {
  KILN_TRY(check());
  if (Status launched = insert_.launch(stream); !launched || !compressed_insert_) return launched;
  return compressed_insert_.launch(stream);
}

Status StepLaunches::attend(CUstream stream) noexcept {
  KILN_TRY(check());
  return attention_[chosen_].launch(stream);
}

Result<DecodeAttention> DecodeAttention::create(Runtime& runtime, const LayerOptions& layer,
                                                const DeviceInfo& device) {
  KILN_TRY(check(layer));
  const auto program = mega_program(layer, layer.window);
  KILN_TRY(decode::mega::plan(program.key, 1, device));
  const Dispatch dispatch = dispatch_of(layer, device);

  KILN_TRY(const auto insert,
           kv_insert::KvInsert::create(runtime, {.heads = program.key.heads,
                                                 .record = Record::fp8,
                                                 .page_slots = layer.swa_page_slots,
                                                 .ratio = 1}));
  KILN_TRY(const auto mega, decode::MegaDecode::create(runtime, program));
  DecodeAttention made(layer, dispatch, insert, mega);
  if (layer.ratio != 0) {
    KILN_TRY(made.compressed_insert_,
             kv_insert::KvInsert::create(runtime, {.heads = 0,
                                                   .record = layer.record,
                                                   .page_slots = program.key.page_slots,
                                                   .ratio = layer.ratio}));
  }
  if (dispatch.refusals.empty()) {
    KILN_TRY(made.swapab_, decode::SwapabDecode::create(runtime, program.key));
  }
  if (layer.widened_window != 0) {
    KILN_TRY(made.widened_,
             decode::MegaDecode::create(runtime, mega_program(layer, layer.widened_window)));
  }
  return made;
}

Status DecodeAttention::check_step(const Step& step) const {
  if (step.tokens == 0)
    return kCheck.wrong("tokens", "0", "launch nothing for a step without any; padding counts");
  const u32 widened = layer_.widened_window;
  if (step.swa_slots != layer_.window && (widened == 0 || step.swa_slots != widened))
    return kCheck.wrong(
        "swa_slots", std::to_string(step.swa_slots),
        "it must be the window of " + std::to_string(layer_.window) +
            (widened == 0 ? "; steps with wider lists need LayerOptions::widened_window"
                          : " or the widened one of " + std::to_string(widened)));
  if (layer_.ratio == 0 && step.compressed.base != nullptr)
    return kCheck.wrong("compressed.base", "given", "a layer of ratio 0 has no compressed cache");
  return {};
}

Status DecodeAttention::check_launches(const StepLaunches& launches) const {
  if (!launches.insert_) return bad_launches("the launches are empty; prepare() them");
  if (launches.layer_ == layer_) return {};
  const auto theirs = key_values(launches.layer_), ours = key_values(layer_);
  const auto [their, our] = std::mismatch(theirs.begin(), theirs.end(), ours.begin(), ours.end());
  return bad_launches("the launches were prepared by a layer whose " + their->name + " is " +
                      their->value + "; this layer's is " + our->value +
                      ", so prepare() others with it");
}

Result<StepLaunches> DecodeAttention::prepare(const Step& step) const {
  KILN_TRY(check_step(step));
  const decode::Arguments arguments = attention_arguments(step);
  StepLaunches launches;
  launches.layer_ = layer_;
  KILN_TRY(launches.insert_, insert_.prepare(query_and_swa_arguments(step), Overlap::yes));
  if (step.compressed.rows != nullptr && compressed_insert_) {
    auto prepared =
        compressed_insert_->prepare(insert_arguments(step, step.compressed), Overlap::yes);
    if (!prepared) return of_compressed(prepared.error());
    launches.compressed_insert_ = *std::move(prepared);
  }
  KILN_TRY(launches.attention_[kMega], mega_.prepare(arguments, Overlap::yes));
  if (swapab_) {
    KILN_TRY(launches.attention_[kSwapab], swapab_->prepare(arguments, Overlap::yes));
  }
  if (widened_) {
    KILN_TRY(launches.attention_[kWidened], widened_->prepare(arguments, Overlap::yes));
  }
  KILN_TRY(update(launches, step));
  return launches;
}

Status DecodeAttention::update(StepLaunches& launches, const Step& step) const {
  launches.chosen_ = launches.attention_.size();
  KILN_TRY(check_step(step));
  KILN_TRY(check_launches(launches));
  if (step.compressed.rows != nullptr && !launches.compressed_insert_)
    return kCheck.wrong("compressed.rows", "given",
                        "the launches were prepared for a layer that writes no compressed cache");
  KILN_TRY(insert_.update(launches.insert_, query_and_swa_arguments(step)));
  if (launches.compressed_insert_)
    if (Status good = compressed_insert_->update(launches.compressed_insert_,
                                                 insert_arguments(step, step.compressed));
        !good)
      return of_compressed(good.error());

  launches.choice_ = choose_kernel(dispatch_, step.tokens, step.swa_slots);
  const auto use = [&](const auto& program, std::size_t place) {
    LaunchDescriptor& attention = launches.attention_[place];
    if (!attention)
      return Status(
          bad_launches("the launches were prepared by a layer for a device of another "
                       "kind; prepare() others with this one"));
    Status updated = program.update(attention, attention_arguments(step));
    if (updated) launches.chosen_ = place;
    return updated;
  };
  if (launches.choice_.kernel == DecodeKernel::swapab) return use(*swapab_, kSwapab);
  return step.swa_slots == layer_.window ? use(mega_, kMega) : use(*widened_, kWidened);
}

std::vector<KernelId> DecodeAttention::kernels() const {
  std::vector<KernelId> ids = {insert_.id()};
  if (compressed_insert_) ids.push_back(compressed_insert_->id());
  if (swapab_) ids.push_back(swapab_->id());
  ids.push_back(mega_.id());
  if (widened_) ids.push_back(widened_->id());
  return ids;
}

}  // namespace kiln::kernels::deepseek_v41
