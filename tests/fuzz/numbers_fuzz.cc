// Folds of whatever bytes well-formed payloads may hold, by every kernel table against the reference: any format, any
// shape, any number of workers, any alignment, as a switch does it and as a worker reads the answer.
//
// NETFOLD_FUZZ_FOLDS sets how many (default 20,000), NETFOLD_SEED which.
#include <gtest/gtest.h>

#include <array>

#include "numbers/codec.h"
#include "numbers/fold.h"
#include "support/random_seed.h"
#include "unit/numbers/samples.h"

namespace netfold::numbers::testing {
namespace {

// Random bytes, or encoded samples; a malformed exponent, which the wire layer drops, becomes 255.
std::vector<std::byte> any_payload(Prng& prng, WireFormat wire, std::size_t count) {
  std::vector<std::byte> payload(encoded_bytes(wire, count));
  if (wire.format != Format::kInt32 && prng.chance(0.5)) {
    encode(wire, ElementType::kFp32, samples(prng, count).data(), count, payload.data(), reference());
    return payload;
  }
  for (std::byte& byte : payload) byte = static_cast<std::byte>(prng.next());
  if (wire.format != Format::kBfp) return payload;
  for (std::size_t at = 0; at < payload.size(); at += bfp_block_bytes(wire.bfp)) {
    const auto exponent = static_cast<unsigned>(payload[at]);
    if (exponent > 0 && exponent < wire.bfp.mantissa) payload[at] = std::byte{255};
  }
  return payload;
}

std::vector<float> read_as_floats(WireFormat wire, const std::vector<std::byte>& payload, std::size_t count) {
  std::vector<float> values(count);
  if (count > 0) decode(wire, ElementType::kFp32, payload.data(), count, values.data(), 1, reference());
  return values;
}

void fold_once(std::uint64_t seed) {
  Prng prng(seed);
  constexpr std::array kFormats{Format::kFp32, Format::kFp16, Format::kBf16, Format::kInt32, Format::kBfp};
  const WireFormat wire{kFormats[prng.below(kFormats.size())], prng.chance(0.5) ? BfpShape{} : any_shape(prng)};
  const std::size_t workers = 1 + prng.below(prng.chance(0.1) ? 70 : 17);
  const std::size_t count = prng.below(prng.chance(0.1) ? 3000 : 400);
  std::vector<Unaligned> payloads;
  for (std::size_t rank = 0; rank < workers; ++rank) {
    const std::vector<std::byte> bytes = any_payload(prng, wire, count);
    payloads.emplace_back(bytes.data(), bytes.size(), prng.below(64));
  }
  std::vector<const std::byte*> pointers;
  for (Unaligned& payload : payloads) pointers.push_back(payload.data());
  const std::size_t offset = prng.below(64);
  const auto fold_by = [&](const Kernels& table) {
    Unaligned out(encoded_bytes(wire, count), offset);
    Folder(count, workers, table).fold(wire, pointers, count, out.data());
    EXPECT_TRUE(out.guard_is_whole()) << table.name << " wrote past the end, seed " << seed;
    return out.content();
  };
  const std::vector<std::byte> expected = fold_by(reference());
  for (const Kernels* table : fast_tables()) {
    const std::vector<std::byte> got = fold_by(*table);
    const bool is_exact = wire.format == Format::kInt32 || wire.format == Format::kBfp;  // elsewhere NaNs may differ
    const std::string found = is_exact
                                  ? difference(expected, got)
                                  : difference(read_as_floats(wire, expected, count), read_as_floats(wire, got, count));
    ASSERT_EQ(found, "") << table->name << " " << name_of(wire.format) << " block " << +wire.bfp.block << " mantissa "
                         << +wire.bfp.mantissa << " workers " << workers << " count " << count << " seed " << seed;
  }
}

TEST(NumbersFuzz, EveryTableFoldsAsTheReferenceDoes) {
  const std::uint64_t first_seed = tests::random_seed();
  const std::uint64_t folds = tests::from_environment("NETFOLD_FUZZ_FOLDS", 20000);
  for (std::uint64_t seed = first_seed; seed < first_seed + folds; ++seed) {
    ASSERT_NO_FATAL_FAILURE(fold_once(seed)) << "NETFOLD_SEED=" << seed << " NETFOLD_FUZZ_FOLDS=1 replays it";
  }
}

}  // namespace
}  // namespace netfold::numbers::testing
