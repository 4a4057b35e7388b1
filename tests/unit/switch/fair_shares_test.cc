#include "switch/fair_shares.h"

#include <gtest/gtest.h>

namespace netfold::switching {
namespace {

using Job = FairShares::Job;

constexpr Job kOne = 1, kOther = 2, kThird = 3;

using Bytes = FairShares::Bytes;

// Looks once a second, and says what each job has too much.
class Looks {
 public:
  std::map<Job, control::LinkShare> look(const std::map<Job, FairShares::Share>& so_far,
                                         const std::map<std::string, FairShares::Interface>& interfaces = {}) {
    return shares_.look(so_far, interfaces, now_ += kSecond);
  }
  std::map<Job, double> too_much(const std::map<Job, Bytes>& so_far) {
    std::map<Job, FairShares::Share> shares;
    for (const auto& [job, bytes] : so_far) shares[job].bytes = bytes;
    std::map<Job, double> times;
    for (const auto& [job, share] : look(shares)) {
      EXPECT_EQ(share.grant_bytes_s, 0) << "the jobs have the link for themselves";
      times[job] = share.of_fair;
    }
    return times;
  }

 private:
  FairShares shares_;
  Nanoseconds now_ = 0;
};

// Each job has these bytes between two looks.
std::map<Job, double> said_after(const std::map<Job, Bytes>& bytes) {
  Looks looks;
  std::map<Job, Bytes> so_far;
  for (const auto& [job, unused] : bytes) so_far[job] = {.up = 1000, .down = 7};
  EXPECT_TRUE(looks.too_much(so_far).empty()) << "nothing is known of what came before";
  for (const auto& [job, more] : bytes) {
    so_far[job].up += more.up;
    so_far[job].down += more.down;
  }
  return looks.too_much(so_far);
}

// The jobs hear this after a second. Each is at the interface eth0, which carried so much, and has two contributors. So
// much of its frames is headers.
std::map<Job, control::LinkShare> said_beside(const std::map<Job, Bytes>& bytes, Bytes carried, double headers = 0) {
  Looks looks;
  std::map<Job, FairShares::Share> so_far;
  for (const auto& [job, unused] : bytes) so_far[job] = {{}, "eth0", 2};
  EXPECT_TRUE(looks.look(so_far, {{"eth0", {{1, 1}, {}}}}).empty());
  Bytes own;
  for (const auto& [job, more] : bytes) {
    so_far[job].bytes = more;
    own.up += static_cast<std::uint64_t>(static_cast<double>(more.up) * (1 + headers));
    own.down += static_cast<std::uint64_t>(static_cast<double>(more.down) * (1 + headers));
  }
  return looks.look(so_far, {{"eth0", {{carried.up + 1, carried.down + 1}, own}}});
}

TEST(FairShares, AJobThatHasMoreHearsHowMuch) {
  const auto said = said_after({{kOne, {3'000'000, 3'000'000}}, {kOther, {1'000'000, 1'000'000}}});
  EXPECT_EQ(said, (std::map<Job, double>{{kOne, 1.5}}));
  const auto of_three =
      said_after({{kOne, {4'000'000, 4'000'000}}, {kOther, {1'000'000, 1'000'000}}, {kThird, {1'000'000, 1'000'000}}});
  EXPECT_EQ(of_three.size(), 1u);
  EXPECT_NEAR(of_three.at(kOne), 2, 1e-9);
}

TEST(FairShares, NobodyHearsOfSmallDifferences) {
  EXPECT_TRUE(said_after({{kOne, {1'050'000, 1'050'000}}, {kOther, {1'000'000, 1'000'000}}}).empty());
  EXPECT_TRUE(said_after({{kOne, {1'000'000, 1'000'000}}}).empty()) << "it is the only one";
  EXPECT_TRUE(said_after({{kOne, {1'000'000, 1'000'000}}, {kOther, {0, 0}}}).empty()) << "the other one computes";
  EXPECT_TRUE(said_after({{kOne, {0, 0}}, {kOther, {0, 0}}}).empty());
}

// FSDP's reduce-scatters and all-gathers are two jobs at the switch: the first load the way up, the second that down.
TEST(FairShares, JobsCompeteForTheWayThatTheyLoad) {
  const FairShares::Bytes scatters{8'000'000, 1'000'000}, gathers{1'000'000, 8'000'000}, both{2'000'000, 2'000'000};
  EXPECT_TRUE(said_after({{kOne, scatters}, {kOther, gathers}}).empty());
  const auto said = said_after({{kOne, scatters}, {kOther, both}});
  EXPECT_EQ(said, (std::map<Job, double>{{kOne, 1.6}})) << "they share the way up";
}

TEST(FairShares, AJobThatComesCountsFromThenOn) {
  Looks looks;
  looks.too_much({{kOne, {5'000'000, 5'000'000}}});
  EXPECT_TRUE(looks.too_much({{kOne, {6'000'000, 6'000'000}}, {kOther, {100'000, 100'000}}}).empty());
  const auto said = looks.too_much({{kOne, {9'000'000, 9'000'000}}, {kOther, {1'100'000, 1'100'000}}});
  EXPECT_EQ(said, (std::map<Job, double>{{kOne, 1.5}}));
  EXPECT_TRUE(looks.too_much({{kOther, {2'000'000, 2'000'000}}}).empty()) << "the first one has ended";
  EXPECT_TRUE(looks.too_much({{kOther, {0, 0}}, {kOne, {0, 0}}}).empty()) << "these were the bytes of a job before it";
}

TEST(FairShares, OtherTrafficCountsAsOneMoreJob) {
  const Bytes much{8'000'000, 8'000'000}, little{1'000'000, 1'000'000};
  const auto more = said_beside({{kOne, much}}, {9'000'000, 9'000'000});
  ASSERT_EQ(more.size(), 1u);
  EXPECT_NEAR(more.at(kOne).of_fair, 16.0 / 9, 1e-6);
  EXPECT_EQ(more.at(kOne).grant_bytes_s, 0);
  EXPECT_TRUE(said_beside({{kOne, much}}, {8'020'000, 8'020'000}).empty()) << "a little does not compete";
  EXPECT_TRUE(said_beside({{kOne, much}}, {7'000'000, 7'000'000}).empty()) << "what was sent, and dropped at once";

  const auto granted = said_beside({{kOne, little}, {kOther, little}}, {9'000'000, 9'000'000});
  ASSERT_EQ(granted.size(), 2u);
  for (const Job job : {kOne, kOther}) {
    EXPECT_EQ(granted.at(job).of_fair, 1);
    EXPECT_NEAR(granted.at(job).grant_bytes_s, 1'000'000, 1) << "twice what it has, by two workers";
  }
  const auto all = said_beside({{kOne, {4'000'000, 4'000'000}}}, {10'000'000, 10'000'000});
  EXPECT_NEAR(all.at(kOne).grant_bytes_s, 2'500'000, 1) << "not more than is fair";
}

TEST(FairShares, HeadersOfTheJobsPacketsAreNoOtherTraffic) {
  const Bytes much{8'000'000, 8'000'000};
  const Bytes with_headers{8'240'000, 8'240'000};
  EXPECT_TRUE(said_beside({{kOne, much}}, with_headers, 0.03).empty());
  EXPECT_FALSE(said_beside({{kOne, much}}, with_headers).empty());
}

TEST(FairShares, OtherTrafficCompetesForTheWayThatItLoads) {
  // A download fills the way down. Its acknowledgements go up.
  const auto said = said_beside({{kOne, {4'000'000, 4'000'000}}}, {4'100'000, 10'000'000});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NEAR(said.at(kOne).grant_bytes_s, 2'500'000, 1);
  const auto less = said_beside({{kOne, {4'000'000, 4'000'000}}}, {4'100'000, 6'000'000});
  ASSERT_EQ(less.size(), 1u);
  EXPECT_NEAR(less.at(kOne).of_fair, 4.0 / 3, 1e-6) << "that of the way up would be 2";
}

TEST(FairShares, JobsWithTooMuchYieldSoonerWhereOtherTrafficHasTooLittle) {
  const Bytes job{3'600'000, 3'600'000};
  EXPECT_EQ(said_beside({{kOne, job}, {kOther, job}}, {9'700'000, 9'700'000}).size(), 2u);
  EXPECT_TRUE(said_beside({{kOne, job}, {kOther, job}}, {10'600'000, 10'600'000}).empty());
}

TEST(FairShares, JobsCompeteAtOneInterface) {
  Looks looks;
  const auto at = [](Bytes bytes, std::string interface) { return FairShares::Share{bytes, std::move(interface)}; };
  looks.look({{kOne, at({}, "eth0")}, {kOther, at({}, "eth1")}, {kThird, at({}, "eth1")}});
  const auto said = looks.look({{kOne, at({9'000'000, 9'000'000}, "eth0")},
                                {kOther, at({3'000'000, 3'000'000}, "eth1")},
                                {kThird, at({1'000'000, 1'000'000}, "eth1")}});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said.at(kOther).of_fair, 1.5);
}

// The kernel counts what the switch has not read yet, or what has left the switch already.
TEST(FairShares, PacketsOnTheirWayThroughTheKernelAreNoOtherTraffic) {
  Looks looks;
  const auto at = [](std::uint64_t bytes) { return FairShares::Share{{bytes, bytes}, "eth0"}; };
  std::uint64_t own = 0;
  for (int look = 0; look < 100; ++look, own += 1'000'000) {
    const std::uint64_t carried = own + (look % 3) * 10'000;  // up to 2% of what is carried between two looks
    const auto said = looks.look({{kOne, at(own)}}, {{"eth0", {{carried, carried}, {own, own}}}});
    if (look > 20) {
      EXPECT_TRUE(said.empty());
    }
  }
}

TEST(FairShares, ADriverThatCountsOnceASecondIsNotBelieved) {
  Looks looks;
  const auto at = [](std::uint64_t bytes) { return FairShares::Share{{bytes, bytes}, "eth0"}; };
  std::uint64_t own = 0, carried = 0;
  for (int look = 0; look < 100; ++look, own += 1'000'000) {
    if (look % 4 == 0) carried = own;
    const auto said = looks.look({{kOne, at(own)}}, {{"eth0", {{carried, carried}, {own, own}}}});
    EXPECT_TRUE(said.empty()) << look;
  }
}

TEST(FairShares, AJobThatBeginsIsNoOtherTraffic) {
  Looks looks;
  const auto at = [](std::uint64_t bytes) { return FairShares::Share{{bytes, bytes}, "eth0"}; };
  looks.look({{kOne, at(0)}}, {{"eth0", {}}});
  EXPECT_TRUE(looks
                  .look({{kOne, at(1'000'000)}, {kOther, at(5'000'000)}},
                        {{"eth0", {{6'000'000, 6'000'000}, {6'000'000, 6'000'000}}}})
                  .empty());
}

}  // namespace
}  // namespace netfold::switching
