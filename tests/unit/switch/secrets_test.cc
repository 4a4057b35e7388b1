// Secrets, from both sides of the conversation.
#include "conversation.h"

namespace netfold::switching {
using namespace membership;
using namespace control;
namespace {

using ::testing::HasSubstr;

SwitchRules rules_with(const char* secret, bool tagged) {
  SwitchRules rules = Conversation::plain_rules();
  rules.secret = Secret::from(secret);
  rules.tagged = tagged;
  return rules;
}

WorkerRequest worker_with(const char* secret, std::uint16_t world, std::uint16_t rank) {
  WorkerRequest request = Conversation::worker("a", world, rank);
  request.secret = Secret::from(secret);
  return request;
}

TEST(Secrets, ThatAgreeGiveAllWorkersOneTagKey) {
  Conversation c(rules_with("sesame", true));
  const auto zero = c.join(worker_with("sesame", 2, 0));
  const auto one = c.join(worker_with("sesame", 2, 1));
  ASSERT_TRUE(c.admitted(zero) && c.admitted(one));
  ASSERT_TRUE(c.worker(zero).lease().keys);
  EXPECT_EQ(c.worker(zero).lease().keys, c.worker(one).lease().keys);
  EXPECT_EQ(c.worker(zero).lease().keys, c.admissions()[0].lease.keys);
  EXPECT_EQ(c.worker(zero).lease().payload_bytes, 1440) << "room for the tag";
}

TEST(Secrets, WithoutTagsOnlyGuardTheDoor) {
  Conversation c(rules_with("sesame", false));
  const auto id = c.join(worker_with("sesame", 1, 0));
  ASSERT_TRUE(c.admitted(id));
  EXPECT_FALSE(c.worker(id).lease().keys);
  EXPECT_EQ(c.worker(id).lease().payload_bytes, 1456);
}

TEST(Secrets, ThatAreWrongOrMissingAreRefused) {
  Conversation c(rules_with("sesame", true));
  const auto wrong = c.join(worker_with("open", 1, 0));
  EXPECT_EQ(c.worker(wrong).error().code, ErrorCode::kAuth);
  EXPECT_THAT(c.worker(wrong).error().message, HasSubstr("another secret than the switch"));
  const auto none = c.join(Conversation::worker("a", 1, 0));
  EXPECT_EQ(c.worker(none).error().code, ErrorCode::kAuth);
  EXPECT_THAT(c.worker(none).error().message, HasSubstr("asks for a secret"));
  const auto bare = c.open();
  c.say(bare, Join{kControlVersion, "a", 1, 0, 1, 1500, {}, 0, 30, {}, {}, {}});
  EXPECT_EQ(std::get<Refused>(c.last(bare)).code, ErrorCode::kAuth);
  EXPECT_TRUE(c.table().jobs().empty()) << "no memory for strangers";
}

TEST(Secrets, AProofDoesNotWorkOnAnotherConnection) {
  Conversation c(rules_with("sesame", true));
  const auto first = c.open();
  Join join{kControlVersion, "a", 2, 0, 1, 1500, {}, 0, 30, {}, {}, {}};
  join.proof = Secret::from("sesame")->join_proof(std::get<Hello>(c.last(first)).nonce, join);
  const auto second = c.open();
  c.say(second, join);
  EXPECT_EQ(std::get<Refused>(c.last(second)).code, ErrorCode::kAuth);
  c.say(first, join);
  EXPECT_TRUE(std::holds_alternative<Waiting>(c.last(first)));
}

TEST(Secrets, OfAJobWhereTheSwitchHasNone) {
  Conversation c;
  c.join(worker_with("ours", 3, 0));
  for (const char* other : {"theirs", ""}) {
    const auto id = c.join(worker_with(other, 3, 1));
    EXPECT_EQ(c.worker(id).error().code, ErrorCode::kAuth);
  }
  c.join(worker_with("ours", 3, 1));
  EXPECT_TRUE(c.admitted(c.join(worker_with("ours", 3, 2))));
}

// ---- A worker must not believe a switch that does not know the secret
// ------------------------------------------------

WorkerSide greeted_worker(const char* secret, bool auth, bool tagged, bool require_auth = false) {
  WorkerRequest request = worker_with(secret, 1, 0);
  request.require_auth = require_auth;
  WorkerSide worker(request, 0);
  worker.on_line(emit(Hello{kControlVersion, {}, auth, tagged, 1}), 0);
  return worker;
}

TEST(Secrets, AWorkerChecksTheSwitch) {
  const Admitted unproven{1, 2, 512, 1440, {5}, true, {}, {}};
  WorkerSide a = greeted_worker("sesame", true, true);
  a.on_line(emit(unproven), 0);
  ASSERT_EQ(a.state(), WorkerSide::State::kFailed);
  EXPECT_EQ(a.error().code, ErrorCode::kAuth);

  Admitted forged = unproven;
  forged.proof = Secret::from("guess")->admit_proof({}, forged);
  WorkerSide b = greeted_worker("sesame", true, true);
  b.on_line(emit(forged), 0);
  EXPECT_EQ(b.state(), WorkerSide::State::kFailed);

  Admitted changed = unproven;
  changed.proof = Secret::from("sesame")->admit_proof({}, unproven);
  changed.udp_ports = {6};
  WorkerSide d = greeted_worker("sesame", true, true);
  d.on_line(emit(changed), 0);
  EXPECT_EQ(d.state(), WorkerSide::State::kFailed) << "a port was changed on the way";

  Admitted right = unproven;
  right.proof = Secret::from("sesame")->admit_proof({}, right);
  WorkerSide e = greeted_worker("sesame", true, true);
  e.on_line(emit(right), 0);
  EXPECT_EQ(e.state(), WorkerSide::State::kAdmitted);
}

TEST(Secrets, AWorkerMayInsistOnTags) {
  for (const bool auth : {false, true}) {
    WorkerSide worker = greeted_worker("sesame", auth, false, true);
    ASSERT_EQ(worker.state(), WorkerSide::State::kFailed);
    EXPECT_EQ(worker.error().code, ErrorCode::kAuth);
    EXPECT_THAT(worker.error().message, HasSubstr("so that it authenticates them"));
  }
}

TEST(Secrets, TagsWithoutASecretMakeNoSense) {
  WorkerSide worker = greeted_worker("", false, false);
  worker.on_line(emit(Admitted{1, 2, 512, 1440, {5}, true, {}, {}}), 0);
  ASSERT_EQ(worker.state(), WorkerSide::State::kFailed);
  EXPECT_EQ(worker.error().code, ErrorCode::kAuth);
}

}  // namespace
}  // namespace netfold::switching
