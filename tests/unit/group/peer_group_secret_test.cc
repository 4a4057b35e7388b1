// Ranks prove to each other that they know the group's secret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "peer_groups.h"

namespace netfold::group {
namespace {

class Secrets : public testing::TestWithParam<bool> {
 protected:
  // How rank 0 and rank 1, each with its secret, end their connecting.
  std::array<Result<void>, 2> connect(const std::string& first, const std::string& second) {
    groups_.clear();
    PeerGroupOptions options;
    options.world = 2;
    options.shm = GetParam();
    options.timeout_s = 1;
    options.secret = first;
    groups_.push_back(std::move(*PeerGroup::open(options)));
    options.rank = 1;
    options.secret = second;
    groups_.push_back(std::move(*PeerGroup::open(options)));
    const std::vector<std::string> addresses{groups_[0]->address(), groups_[1]->address()};
    auto lower = std::async(std::launch::async, [&] { return groups_[0]->connect(addresses); });
    auto upper = groups_[1]->connect(addresses);
    return {lower.get(), std::move(upper)};
  }

  Groups groups_;
};

TEST_P(Secrets, WhoKnowsTheSameSecretIsConnected) {
  for (const auto& connected : connect("open sesame", "open sesame")) {
    ASSERT_TRUE(connected) << connected.error().message;
  }
  auto tensors = gradients(2, 1000);
  for (const auto& error : reduce_all(groups_, tensors)) EXPECT_FALSE(error) << error->message;
}

TEST_P(Secrets, WhoKnowsAnotherOrNoneIsKeptOut) {
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"open sesame", "open barley"}, {"open sesame", ""}, {"", "open sesame"}}) {
    const auto [lower, upper] = connect(first, second);
    ASSERT_FALSE(lower);
    ASSERT_FALSE(upper);
    EXPECT_EQ(upper.error().code, ErrorCode::kAuth) << upper.error().message;
    EXPECT_EQ(lower.error().rank, 1) << lower.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(Links, Secrets, testing::Bool(),
                         [](const auto& shm) { return std::string(shm.param ? "Shm" : "Tcp"); });

}  // namespace
}  // namespace netfold::group
