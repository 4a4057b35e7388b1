// Ranks prove to each other that they know the group's secret.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/wakeup.h"
#include "group/via_peers/handshake.h"
#include "link/descriptor.h"
#include "link/tcp/control_socket.h"
#include "peer_groups.h"

namespace netfold::group {
namespace {

class Secrets : public ::testing::TestWithParam<bool> {
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

// With a secret, a rank reports another world only to and from a rank that has proven the secret.
TEST_P(Secrets, RanksThatKnowItSayWhatTheyDisagreeAbout) {
  for (const bool have_secret : {true, false}) {
    PeerGroupOptions options;
    options.shm = GetParam();
    options.timeout_s = 10;
    options.secret = have_secret ? "open sesame" : "";
    options.world = 2;
    const auto lower = std::move(*PeerGroup::open(options));
    options.world = 3, options.rank = 1;
    const auto upper = std::move(*PeerGroup::open(options));
    auto connecting = std::async(std::launch::async, [&] {
      return lower->connect({lower->address(), upper->address()});
    });
    const auto connected = upper->connect({lower->address(), upper->address(), upper->address()});
    ASSERT_FALSE(connected);
    EXPECT_THAT(connected.error().message, ::testing::HasSubstr("world"));
    const auto heard = connecting.get();
    ASSERT_FALSE(heard);
    EXPECT_EQ(heard.error().code, ErrorCode::kMismatch) << heard.error().message;
  }
}

TEST_P(Secrets, StrangersDoNotEndTheMeetingOfRanks) {
  const auto line = [](const std::string& rest) {
    return fmt::format("{{\"netfold_ranks\":{}{}}}\n", kRanksVersion, rest);
  };
  const std::string hello = line(R"(,"kind":"control","rank":1,"world":2,"to":0,"nonce":"00")");
  PeerGroupOptions options;
  options.world = 2;
  options.shm = GetParam();
  options.timeout_s = 10;
  options.secret = "open sesame";
  groups_.push_back(std::move(*PeerGroup::open(options)));
  options.rank = 1;
  groups_.push_back(std::move(*PeerGroup::open(options)));
  const std::vector<std::string> addresses{groups_[0]->address(), groups_[1]->address()};
  auto lower = std::async(std::launch::async, [&] { return groups_[0]->connect(addresses); });
  std::vector<link::Descriptor> strangers;  // that say nothing more
  for (const std::string& said :
       {line(""), hello, hello + line(R"(,"kind":"verdict","proof":"00")"),
        line(R"(,"kind":"data","rank":1,"world":2,"index":0,"of":1,"proof":"")"),
        line(R"(,"kind":"control","rank":1,"world":7,"to":5)"), std::string("{\"net"), std::string(5000, 'x'),
        std::string(), std::string(), std::string(), std::string(), std::string(), std::string()}) {
    auto socket = link::begin_connect(*link::parse_address(addresses[0]));
    ASSERT_TRUE(socket);
    strangers.emplace_back(*socket);
    pollfd writable{*socket, POLLOUT, 0};
    wait_for({&writable, 1}, now() + kSecond);
    ASSERT_EQ(send(*socket, said.data(), said.size(), MSG_NOSIGNAL), static_cast<ssize_t>(said.size()));
  }
  const auto upper = groups_[1]->connect(addresses);
  EXPECT_TRUE(upper) << upper.error().message;
  const auto connected = lower.get();
  ASSERT_TRUE(connected) << connected.error().message;
  auto tensors = gradients(2, 1000);
  for (const auto& error : reduce_all(groups_, tensors)) EXPECT_FALSE(error) << error->message;
}

INSTANTIATE_TEST_SUITE_P(Links, Secrets, ::testing::Bool(),
                         [](const auto& shm) { return std::string(shm.param ? "Shm" : "Tcp"); });

}  // namespace
}  // namespace netfold::group
