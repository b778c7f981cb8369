// The numbers of the decode programs on a device, with both back-ends, against the reference in
// double. Only MXFP8 comes out, whose own rounding is about 2.7 %; so beside the Frobenius norm
// each byte is held against the reference's: it may be another one only where the reference lies
// within a small band around the border between two.
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "tests/gpu/dsv41_decode_changes.hpp"
#include "tests/gpu/dsv41_decode_device.hpp"

namespace kiln::kernels::dsv41_decode::test {
namespace {

class DecodeNumbers : public DecodeGpu {};

/// In parts of the largest value of 32: how far before its rounding an output may be off. The
/// swap-AB program's partial outputs are off by 2^-11 of themselves at most, and where they cancel
/// each other by more of their sum; P as one bf16 number, which is what the mega program does, is
/// off by eight times as much.
constexpr double band_of(BackEnd back_end) {
  return is_mega(back_end) ? 0x1p-7 : 0x1p-10;
}

/// E4M3 codes as numbers that order as they do; both zeros are one.
int order_of(u8 code) {
  return (code & 0x80u) != 0 ? -(code & 0x7f) : code;
}
bool is_nan(u8 code) {
  return (code & 0x7fu) == 0x7f;
}

/// What the reference's values become, each first moved by `band` times its block's largest.
Bytes encoded(HostCall call, const std::vector<double>& values, double band) {
  std::vector<double> moved = values;
  for (std::size_t block = 0; block < moved.size(); block += kOutputBlock) {
    double largest = 0;
    for (std::size_t i = block; i < block + kOutputBlock; ++i)
      if (std::isfinite(moved[i])) largest = std::max(largest, std::fabs(moved[i]));
    for (std::size_t i = block; i < block + kOutputBlock; ++i) moved[i] += band * largest;
  }
  encode_output(call.key, call.arguments(), moved);
  return written_of(call, {call.output, call.output_scales});
}

struct Differences {
  std::size_t data = 0, scales = 0;  // bytes that are not the reference's
  std::size_t outside = 0;           // of them, those that no value within the band becomes
};

Differences differences(BackEnd back_end, const HostCall& call, const Output& want,
                        const Bytes& got) {
  const double band = band_of(back_end);
  const Bytes lower = encoded(call, want.values, -band);
  const Bytes middle = encoded(call, want.values, 0);
  const Bytes upper = encoded(call, want.values, band);
  const Bytes ours = written_of(call, got);
  Differences found;
  for (std::size_t block = 0; block < ours.scales.size(); ++block) {
    const u8 scale = ours.scales[block];
    const auto [least, most] =
        std::minmax({lower.scales[block], middle.scales[block], upper.scales[block]});
    found.scales += scale != middle.scales[block];
    found.outside += scale < least || scale > most;
    for (std::size_t i = block * kOutputBlock; i < (block + 1) * kOutputBlock; ++i) {
      if (is_nan(middle.data[i]) || is_nan(ours.data[i])) {
        found.data += ours.data[i] != middle.data[i];
        found.outside += ours.data[i] != middle.data[i];
        continue;
      }
      const int value = order_of(ours.data[i]);
      // Codes of another scale are another number.
      if (scale != middle.scales[block]) continue;
      found.data += value != order_of(middle.data[i]);
      if (least == most)
        found.outside += value < order_of(lower.data[i]) || value > order_of(upper.data[i]);
    }
  }
  return found;
}

/// `few`: only few values lie near a border, so few bytes may differ at all.
void expect_close(BackEnd back_end, HostCall call, const Output& want, const Bytes& got, bool few) {
  expect_nothing_else_written(call, got);
  const Differences found = differences(back_end, call, want, got);
  const Places places = places_of(call);
  // Where few slots are listed and cancel each other, P's rounding shows more than that.
  EXPECT_LE(found.outside, is_mega(back_end) ? 1 + places.data.size() / 50000 : 0);
  if (few) {
    EXPECT_LE(found.data, 2 + places.data.size() / (is_mega(back_end) ? 12 : 50));
    EXPECT_LE(found.scales, 1 + places.scales.size() / (is_mega(back_end) ? 100 : 400));
  }
  call.output = got.data;
  call.output_scales = got.scales;
  const auto nan = [](double value) { return std::isnan(value); };
  if (std::any_of(want.values.begin(), want.values.end(), nan)) return;
  const Output decoded = decode_output(call.key, call.arguments());
  EXPECT_LT(relative_frobenius(decoded.values, want.values), 0.03);
}

TEST_F(DecodeNumbers, AreTheReferencesForEveryShippedKey) {
  std::vector<Key> keys;
  for (const u32 heads : {16u, 32u})
    for (const auto record : {Record::fp8, Record::nvfp4})
      for (const u32 page_slots : {64u, 128u})
        keys.push_back({.heads = heads, .record = record, .page_slots = page_slots});
  warm_up(keys);
  unsigned seed = 0;
  for (const Key& key : keys)
    for (const Lengths lengths : {Lengths::partial, Lengths::full})
      for (const std::size_t tokens : {1u, 2u, 5u, 16u}) {
        const Choices choices{.key = key, .tokens = tokens, .lengths = lengths};
        HostCall host = make_call(choices, ++seed);
        DeviceCall device(*driver_, host);
        const Output want = reference(key, host.arguments());
        for (const BackEnd back_end : kBackEnds) {
          SCOPED_TRACE(text_of(choices, back_end));
          expect_close(back_end, host, want, run(back_end, key, device), true);
          if (HasFailure()) return;
        }
      }
}

TEST_F(DecodeNumbers, AreTheReferencesForEveryProfileHoleLengthAndSink) {
  const Key fp8{.heads = 32, .swa_page_slots = 32, .page_slots = 128};
  const Key nvfp4{.heads = 16, .record = Record::nvfp4, .swa_page_slots = 128};
  warm_up({fp8, nvfp4});
  std::vector<Choices> all;
  for (const Profile profile : {Profile::peaked, Profile::flat})
    for (const Lengths lengths : {Lengths::full, Lengths::partial})
      for (const Sinks sinks : {Sinks::none, Sinks::finite})
        all.push_back({.profile = profile, .lengths = lengths, .sinks = sinks});
  for (const Holes holes :
       {Holes::front, Holes::middle, Holes::end, Holes::tiles, Holes::scattered, Holes::all})
    for (const Lengths lengths : {Lengths::full, Lengths::partial})
      all.push_back({.lengths = lengths, .holes = holes});
  for (const Lengths lengths : {Lengths::only_swa, Lengths::only_compressed, Lengths::none})
    for (const Sinks sinks : {Sinks::null, Sinks::none, Sinks::finite, Sinks::mixed})
      all.push_back({.lengths = lengths, .sinks = sinks});
  all.push_back({.sinks = Sinks::mixed, .bad_positions = true});
  all.push_back({.holes = Holes::tiles, .sinks = Sinks::mixed});
  all.push_back({.profile = Profile::peaked, .holes = Holes::tiles, .sinks = Sinks::mixed});
  unsigned seed = 100;
  for (Choices choices : all)
    for (const Key& key : {fp8, nvfp4}) {
      choices.key = key;
      choices.tokens = choices.bad_positions ? 7 : 3;
      HostCall host = make_call(choices, ++seed);
      DeviceCall device(*driver_, host);
      const Output want = reference(key, host.arguments());
      for (const BackEnd back_end : kBackEnds) {
        SCOPED_TRACE(text_of(choices, back_end));
        const Bytes got = run(back_end, key, device);
        // One key's numbers, E4M3 or products of such, lie on the borders themselves.
        expect_close(back_end, host, want, got, choices.profile != Profile::peaked);
        if (choices.lengths == Lengths::none || choices.holes == Holes::all) {
          const Bytes written = written_of(host, got);
          for (const u8 byte : written.data) ASSERT_EQ(byte & 0x7f, 0);
          for (const u8 byte : written.scales) ASSERT_EQ(byte, 105);
        }
        if (HasFailure()) return;
      }
    }
}

TEST_F(DecodeNumbers, AreTheReferencesForOtherWidths) {
  const std::vector<Key> keys = {
      {.heads = 16, .swa_slots = 1, .compressed_slots = 1},
      {.heads = 32, .swa_slots = 100, .compressed_slots = 130, .record = Record::nvfp4},
      {.heads = 32, .swa_slots = 1, .compressed_slots = 1},
      {.heads = 32, .swa_slots = 64, .compressed_slots = 256},
      {.heads = 32, .swa_slots = 256, .compressed_slots = 512},
      {.heads = 16, .swa_slots = 64, .compressed_slots = 896, .record = Record::nvfp4}};
  warm_up(keys);
  unsigned seed = 200;
  for (const Key& key : keys)
    for (const Holes holes : {Holes::none, Holes::scattered}) {
      const Choices choices{.key = key, .tokens = 4, .lengths = Lengths::full, .holes = holes};
      HostCall host = make_call(choices, ++seed);
      DeviceCall device(*driver_, host);
      const Output want = reference(key, host.arguments());
      for (const BackEnd back_end : kBackEnds) {
        SCOPED_TRACE(text_of(choices, back_end));
        expect_close(back_end, host, want, run(back_end, key, device), key.swa_slots > 1);
        if (HasFailure()) return;
      }
    }
}

// What the mega program takes and swap-AB does not, and each number of blocks.
TEST_F(DecodeNumbers, OfMegaAreTheReferencesForOtherHeadsListsAndBlocks) {
  const std::vector<Key> keys = {
      {.heads = 1, .record = Record::nvfp4},
      {.heads = 2},
      {.heads = 4, .page_slots = 128},
      {.heads = 8, .swa_slots = 140, .record = Record::nvfp4},
      {.heads = 64},
      {.heads = 64, .record = Record::nvfp4, .page_slots = 128},
      {.heads = 64, .compressed_slots = 0},
      {.heads = 16, .swa_slots = 132, .compressed_slots = 0, .swa_page_slots = 128},
      {.heads = 32, .swa_slots = 65, .compressed_slots = 1100, .record = Record::nvfp4}};
  warm_up(keys, kMegaBackEnds);
  unsigned seed = 500;
  for (const Key& key : keys)
    for (const Lengths lengths : {Lengths::full, Lengths::partial})
      for (const Holes holes : {Holes::none, Holes::scattered}) {
        const Choices choices{.key = key, .tokens = 3, .lengths = lengths, .holes = holes};
        HostCall host = make_call(choices, ++seed);
        DeviceCall device(*driver_, host);
        const Output want = reference(key, host.arguments());
        for (const BackEnd back_end : kMegaBackEnds)
          for (u32 blocks = seed % 4 == 0 ? 2 : 8; blocks <= 8; ++blocks) {
            mega_blocks_ = blocks;
            SCOPED_TRACE(text_of(choices, back_end) + ", blocks " + std::to_string(blocks));
            expect_close(back_end, host, want, run(back_end, key, device), true);
            if (HasFailure()) return;
          }
      }
}

/// As far off as a program's output is from the reference, which is not rounded.
struct Error {
  double frobenius, largest;
};
Error error_of(const Output& got, const Output& want) {
  double largest = 0;
  for (std::size_t i = 0; i < want.values.size(); ++i)
    largest = std::max(largest, std::fabs(got.values[i] - want.values[i]));
  return {relative_frobenius(got.values, want.values), largest};
}

// The baseline is as good as the public one; swap-AB is no worse, and close to it.
TEST_F(DecodeNumbers, OfSwapabAreAtLeastAsGoodAsTheBaselines) {
  std::vector<Key> keys;
  for (const u32 heads : {16u, 32u})
    for (const auto record : {Record::fp8, Record::nvfp4})
      for (const u32 page_slots : {64u, 128u})
        keys.push_back({.heads = heads, .record = record, .page_slots = page_slots});
  warm_up(keys, std::array{BackEnd::own, BackEnd::mega});
  unsigned seed = 600;
  double worst = 0;
  for (const Key& key : keys)
    for (const Lengths lengths : {Lengths::partial, Lengths::full})
      for (const std::size_t tokens : {1u, 2u, 5u, 16u}) {
        const Choices choices{.key = key, .tokens = tokens, .lengths = lengths};
        SCOPED_TRACE(text_of(choices));
        HostCall host = make_call(choices, ++seed);
        DeviceCall device(*driver_, host);
        const Output want = reference(key, host.arguments());
        const auto decoded = [&](BackEnd back_end) {
          const Bytes bytes = run(back_end, key, device);
          HostCall call = host;
          call.output = bytes.data;
          call.output_scales = bytes.scales;
          return decode_output(key, call.arguments());
        };
        const Output swapab = decoded(BackEnd::own);
        const Output mega = decoded(BackEnd::mega);
        const auto ours = error_of(swapab, want);
        const auto theirs = error_of(mega, want);
        EXPECT_LE(ours.frobenius, 1.1 * theirs.frobenius);
        EXPECT_LE(ours.largest, 1.1 * theirs.largest);
        const double apart = relative_frobenius(swapab.values, mega.values);
        EXPECT_LE(apart, 0.02);
        worst = std::max(worst, apart);
        double dot = 0, mega_squared = 0, want_squared = 0;
        for (std::size_t i = 0; i < want.values.size(); ++i) {
          ASSERT_LE(std::fabs(mega.values[i] - want.values[i]),
                    1.1e-3 + 1.01 / 8 * std::fabs(want.values[i]))
              << "element " << i;
          dot += mega.values[i] * want.values[i];
          mega_squared += mega.values[i] * mega.values[i];
          want_squared += want.values[i] * want.values[i];
        }
        EXPECT_LE(1 - dot / std::sqrt(mega_squared * want_squared), 1e-3);
      }
  RecordProperty("apart", std::to_string(worst));
}

TEST_F(DecodeNumbers, FollowTheContractWhereInputsAreNoNumbers) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Key fp8{.heads = 16};
  const Key nvfp4{.heads = 32, .record = Record::nvfp4, .page_slots = 128};
  warm_up({fp8, nvfp4});
  using Spoil = void (*)(HostCall&);
  // The record of a list's entry; of 3 tokens only the second lists it.
  static const auto record_of = [](HostList& list, std::size_t i) {
    const std::int32_t slot = list.slots[list.width + i];
    for (const std::size_t token : {0u, 2u})
      for (std::size_t k = 0; k < list.width; ++k)
        if (list.slots[token * list.width + k] == slot) list.slots[token * list.width + k] = -1;
    return list.record_at(static_cast<std::size_t>(slot));
  };
  const std::map<std::string_view, Spoil> spoils = {
      {"swa scale 255", [](HostCall& call) { record_of(call.swa, 70)[515] = 255; }},
      {"swa scale 167", [](HostCall& call) { record_of(call.swa, 0)[512] = 167; }},
      // What one head's outputs are beside it, another's must not lose.
      {"a swa scale so large that a head sees its record alone or not at all",
       [](HostCall& call) { record_of(call.swa, 3)[515] = 160; }},
      {"swa scales so large over zeros that nothing would be left beside them",
       [](HostCall& call) {
         for (const std::size_t i : {3u, 90u}) {
           const auto record = record_of(call.swa, i);
           std::fill_n(record.begin() + 96, 64, i == 3 ? u8{0} : u8{0x80});
           record[515] = record[516] = 160;
         }
       }},
      {"all records 2^30 times as large, queries as much smaller",
       [](HostCall& call) {
         if (call.key.record != Record::fp8) return;
         for (HostList* list : {&call.swa, &call.compressed})
           for (const std::int32_t slot : list->written)
             for (u8& scale : list->record_at(static_cast<std::size_t>(slot)).subspan(512, 16))
               scale = static_cast<u8>(scale + 30);
         for (u16& value : call.query)
           if ((value & 0x7f80u) > 30 << 7) value = static_cast<u16>(value - (30 << 7));
       }},
      {"swa scale 0", [](HostCall& call) { record_of(call.swa, 5)[520] = 0; }},
      {"swa data NaN",
       [](HostCall& call) {
         record_of(call.swa, 1)[9] = 0x7f;
         record_of(call.swa, 2)[500] = 0xff;
       }},
      {"compressed scale NaN",
       [](HostCall& call) {
         const auto record = record_of(call.compressed, 300);
         record.back() = call.key.record == Record::fp8 ? 255 : 0x7f;
       }},
      {"compressed scale negative NaN",
       [](HostCall& call) {
         const auto record = record_of(call.compressed, 511);
         record.back() = call.key.record == Record::fp8 ? 254 : 0xff;
       }},
      {"compressed scale's sign",
       [](HostCall& call) {
         if (call.key.record == Record::nvfp4) record_of(call.compressed, 8)[260] ^= 0x80;
       }},
      {"query NaN", [](HostCall& call) { call.query_at(1, 9, 17) = 0x7fc0; }},
      {"query negative NaN", [](HostCall& call) { call.query_at(1, 3, 511) = 0xffc0; }},
      {"query NaN under an infinite sink",
       [](HostCall& call) {
         call.query_at(1, 9, 17) = 0x7fc0;
         call.sinks[9] = infinity;
       }},
      {"sink NaN", [](HostCall& call) { call.sinks[15] = nan; }},
      {"sink NaN and nothing listed",
       [](HostCall& call) {
         call.sinks[2] = nan;
         call.swa.lengths[0] = call.compressed.lengths[0] = 0;
       }},
      {"sink so low that its power of 2 has no reciprocal, and nothing listed",
       [](HostCall& call) {
         call.sinks[3] = -80.0f;
         call.swa.lengths[0] = call.compressed.lengths[0] = 0;
       }},
      {"sink infinite", [](HostCall& call) { call.sinks[0] = infinity; }},
      {"one slot twice",
       [](HostCall& call) {
         for (std::size_t i = 0; i < 100; ++i) call.swa.slots[i] = call.swa.slots[0];
       }},
  };
  for (const auto& [name, spoil] : spoils)
    for (const Key& key : {fp8, nvfp4}) {
      HostCall host = make_call({.key = key, .tokens = 3}, 300);
      spoil(host);
      DeviceCall device(*driver_, host);
      const Output want = reference(key, host.arguments());
      for (const BackEnd back_end : kBackEnds) {
        SCOPED_TRACE(std::string(name) + (key.heads == 16 ? ", fp8" : ", nvfp4") + ", program " +
                     std::to_string(static_cast<unsigned>(back_end)));
        expect_close(back_end, host, want, run(back_end, key, device), true);
      }
    }
}

// With P as one bf16 number the outputs are further off than what the tests above let pass.
TEST_F(DecodeNumbers, NeedTheLowTermsOfP) {
  Runtime mutated = open_runtime();
  const Status added = add_changed_sources(mutated, kNoLowTermsOfP.edits);
  ASSERT_TRUE(added) << message_of(added);
  const Key& key = kNoLowTermsOfP.key;
  const auto decode = SwapabDecode::create(mutated, key);
  ASSERT_TRUE(decode) << message_of(decode);
  HostCall host = make_call({.key = key, .tokens = 16}, 400);
  DeviceCall device(*driver_, host);
  const Output want = reference(key, host.arguments());
  const Differences with = differences(BackEnd::own, host, want, run(BackEnd::own, key, device));
  device.clear();
  ASSERT_TRUE(decode->launch(device.arguments, nullptr));
  const Differences without = differences(BackEnd::own, host, want, device.bytes());
  const std::size_t bytes = places_of(host).data.size();
  SCOPED_TRACE(std::to_string(with.data) + " and " + std::to_string(without.data) + " of " +
               std::to_string(bytes) + " bytes, outside the band " + std::to_string(with.outside) +
               " and " + std::to_string(without.outside));
  RecordProperty("bytes", std::to_string(bytes));
  RecordProperty("with", std::to_string(with.data));
  RecordProperty("without", std::to_string(without.data));
  RecordProperty("without_outside", std::to_string(without.outside));
  EXPECT_LE(with.data, bytes / 50);
  EXPECT_EQ(with.outside, 0u);
  EXPECT_GE(without.data, 3 * std::max<std::size_t>(with.data, 1));
  EXPECT_GT(without.data, 2 + bytes / 50);
  EXPECT_GT(without.outside, bytes / 2000);
}

}  // namespace
}  // namespace kiln::kernels::dsv41_decode::test
