#include "testing/checkers/bits.h"

#include <algorithm>
#include <cstring>

#include "base/prng.h"
#include "group/via_peers/buffer_layout.h"
#include "numbers/codec.h"
#include "testing/plain_schedule.h"

namespace netfold::testing {

std::vector<std::byte> draw_tensor(numbers::ElementType type, std::size_t count, std::uint64_t process_seed,
                                   std::size_t index) {
  Prng prng(process_seed * 1000003 + index);
  std::vector<std::byte> bytes(count * numbers::size_bytes(type));
  if (count == 0) return bytes;
  if (type == numbers::ElementType::kInt32) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<std::int32_t>(prng.next());
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
    return bytes;
  }
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t draw = prng.next();
    value = static_cast<float>(static_cast<std::int32_t>(draw)) * 0x1p-31f * static_cast<float>(1 << (draw >> 60));
  }
  // Through the format of the same type: what lies in memory is what that format can say.
  const auto format = type == numbers::ElementType::kFp32   ? numbers::Format::kFp32
                      : type == numbers::ElementType::kFp16 ? numbers::Format::kFp16
                                                            : numbers::Format::kBf16;
  numbers::encode({format, {}}, numbers::ElementType::kFp32, values.data(), values.size(), bytes.data());
  return bytes;
}

void BitsChecker::on_admitted(std::uint64_t life, Party rank, std::uint64_t process_seed) {
  if (!seeds_[life].emplace(rank.rank, process_seed).second) {
    history_.violate("bits", fmt::format("{} was admitted to one life twice", History::to_string(rank)));
  }
}

void BitsChecker::check(std::uint64_t life, Party rank, std::size_t index, std::span<const std::byte> result) {
  if (result.empty()) return;  // nothing to wait for
  const auto& seeds = seeds_[life];
  if (seeds.size() != plan_.jobs[static_cast<std::size_t>(rank.job)].world) {
    return history_.violate("bits", fmt::format("{} has a sum, but only {} ranks know of this life",
                                                History::to_string(rank), seeds.size()));
  }
  const auto& wanted = expected(life, rank.job, index)[static_cast<std::size_t>(rank.rank)];
  const auto wrong = std::mismatch(wanted.begin(), wanted.end(), result.begin(), result.end());
  if (wrong.first == wanted.end() && wrong.second == result.end()) return;
  history_.violate("bits", fmt::format("tensor {} of {} differs from the plain one at byte {} of {}", index,
                                       History::to_string(rank), wrong.first - wanted.begin(), wanted.size()));
}

const BitsChecker::Results& BitsChecker::expected(std::uint64_t life, int job, std::size_t index) {
  Results& results = expected_[{life, index}];
  if (!results.empty()) return results;
  const JobPlan& plan = plan_.jobs[static_cast<std::size_t>(job)];
  group::CollectiveRequest request = plan.tensors[index].request;
  Results inputs;
  for (const auto& [rank, seed] : seeds_[life]) {
    const auto layout = group::buffer_layout_of(request.collective, request.count, plan.world, rank);
    inputs.push_back(draw_tensor(request.type, layout.in.count, seed, index));
  }
  if (plan.is_among_peers) {
    results = plain_collective(inputs, request, plan.order);
  } else {
    request.bfp = plan.bfp;  // one shape a job
    results = plain_in_network(inputs, request);
  }
  return results;
}

}  // namespace netfold::testing
