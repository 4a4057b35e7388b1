// How workers, jobs and the switch end, and who hears of it.
#include "conversation.h"

namespace netfold::switching {
using namespace membership;
using namespace control;
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Running : ::testing::Test {
  Running() {
    for (std::uint16_t rank = 0; rank < 4; ++rank) ids.push_back(c.join(Conversation::worker("a", 4, rank)));
    EXPECT_TRUE(c.admitted(ids[3]));
  }

  // Ranks 0, 1, ... except `gone` have failed with this code, rank and words.
  void expect_survivors_told(int gone, ErrorCode code, int rank, const std::string& words) {
    for (int i = 0; i < 4; ++i) {
      if (i == gone) continue;
      const WorkerSide& worker = c.worker(ids[static_cast<std::size_t>(i)]);
      ASSERT_EQ(worker.state(), WorkerSide::State::kFailed) << "rank " << i;
      EXPECT_EQ(worker.error().code, code);
      EXPECT_EQ(worker.error().rank, rank);
      EXPECT_THAT(worker.error().message, HasSubstr(words));
    }
    EXPECT_TRUE(c.running().empty()) << "evicted";
    EXPECT_TRUE(c.table().jobs().empty());
    EXPECT_EQ(c.table().memory_bytes(), 0u);
  }

  Conversation c;
  std::vector<ConnectionId> ids;
};

TEST_F(Running, AJobLivesAsLongAsItsHeartbeats) {
  c.pass(1000 * kSecond);
  for (const auto id : ids) EXPECT_TRUE(c.admitted(id));
}

TEST_F(Running, AWorkerThatDiesFailsTheSurvivors) {
  c.cut(ids[2]);
  expect_survivors_told(2, ErrorCode::kPeerFailed, 2, "rank 2 of job 'a' lost its connection");
  EXPECT_EQ(c.table().counters().jobs_failed, 1u);
}

TEST_F(Running, AWorkerThatFallsSilentFailsTheSurvivorsWithinFiveHeartbeats) {
  c.mute(ids[1]);
  c.pass(3 * kSecond);
  EXPECT_TRUE(c.admitted(ids[0]));
  c.pass(2100 * kMillisecond);
  expect_survivors_told(1, ErrorCode::kPeerFailed, 1, "rank 1 of job 'a' has been silent for 4 s");
  EXPECT_THAT(c.worker(ids[1]).error().message, HasSubstr("this worker, rank 1")) << "it is told too";
}

TEST_F(Running, AWorkerThatLeavesWithAnErrorFailsTheSurvivors) {
  c.leave(ids[0], Error{ErrorCode::kTimeout, "waited 30 s for rank 3", 3});
  expect_survivors_told(0, ErrorCode::kPeerFailed, 3, "rank 0 of job 'a' gave up: waited 30 s for rank 3");
}

TEST_F(Running, ALeaverWhoBlamesNobodyIsToBlame) {
  c.leave(ids[0], Error{ErrorCode::kSystem, "its disk is full"});
  expect_survivors_told(0, ErrorCode::kPeerFailed, 0, "its disk is full");
}

TEST_F(Running, ALeaverCannotBlameARankThatDoesNotExist) {
  c.leave(ids[0], Error{ErrorCode::kTimeout, "x", 900});
  expect_survivors_told(0, ErrorCode::kPeerFailed, 0, "x");
}

TEST_F(Running, ACleanLeaveFailsNobodyAndIsTold) {
  c.leave(ids[2]);
  for (const int i : {0, 1, 3}) {
    EXPECT_TRUE(c.admitted(ids[static_cast<std::size_t>(i)]));
    EXPECT_THAT(c.worker(ids[static_cast<std::size_t>(i)]).left_ranks(), ElementsAre(2));
  }
  EXPECT_EQ(c.running().size(), 1u) << "results are still there to be fetched";
  EXPECT_FALSE(c.is_open(ids[2]));
  c.leave(ids[0]);
  c.leave(ids[1]);
  EXPECT_THAT(c.worker(ids[3]).left_ranks(), ElementsAre(0, 1, 2));
  c.leave(ids[3]);
  EXPECT_TRUE(c.running().empty());
  EXPECT_EQ(c.table().counters().jobs_finished, 1u);
}

TEST_F(Running, ADeathAfterACleanLeaveStillFailsTheRest) {
  c.leave(ids[0]);
  c.cut(ids[1]);
  EXPECT_EQ(c.worker(ids[3]).error().rank, 1);
  EXPECT_TRUE(c.running().empty());
}

TEST_F(Running, WorkersThatDisagreeAllFail) {
  const auto lease = c.admissions()[0].lease;
  c.table().on_mismatch(lease.job, static_cast<std::uint16_t>(lease.epoch + 1), 1, "another life");
  c.settle();
  EXPECT_TRUE(c.admitted(ids[0])) << "news of an epoch that is over";
  c.table().on_mismatch(lease.job, lease.epoch, 1, "ranks 0 and 1 fold different counts");
  c.settle();
  expect_survivors_told(-1, ErrorCode::kMismatch, 1, "ranks 0 and 1 fold different counts");
}

TEST_F(Running, BytesThatAreNoMessageAreTheWorkersEnd) {
  c.say(ids[3], std::string("rubbish"));
  EXPECT_EQ(c.worker(ids[3]).error().code, ErrorCode::kInvalidArgument);
  expect_survivors_told(3, ErrorCode::kPeerFailed, 3, "not a control message");
}

TEST_F(Running, ASwitchThatStopsTellsEverybody) {
  const auto waiting = c.join(Conversation::worker("b", 2, 0));
  const auto stranger = c.open();
  c.table().on_stop("the switch was stopped");
  c.settle();
  expect_survivors_told(-1, ErrorCode::kSwitchFailed, kNoRank, "box:7171 says: the switch was stopped");
  EXPECT_EQ(c.worker(waiting).error().code, ErrorCode::kSwitchFailed);
  EXPECT_FALSE(c.is_open(stranger));
}

TEST_F(Running, ASwitchThatDrainsTakesNoNewJobAndLetsRunningOnesEnd) {
  const auto waiting = c.join(Conversation::worker("b", 2, 0));
  c.table().on_drain(c.now() + 60 * kSecond);
  c.settle();
  EXPECT_THAT(c.worker(waiting).error().message, HasSubstr("takes no new jobs"));
  const auto late = c.join(Conversation::worker("c", 1, 0));
  EXPECT_EQ(c.worker(late).error().code, ErrorCode::kRefused);
  EXPECT_THAT(c.worker(late).error().message, HasSubstr("takes no new jobs"));
  c.pass(30 * kSecond);
  for (const auto id : ids) EXPECT_TRUE(c.admitted(id));
  EXPECT_FALSE(c.table().is_drained());
  for (const auto id : ids) c.leave(id);
  EXPECT_TRUE(c.table().is_drained());
}

TEST_F(Running, ADrainIsOverWhenItsTimeIs) {
  EXPECT_FALSE(c.table().is_drained());
  c.table().on_drain(c.now() + 10 * kSecond);
  c.pass(9 * kSecond);
  EXPECT_FALSE(c.table().is_drained());
  c.pass(2 * kSecond);
  EXPECT_TRUE(c.table().is_drained());
  for (const auto id : ids) EXPECT_TRUE(c.admitted(id)) << "the server stops the switch, not the table";
}

TEST(Draining, ASwitchWithoutJobsIsDrainedAtOnce) {
  Conversation c;
  c.table().on_drain(kNever);
  EXPECT_TRUE(c.table().is_drained());
}

TEST_F(Running, ASwitchThatWasItselfSuspendedBlamesNobody) {
  for (int i = 0; i < 20; ++i) {
    // A minute without the switch running; the heartbeats of that time are one line in the socket when it wakes up.
    for (const auto id : ids) c.say(id, Heartbeat{});
    c.table().on_time(c.now() + (i + 1) * 60 * kSecond);
    c.settle();
  }
  for (const auto id : ids) EXPECT_TRUE(c.admitted(id));
}

TEST(Worker, FindsOutThatTheSwitchIsSilent) {
  WorkerSide worker(Conversation::worker("a", 2, 0), 0);
  for (Nanoseconds at = 0; at <= 6 * kSecond && worker.state() != WorkerSide::State::kFailed; at += kSecond / 10) {
    worker.on_time(at);
    EXPECT_TRUE(at >= 4 * kSecond || worker.state() != WorkerSide::State::kFailed);
  }
  ASSERT_EQ(worker.state(), WorkerSide::State::kFailed);
  EXPECT_EQ(worker.error().code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(worker.error().message, AllOf(HasSubstr("box:7171"), HasSubstr("silent for 4 s")));
}

TEST(Worker, NamesTheSwitchThatIsGone) {
  WorkerSide worker(Conversation::worker("a", 2, 0), 0);
  worker.on_close("lost its connection: Connection reset by peer");
  EXPECT_EQ(worker.error().code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(worker.error().message, AllOf(HasSubstr("box:7171"), HasSubstr("Connection reset")));
}

TEST(Worker, DoesNotTakeAnotherServerForASwitch) {
  for (const char* line : {"SSH-2.0-OpenSSH_9.2", "HTTP/1.1 400 Bad Request", "220 mail ESMTP"}) {
    WorkerSide worker(Conversation::worker("a", 2, 0), 0);
    worker.on_line(line, 0);
    EXPECT_EQ(worker.error().code, ErrorCode::kSwitchFailed);
    EXPECT_THAT(worker.error().message, HasSubstr("not a Netfold switch"));
  }
}

TEST(Worker, HoldsTheSwitchToItsTurn) {
  const std::vector<Message> early = {Waiting{}, Admitted{0, 0, 1, 4, {7}, false, {}, {}}, Left{1}, Join{}, Leave{}};
  for (const Message& message : early) {
    WorkerSide worker(Conversation::worker("a", 2, 0), 0);
    std::string line = emit(message);
    line.pop_back();
    worker.on_line(line, 0);
    EXPECT_EQ(worker.state(), WorkerSide::State::kFailed) << line;
  }
}

TEST(Worker, SaysNothingAfterItLeft) {
  Conversation c;
  const auto id = c.join(Conversation::worker("a", 1, 0));
  c.leave(id);
  WorkerSide& worker = c.worker(id);
  worker.leave(Error{ErrorCode::kSystem, "again"});
  worker.on_time(c.now() + 100 * kSecond);
  EXPECT_EQ(worker.take_output(), "");
  EXPECT_EQ(worker.deadline(), kNever);
}

}  // namespace
}  // namespace netfold::switching
