// The order of summation: which algorithms have the bits of the in-network fold (schedule::sums_in_rank_order), told by
// the specification, and then found on every real path.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/prng.h"
#include "split_groups.h"
#include "support/random_seed.h"
#include "testing/plain_fold.h"
#include "testing/plain_schedule.h"

namespace netfold::group {
namespace {

using numbers::ElementType;
using numbers::Format;
using schedule::Algorithm;

constexpr int kWorldMax = tests::kSanitized ? 9 : 17;

// Those that ranks run among themselves, in each shape that this world can have.
std::vector<Algorithm> host_algorithms(int world) {
  std::vector<Algorithm> all;
  for (const char* const name :
       {"ring", "direct", "halving-doubling", "recursive-doubling", "rabenseifner", "binomial", "double-binary-tree"}) {
    all.push_back({.name = name});
    for (const int group : {2, 3, 4}) all.push_back({.name = "hierarchical", .group = group, .between = name});
  }
  for (const int sub_nodes : {1, 2, 4}) {
    for (const int switches : {2, 4, 8}) {
      if (sub_nodes * switches == world) {
        all.push_back({.name = "hdrm", .sub_nodes = sub_nodes, .switches = switches});
      }
    }
  }
  return all;
}

std::string text_of(const Algorithm& algorithm, int world, Format format) {
  return algorithm.name + (algorithm.group > 0 ? " of " + std::to_string(algorithm.group) : "") +
         (algorithm.name == "hierarchical" ? " and " + algorithm.between : "") + " in a world of " +
         std::to_string(world) + " as " + numbers::name_of(format);
}

std::vector<std::vector<std::byte>> bytes_of(const std::vector<std::vector<float>>& tensors) {
  std::vector<std::vector<std::byte>> bytes;
  for (const auto& tensor : tensors) {
    const auto* const first = reinterpret_cast<const std::byte*>(tensor.data());
    bytes.emplace_back(first, first + tensor.size() * sizeof(float));
  }
  return bytes;
}

// A tensor of so many elements has at least `size_bytes` on the wire.
std::size_t elements_in(std::size_t size_bytes, Format format) {
  return size_bytes * 1000 / numbers::encoded_bytes({format}, 1000) + 1000;
}

class SumsInRankOrder : public ::testing::TestWithParam<int> {};  // by world

TEST_P(SumsInRankOrder, IsSaidOfTheAlgorithmsThatDo) {
  constexpr std::size_t kCount = 600;  // several elements and bfp blocks for each of 17 ranks
  const int world = GetParam();
  const auto inputs = bytes_of(gradients(world, kCount));
  for (const Format format : kFormats) {
    const bool average = world % 3 == 0;
    const auto expected = testing::plain_all_reduce(inputs, ElementType::kFp32, {format}, kCount, average);
    for (const Algorithm& algorithm : host_algorithms(world)) {
      const CollectiveRequest request{.count = kCount, .format = format, .average = average, .algorithm = algorithm};
      const auto sums = testing::plain_collective(inputs, request, {});
      const bool is_said = schedule::sums_in_rank_order(algorithm.name, world, numbers::is_narrow(format));
      // Others do in some worlds, and nothing relies on it.
      const bool may = world == 2 || algorithm.name == "rabenseifner" || algorithm.name == "hierarchical";
      EXPECT_TRUE(are_same_bits(sums[0], expected) ? is_said || may : !is_said) << text_of(algorithm, world, format);
    }
  }
}

TEST_P(SumsInRankOrder, EveryPathHasTheseBits) {
  const int world = GetParam();
  const std::array servers = {start_switch(), start_switch(), start_switch()};
  std::vector<const switching::SwitchServer*> switches;
  for (int at = 0; at <= world % 3; ++at) switches.push_back(servers[static_cast<std::size_t>(at)].get());
  SplitGroups groups = join_all(switches, world, world % 2 == 0);
  const Format format_of_large = kFormats[static_cast<std::size_t>(world) % kFormats.size()];
  for (const bool is_large : {false, true}) {  // a large one is divided between switches and ranks
    const std::size_t count = is_large ? elements_in(SplitSession::kSplitBytesMin, format_of_large) : 700;
    const auto tensors = gradients(world, count);
    const auto inputs = bytes_of(tensors);
    for (const Format format : kFormats) {
      if (is_large && format != format_of_large) continue;
      const auto expected = testing::plain_all_reduce(inputs, ElementType::kFp32, {format}, count, false);
      std::vector<Algorithm> paths = host_algorithms(world);
      paths.insert(paths.end(), {{.name = "in-network"}, {.name = "split"}, {.name = "split"}});
      for (const Algorithm& path : paths) {
        if (path.name != "split" && !schedule::sums_in_rank_order(path.name, world, numbers::is_narrow(format)))
          continue;
        for (const auto& sum : reduce(groups, tensors, path, format, false, true)) {
          EXPECT_TRUE(are_same_bits(sum, expected)) << text_of(path, world, format);
        }
      }
    }
  }
  for (const auto& group : groups) group->close();
}

INSTANTIATE_TEST_SUITE_P(Worlds, SumsInRankOrder, ::testing::Range(2, kWorldMax + 1));

}  // namespace
}  // namespace netfold::group
