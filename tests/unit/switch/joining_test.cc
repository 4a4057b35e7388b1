// Joining a job: which workers are admitted, which are refused with which reason, and the granted values.
#include "conversation.h"

namespace netfold::switching {
using namespace membership;
using namespace control;
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Error& expect_failed(Conversation& c, ConnectionId id) {
  EXPECT_EQ(c.state(id), WorkerSide::State::kFailed);
  return c.worker(id).error();
}

TEST(Joining, AdmitsAJobWhenAllRanksAreHere) {
  Conversation c;
  const auto one = c.join(Conversation::worker("a", 3, 1));
  EXPECT_EQ(c.state(one), WorkerSide::State::kWaiting);
  EXPECT_THAT(c.worker(one).missing_ranks(), ElementsAre(0, 2));
  const auto zero = c.join(Conversation::worker("a", 3, 0));
  c.pass(kSecond + 1);
  EXPECT_THAT(c.worker(one).missing_ranks(), ElementsAre(2)) << "told at the next heartbeat";
  EXPECT_TRUE(c.admissions().empty());
  const auto two = c.join(Conversation::worker("a", 3, 2));
  for (const auto id : {zero, one, two}) EXPECT_TRUE(c.admitted(id));

  ASSERT_EQ(c.admissions().size(), 1u);
  const AdmitJob& admitted = c.admissions()[0];
  EXPECT_EQ(admitted.workers[1].ip, 0x0a000100u + one);
  EXPECT_EQ(admitted.workers[1].port, 6001);
  const wire::Lease& lease = c.worker(two).lease();
  EXPECT_EQ(lease.job, admitted.lease.job);
  EXPECT_EQ(lease.epoch, admitted.lease.epoch);
  EXPECT_EQ(lease.world, 3);
  EXPECT_EQ(lease.slots, 1024u);
  EXPECT_EQ(lease.shards, 2);
  EXPECT_EQ(lease.payload_bytes, 1456);
  EXPECT_FALSE(lease.keys);
  EXPECT_THAT(c.worker(two).udp_ports(), ElementsAre(5000, 5001));
}

TEST(Joining, AJobOfOneNeedsNobody) {
  Conversation c;
  EXPECT_TRUE(c.admitted(c.join(Conversation::worker("alone", 1, 0))));
}

TEST(Joining, TheSmallestMtuSetsThePayload) {
  const auto payload = [](std::uint32_t first, std::uint32_t second) {
    Conversation c;
    auto zero = Conversation::worker("a", 2, 0), one = Conversation::worker("a", 2, 1);
    zero.join.mtu = first;
    one.join.mtu = second;
    c.join(zero);
    return c.worker(c.join(one)).lease().payload_bytes;
  };
  EXPECT_EQ(payload(1500, 9000), 1456);
  EXPECT_EQ(payload(9000, 1500), 1456);
  EXPECT_EQ(payload(9000, 9000), 8192);
  EXPECT_EQ(payload(65536, 65536), 8192);
  EXPECT_EQ(payload(1501, 1503), 1456) << "whole elements";
  EXPECT_EQ(payload(256, 1500), 212);
}

TEST(Joining, TheLargestWindowSetsTheSlots) {
  const auto slots = [](std::uint32_t first, std::uint32_t second) {
    Conversation c;
    auto zero = Conversation::worker("a", 2, 0), one = Conversation::worker("a", 2, 1);
    zero.join.window = first;
    one.join.window = second;
    c.join(zero);
    return c.worker(c.join(one)).lease().slots;
  };
  EXPECT_EQ(slots(0, 0), 1024u) << "1.5 MiB of payloads of 1456 bytes";
  EXPECT_EQ(slots(100, 0), 512u);
  EXPECT_EQ(slots(0, 1000), 4096u);
  EXPECT_EQ(slots(1, 1), 64u);
  EXPECT_EQ(slots(65536, 3), 65536u);
}

TEST(Joining, SeveralJobsLiveSideBySide) {
  Conversation c;
  std::vector<ConnectionId> ids;
  for (const std::uint16_t rank : {0, 1}) {
    for (const char* job : {"a", "b", "c"}) ids.push_back(c.join(Conversation::worker(job, 2, rank)));
  }
  for (const auto id : ids) EXPECT_TRUE(c.admitted(id));
  EXPECT_EQ(c.running().size(), 3u);
  c.cut(ids[0]);
  EXPECT_EQ(expect_failed(c, ids[3]).code, ErrorCode::kPeerFailed);
  c.pass(20 * kSecond);
  for (const auto i : {1, 2, 4, 5}) EXPECT_TRUE(c.admitted(ids[static_cast<std::size_t>(i)])) << "not its business";
}

TEST(Joining, AnEpochIsNeverUsedAgain) {
  SwitchRules rules = Conversation::plain_rules();
  rules.first_epoch = 65535;
  Conversation c(rules);
  std::vector<std::uint16_t> epochs;
  for (int i = 0; i < 3; ++i) {
    const auto id = c.join(Conversation::worker("a", 1, 0));
    epochs.push_back(c.worker(id).lease().epoch);
    c.leave(id);
  }
  EXPECT_THAT(epochs, ElementsAre(65535, 0, 1));
}

TEST(Joining, RefusesARankThatIsTaken) {
  Conversation c;
  const auto first = c.join(Conversation::worker("a", 3, 1));
  const auto second = c.join(Conversation::worker("a", 3, 1));
  const Error& error = expect_failed(c, second);
  EXPECT_EQ(error.code, ErrorCode::kRefused);
  EXPECT_EQ(error.rank, 1);
  EXPECT_THAT(error.message, AllOf(HasSubstr("box:7171"), HasSubstr("rank 1"), HasSubstr("'a'")));
  EXPECT_EQ(c.worker(second).retry_s(), 6.0) << "the first may be dead and not yet noticed";
  EXPECT_EQ(c.state(first), WorkerSide::State::kWaiting) << "the first stays";
}

TEST(Joining, RefusesOtherWorldsAndShapes) {
  Conversation c;
  c.join(Conversation::worker("a", 4, 0));
  const Error& world = expect_failed(c, c.join(Conversation::worker("a", 8, 3)));
  EXPECT_EQ(world.code, ErrorCode::kMismatch);
  EXPECT_THAT(world.message, AllOf(HasSubstr("rank 3"), HasSubstr("8 workers"), HasSubstr("rank 0 said 4")));
  auto request = Conversation::worker("a", 4, 2);
  request.join.bfp = {32, 5};
  const Error& shape = expect_failed(c, c.join(request));
  EXPECT_EQ(shape.code, ErrorCode::kMismatch);
  EXPECT_THAT(shape.message, HasSubstr("block 32, mantissa 5"));
}

TEST(Joining, RefusesANameThatRuns) {
  Conversation c;
  c.join(Conversation::worker("a", 2, 0));
  const auto one = c.join(Conversation::worker("a", 2, 1));
  const auto again = c.join(Conversation::worker("a", 2, 0));
  EXPECT_THAT(expect_failed(c, again).message, HasSubstr("running already"));
  EXPECT_GT(c.worker(again).retry_s(), 0);
  EXPECT_TRUE(c.admitted(one)) << "the running job does not notice";
}

TEST(Joining, TheNextLifeOfANameFormsWhileTheFormerEnds) {
  Conversation c;
  const auto zero = c.join(Conversation::worker("a", 2, 0));
  const auto one = c.join(Conversation::worker("a", 2, 1));
  const auto epoch = c.worker(one).lease().epoch;
  c.leave(zero);
  const auto zero_again = c.join(Conversation::worker("a", 2, 0));
  EXPECT_EQ(c.state(zero_again), WorkerSide::State::kWaiting);
  EXPECT_TRUE(c.admitted(one));
  EXPECT_EQ(expect_failed(c, c.join(Conversation::worker("a", 2, 1))).code, ErrorCode::kRefused) << "it has not left";
  c.leave(one);
  const auto one_again = c.join(Conversation::worker("a", 2, 1));
  EXPECT_TRUE(c.admitted(zero_again));
  EXPECT_TRUE(c.admitted(one_again));
  EXPECT_NE(c.worker(one_again).lease().epoch, epoch);
}

TEST(Joining, RefusesMoreJobsThanAllowedWithBothNumbers) {
  SwitchRules rules = Conversation::plain_rules();
  rules.jobs_max = 2;
  Conversation c(rules);
  c.join(Conversation::worker("a", 2, 0));
  const auto b = c.join(Conversation::worker("b", 1, 0));
  const Error& error = expect_failed(c, c.join(Conversation::worker("c", 1, 0)));
  EXPECT_EQ(error.code, ErrorCode::kRefused);
  EXPECT_THAT(error.message, AllOf(HasSubstr("2 jobs"), HasSubstr("2 at most"), HasSubstr("take more jobs")));
  c.leave(b);
  EXPECT_TRUE(c.admitted(c.join(Conversation::worker("c", 1, 0))));
}

TEST(Joining, GivesFewerSlotsAndThenRefusesWhenMemoryIsShort) {
  SwitchRules rules = Conversation::plain_rules();
  rules.memory_max_bytes = std::size_t{200} * 1456 * 3;  // two workers: 128 slots fit, and then 64, but no more
  Conversation c(rules);
  c.join(Conversation::worker("a", 2, 0));
  EXPECT_EQ(c.worker(c.join(Conversation::worker("a", 2, 1))).lease().slots, 128u);
  EXPECT_THAT(c.log(), ::testing::Contains(HasSubstr("128 of the 1024 slots")));
  c.join(Conversation::worker("b", 2, 0));
  const auto b = c.join(Conversation::worker("b", 2, 1));
  EXPECT_EQ(c.worker(b).lease().slots, 64u);
  const Error& error = expect_failed(c, c.join(Conversation::worker("c", 2, 0)));
  EXPECT_EQ(error.code, ErrorCode::kRefused);
  EXPECT_THAT(error.message, AllOf(HasSubstr("0.27 MiB"), HasSubstr("0.83 MiB"), HasSubstr("more memory for jobs")));
}

TEST(Joining, AReservedJobIsAdmittedThoughOthersTookTheRest) {
  SwitchRules rules = Conversation::plain_rules();
  rules.memory_max_bytes = std::size_t{640} * 1456 * 3;
  Conversation c(rules);
  auto zero = Conversation::worker("a", 2, 0), one = Conversation::worker("a", 2, 1);
  zero.join.window = 128;
  c.join(zero);  // reserves 512 slots
  EXPECT_EQ(c.worker(c.join(Conversation::worker("b", 1, 0))).lease().slots, 128u);
  one.join.window = 4096;  // more than is left
  EXPECT_EQ(c.worker(c.join(one)).lease().slots, 512u);
}

TEST(Joining, AWorkerThatGoesWhileWaitingMayComeAgain) {
  Conversation c;
  const auto zero = c.join(Conversation::worker("a", 2, 0));
  c.cut(c.join(Conversation::worker("b", 2, 0)));
  EXPECT_EQ(c.table().jobs().size(), 1u) << "a job without workers is forgotten";
  const auto one = c.join(Conversation::worker("a", 3, 1));
  EXPECT_EQ(expect_failed(c, one).code, ErrorCode::kMismatch);
  c.cut(zero);
  const auto one_again = c.join(Conversation::worker("a", 3, 1));
  EXPECT_EQ(c.state(one_again), WorkerSide::State::kWaiting) << "nothing of the first attempt is left";
  c.leave(one_again, Error{ErrorCode::kSystem, "changed its mind"});
  EXPECT_TRUE(c.table().jobs().empty());
}

TEST(Joining, RankZeroMaySayHowTheJobSharesItsTensors) {
  Conversation c;
  const SharedWork shared{0.2, 3e6, 24e6};
  const auto zero = c.join(Conversation::worker("a", 2, 0)), one = c.join(Conversation::worker("a", 2, 1));
  EXPECT_FALSE(c.table().jobs().front().shared);
  c.say(one, Heartbeat{shared});
  EXPECT_FALSE(c.table().jobs().front().shared) << "the others do not decide";
  c.say(zero, Heartbeat{shared});
  EXPECT_EQ(c.table().jobs().front().shared, shared);
  c.say(zero, Heartbeat{});
  EXPECT_EQ(c.table().jobs().front().shared, shared);
}

TEST(Joining, EndsWhenTheFirstWorkerHasWaitedLongEnough) {
  Conversation c;
  auto zero = Conversation::worker("a", 4, 0), two = Conversation::worker("a", 4, 2);
  zero.join.timeout_s = 100;
  two.join.timeout_s = 5;
  const auto zero_id = c.join(zero);
  const auto two_id = c.join(two);
  c.pass(4900 * kMillisecond);
  EXPECT_EQ(c.state(zero_id), WorkerSide::State::kWaiting);
  c.pass(200 * kMillisecond);
  for (const auto id : {zero_id, two_id}) {
    const Error& error = expect_failed(c, id);
    EXPECT_EQ(error.code, ErrorCode::kTimeout);
    EXPECT_EQ(error.rank, 1);
    EXPECT_THAT(error.message, AllOf(HasSubstr("ranks 1, 3"), HasSubstr("5 s"), HasSubstr("rank 2")));
  }
  EXPECT_TRUE(c.table().jobs().empty());
}

TEST(Joining, StrangersHaveTenSeconds) {
  Conversation c;
  const auto silent = c.open();
  c.pass(9 * kSecond);
  EXPECT_TRUE(c.is_open(silent));
  c.pass(2 * kSecond);
  EXPECT_FALSE(c.is_open(silent));
  EXPECT_EQ(std::get<Refused>(c.last(silent)).code, ErrorCode::kTimeout);
}

TEST(Joining, GarbageAndOutOfTurnMessagesAreRefused) {
  Conversation c;
  const std::vector<std::string> lines = {"",
                                          "GET / HTTP/1.1",
                                          "{}",
                                          R"({"type":"admitted"})",
                                          "\x16\x03\x01",
                                          R"({"type":"left","rank":0})",
                                          R"({"type":"heartbeat"})"};
  for (const std::string& line : lines) {
    const auto id = c.open();
    c.say(id, line);
    EXPECT_FALSE(c.is_open(id)) << line;
    EXPECT_EQ(std::get<Refused>(c.last(id)).code, ErrorCode::kInvalidArgument);
  }
  const auto other_version = c.open();
  c.say(other_version, R"({"type":"join","version":2})");
  EXPECT_THAT(std::get<Refused>(c.last(other_version)).reason, AllOf(HasSubstr("version 2"), HasSubstr("version 1")));
  const auto twice = c.join(Conversation::worker("a", 2, 0));
  c.say(twice, Join{kControlVersion, "a", 2, 1, 1, 1500, {}, 0, 30, {}, {}, {}});
  EXPECT_FALSE(c.is_open(twice));
  EXPECT_EQ(c.table().counters().joins_refused, lines.size() + 1);
}

// The switch was installed anew before its workers.
TEST(Joining, AWorkerJoinsASwitchThatIsOneVersionAhead) {
  WorkerSide worker(Conversation::worker("a", 1, 0), 0);
  worker.on_line(R"({"type":"hello","version":2,"oldest_version":1,"nonce":"00000000000000000000000000000000",)"
                 R"("auth":false,"tagged":false,"heartbeat_s":1,"since_version_2":true})",
                 0);
  EXPECT_EQ(worker.state(), WorkerSide::State::kWaiting);
  EXPECT_THAT(worker.take_output(), HasSubstr(R"("version":1,)"));
  WorkerSide older(Conversation::worker("a", 1, 0), 0);
  older.on_line(R"({"type":"hello","version":3,"oldest_version":2})", 0);
  ASSERT_EQ(older.state(), WorkerSide::State::kFailed);
  EXPECT_EQ(older.error().code, ErrorCode::kRefused);
  EXPECT_THAT(older.error().message, HasSubstr("speaks version 3"));
}

// Frames that are folded on their way come from the address that they were sent to.
TEST(Joining, AWorkerLearnsFromWhichAddressASocketsDataComes) {
  for (const bool folds_on_the_way : {false, true}) {
    SwitchRules rules = Conversation::plain_rules();
    rules.folds_on_the_way = folds_on_the_way;
    Conversation c(std::move(rules));
    const auto zero = c.join(Conversation::worker("a", 2, 0), 0x0a000005);
    const auto one = c.join(Conversation::worker("a", 2, 1));
    EXPECT_EQ(c.worker(zero).data_ip().value_or(0), folds_on_the_way ? 0u : 0x0a000005u);
    EXPECT_FALSE(c.worker(one).data_ip()) << "it has reached that address";
  }
}

// To parse a long line takes the thread that also sends the members' heartbeats.
TEST(Joining, AStrangerMaySayOneShortLine) {
  Conversation c;
  const auto id = c.open();
  c.say(id, std::string(60'000, '['));
  EXPECT_FALSE(c.is_open(id));
  EXPECT_THAT(std::get<Refused>(c.last(id)).reason, HasSubstr("at most 1024 bytes"));

  WorkerRequest longest = Conversation::worker(std::string(kJobNameBytesMax, 'x'), kWorldMax, kWorldMax - 1);
  longest.join.proof.emplace();
  longest.join.token.emplace();
  longest.join.timeout_s = 12345.678901234567;
  longest.join.is_hosted = true;
  EXPECT_LT(emit(longest.join).size(), kJoinBytesMax);
}

}  // namespace
}  // namespace netfold::switching
