#include "group/scratch_pool.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace netfold::group {
namespace {

TEST(ScratchPool, KeepsWhatIsTakenAgain) {
  ScratchPool pool;
  const std::byte* first = nullptr;
  for (std::uint64_t i = 0; i < 2 * ScratchPool::kKeptFor; ++i) {
    ScratchBuffer buffer = pool.take(1000);
    if (first == nullptr) first = buffer.bytes.get();
    ASSERT_EQ(buffer.bytes.get(), first);
    pool.give_back(std::move(buffer));
  }
  EXPECT_EQ(pool.size_bytes(), 1000u);
}

TEST(ScratchPool, GivesAPeakBackToTheSystem) {
  ScratchPool pool;
  std::vector<ScratchBuffer> peak;
  for (int i = 0; i < 10; ++i) peak.push_back(pool.take(1000));
  for (ScratchBuffer& each : peak) pool.give_back(std::move(each));
  EXPECT_EQ(pool.size_bytes(), 10'000u);
  for (std::uint64_t i = 0; i <= ScratchPool::kKeptFor; ++i) pool.give_back(pool.take(1000));
  EXPECT_EQ(pool.size_bytes(), 1000u);
}

}  // namespace
}  // namespace netfold::group
