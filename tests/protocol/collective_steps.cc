#include "protocol/collective_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "protocol/tensors.h"
#include "support/same_bits.h"
#include "testing/plain_fold.h"

namespace netfold::tests {

using numbers::ElementType;
using numbers::Format;
using schedule::Collective;

Tensor part_of(const Tensor& whole, std::size_t rank, std::size_t count) {
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(rank * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

namespace {

void overwrite(Tensor& tensor, std::size_t at, const Tensor& with) {
  std::ranges::copy(with, tensor.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

Step::Step(Collective what, std::uint16_t world, std::size_t elements, Prng& prng, const Fold& fold)
    : collective(what),
      place(static_cast<Place>(prng.below(3))),
      root(static_cast<int>(prng.below(world))),
      count(elements) {
  const bool scatters = what == Collective::kReduceScatter, gathers = what == Collective::kAllGather;
  const std::size_t in_count = scatters ? count * world : count, out_count = gathers ? count * world : count;
  for (std::uint16_t rank = 0; rank < world; ++rank) in.push_back(random_tensor(in_count, prng));
  const Tensor sum = gathers || what == Collective::kBroadcast || count == 0 ? Tensor{} : fold(in);
  Tensor all;
  if (gathers) {
    for (const Tensor& each : in) all.insert(all.end(), each.begin(), each.end());
  }
  for (std::uint16_t rank = 0; rank < world; ++rank) {
    Tensor result = gathers ? all : sum;
    if (scatters) result = part_of(sum, rank, count);
    if (what == Collective::kBroadcast) result = in[static_cast<std::size_t>(root)];
    const std::size_t own = rank * count;
    Tensor before(out_count, -1.0f);
    if (place == Place::kApart || count == 0) {
      expected_in.push_back(in[rank]);
      out.push_back(before);
      expected_out.push_back(result);
    } else if (gathers) {  // `in` lies in `out`
      overwrite(before, place == Place::kOwnPart ? own : 0, in[rank]);
      in[rank].clear();
      expected_in.emplace_back();
      out.push_back(before);
      expected_out.push_back(result);
    } else {  // `out` lies in `in`
      Tensor after = in[rank];
      overwrite(after, scatters && place == Place::kOwnPart ? own : 0, result);
      expected_in.push_back(after);
      out.emplace_back();
      expected_out.emplace_back();
    }
  }
}

void Step::submit(std::uint16_t rank, const Submit& to) {
  const std::size_t own = place == Place::kOwnPart ? rank * count : 0;
  group::CollectiveRequest request{in[rank].data(), out[rank].data(), count, ElementType::kFp32, Format::kFp32};
  if (in[rank].empty()) request.in = out[rank].data() + own;
  if (out[rank].empty()) request.out = in[rank].data() + (collective == Collective::kReduceScatter ? own : 0);
  request.collective = collective;
  request.root = root;
  to(rank, request);
}

void Step::expect_right(std::uint16_t rank) const {
  EXPECT_TRUE(are_same_bits(out[rank], expected_out[rank]))
      << schedule::name_of(collective) << " of " << count << " on rank " << rank << ", place "
      << static_cast<int>(place);
  EXPECT_TRUE(are_same_bits(in[rank], expected_in[rank]))
      << schedule::name_of(collective) << " of " << count << " left rank " << rank << " another input, place "
      << static_cast<int>(place);
}

std::vector<Step> random_steps(std::uint16_t world, std::size_t count_max, Prng& prng, const Fold& fold) {
  std::vector<Step> steps;
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast, Collective::kAllReduce}) {
    for (int each = 0; each < 2; ++each) steps.emplace_back(collective, world, 1 + prng.below(count_max), prng, fold);
  }
  steps.emplace_back(Collective::kBarrier, world, 0, prng, fold);
  for (std::size_t last = steps.size() - 1; last > 0; --last) std::swap(steps[last], steps[prng.below(last + 1)]);
  return steps;
}

Tensor plain(const std::vector<Tensor>& tensors) {
  return netfold::testing::plain_fold(tensors, 0, static_cast<int>(tensors.size()));
}

}  // namespace netfold::tests
