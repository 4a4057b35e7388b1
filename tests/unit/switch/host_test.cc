// The host of a job: it joins as one, is told where the workers are told to send, and changes nothing when it goes.
#include "conversation.h"

namespace netfold::switching {
using namespace membership;
using namespace control;
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kFirstIp = 0x0a000101;  // of the first connection (Conversation::join)

TEST(Host, JoinsWhileTheJobFormsAndIsAdmittedWithIt) {
  for (const bool folds_on_the_way : {false, true}) {
    SwitchRules rules = Conversation::plain_rules();
    rules.folds_on_the_way = folds_on_the_way;
    rules.secret = Secret::from("sesame");
    Conversation c(rules);
    const auto with_secret = [](WorkerRequest request) {
      request.secret = Secret::from("sesame");
      return request;
    };
    const auto host = c.join(with_secret(Conversation::host("a", 2)));
    EXPECT_EQ(c.state(host), WorkerSide::State::kWaiting);
    const auto zero = c.join(with_secret(Conversation::worker("a", 2, 0)));
    EXPECT_FALSE(c.admitted(host)) << "a host is not a worker";
    const auto one = c.join(with_secret(Conversation::worker("a", 2, 1)));
    for (const auto id : {host, zero, one}) ASSERT_TRUE(c.admitted(id));
    ASSERT_TRUE(c.admissions()[0].host);
    EXPECT_EQ(c.admissions()[0].host->ip, kFirstIp);
    EXPECT_EQ(c.admissions()[0].host->port, 5999);
    EXPECT_EQ(c.worker(zero).data_ip(), folds_on_the_way ? std::optional(kFirstIp) : std::nullopt);
    EXPECT_FALSE(c.worker(host).data_ip()) << "the host asks the switch";
    EXPECT_EQ(c.worker(host).lease().first_chunk, c.worker(one).lease().first_chunk);
  }
}

TEST(Host, IsOneAJobAndComesInTime) {
  Conversation c;
  const auto first = c.join(Conversation::host("a", 1));
  const auto second = c.join(Conversation::host("a", 1));
  EXPECT_THAT(c.worker(second).error().message, HasSubstr("has a host already, at 10.0.1.1"));
  EXPECT_GT(c.worker(second).retry_s(), 0);
  c.join(Conversation::worker("a", 1, 0));
  const auto third = c.join(Conversation::host("a", 1));
  EXPECT_THAT(c.worker(third).error().message, HasSubstr("before the last of its workers"));
  EXPECT_TRUE(c.admitted(first));
}

TEST(Host, IsWaitedForIfAWorkerSaysSo) {
  Conversation c;
  auto request = Conversation::worker("a", 2, 0);
  request.join.is_hosted = true;
  request.join.timeout_s = 3;
  const auto hosted = c.join(request);
  c.join(Conversation::worker("a", 2, 1));
  EXPECT_EQ(c.state(hosted), WorkerSide::State::kWaiting);
  c.join(Conversation::host("a", 2));
  EXPECT_TRUE(c.admitted(hosted));
  EXPECT_TRUE(c.admissions().back().host);

  request.join.job = "b";
  const auto alone = c.join(request);
  c.join(Conversation::worker("b", 2, 1));
  c.pass(4 * kSecond);
  EXPECT_EQ(c.worker(alone).error().code, ErrorCode::kTimeout);
  EXPECT_THAT(c.worker(alone).error().message, HasSubstr("the host of job 'b' did not join within the 3 s"));
}

TEST(Host, AgreesWithItsWorkers) {
  Conversation c;
  c.join(Conversation::host("a", 3));
  const auto worker = c.join(Conversation::worker("a", 2, 0));
  EXPECT_THAT(c.worker(worker).error().message, HasSubstr("rank 0 says that job 'a' has 2 workers, the host said 3"));
}

TEST(Host, ThatGoesEndsNoJob) {
  Conversation c;
  const auto forming = c.join(Conversation::host("a", 1));
  c.cut(forming);
  EXPECT_TRUE(c.table().jobs().empty()) << "nobody is left";
  const auto host = c.join(Conversation::host("a", 1));
  const auto worker = c.join(Conversation::worker("a", 1, 0));
  c.cut(host);
  c.pass(10 * kSecond);
  EXPECT_TRUE(c.admitted(worker));
  EXPECT_EQ(c.running().size(), 1u);
}

TEST(Host, IsToldWhenTheJobIsOver) {
  for (const bool cleanly : {true, false}) {
    Conversation c;
    const auto host = c.join(Conversation::host("a", 1));
    const auto worker = c.join(Conversation::worker("a", 1, 0));
    cleanly ? c.leave(worker) : c.cut(worker);
    ASSERT_EQ(c.state(host), WorkerSide::State::kFailed);
    EXPECT_EQ(c.worker(host).error().code, ErrorCode::kPeerFailed);
    EXPECT_EQ(c.worker(host).error().rank, cleanly ? kNoRank : 0);
    EXPECT_FALSE(c.is_open(host));
    EXPECT_TRUE(c.running().empty());
  }
}

TEST(Host, ThatWaitsAloneHearsWhoIsMissing) {
  Conversation c;
  auto request = Conversation::host("a", 2);
  request.join.timeout_s = 3;
  const auto host = c.join(request);
  c.pass(4 * kSecond);
  EXPECT_EQ(c.worker(host).error().code, ErrorCode::kTimeout);
  EXPECT_THAT(c.worker(host).error().message, HasSubstr("within the 3 s that the host waits"));
  EXPECT_TRUE(c.table().jobs().empty());
}

}  // namespace
}  // namespace netfold::switching
