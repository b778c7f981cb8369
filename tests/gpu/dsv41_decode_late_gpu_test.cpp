// The decode programs with warps that come late: what only hangs, or goes wrong, by who is first.
#include "tests/gpu/dsv41_decode_changes.hpp"
#include "tests/gpu/dsv41_decode_device.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

class DecodeLate : public DecodeGpu {};

// Those that bring records give up registers that those that compute take, and take them back at
// the end. Where they have little to bring, they are there first.
TEST_F(DecodeLate, OfPaddedHeadsDoNotHangByWhichWarpsAreFirst) {
  const Key& key = kConsumersComeLate.key;
  warm_up({key});
  Runtime changed = open_runtime();
  const Status added = add_changed_sources(changed, kConsumersComeLate.edits);
  ASSERT_TRUE(added) << message_of(added);
  const auto late = MegaDecode::create(changed, key);
  ASSERT_TRUE(late) << message_of(late);
  for (const Lengths lengths : {Lengths::full, Lengths::partial}) {
    HostCall host = make_call({.key = key, .tokens = 40, .lengths = lengths}, 14);
    DeviceCall call(*driver_, host);
    const Bytes want = run(BackEnd::mega, key, call);
    call.clear();
    ASSERT_TRUE(late->launch(call.arguments, nullptr));
    EXPECT_EQ(call.bytes(), want);
  }
}

TEST_F(DecodeLate, AreTheSameWhicheverWarpsAreLate) {
  const std::vector<Key> keys = {{.heads = 16, .page_slots = 128},
                                 {.heads = 32, .record = Record::nvfp4}};
  warm_up(keys);
  Runtime changed = open_runtime();
  const Status added = add_changed_sources(changed, kWarpsComeLate.edits);
  ASSERT_TRUE(added) << message_of(added);
  const auto expect_same = [&](const auto& late, BackEnd back_end, const Choices& choices) {
    SCOPED_TRACE(text_of(choices, back_end));
    HostCall host = make_call(choices, 15);
    DeviceCall call(*driver_, host);
    const Bytes want = run(back_end, host.key, call);
    for (unsigned round = 0; round < 4; ++round) {
      call.clear();
      for (unsigned i = 0; i <= round % 2; ++i)
        ASSERT_TRUE(late.launch(call.arguments, nullptr, Overlap::yes));
      ASSERT_EQ(call.bytes(), want) << "round " << round;
    }
  };
  for (const Key& key : keys) {
    const auto swapab = SwapabDecode::create(changed, key);
    ASSERT_TRUE(swapab) << message_of(swapab);
    const auto mega = MegaDecode::create(changed, key);
    ASSERT_TRUE(mega) << message_of(mega);
    const auto report = changed.warmup();
    ASSERT_TRUE(report) << message_of(report);
    ASSERT_EQ(report->failed, 0u);
    for (const std::size_t tokens : {1, 8, 16, 40})
      for (const Lengths lengths : {Lengths::full, Lengths::partial}) {
        const Choices choices{.key = key, .tokens = tokens, .lengths = lengths};
        expect_same(*swapab, BackEnd::own, choices);
        expect_same(*mega, BackEnd::mega, choices);
      }
  }
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
