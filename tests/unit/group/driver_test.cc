// The driver with a session made for the test: which thread drives, the effects of a failure, and the end, for any
// backend.
#include "group/driver.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "counter.h"
#include "link/descriptor.h"

namespace netfold::group {
namespace {

using ::testing::HasSubstr;

// Finishes a request at the next pump; fails when told to. With `has_afterwork`, something falls due 5 ms later. With
// `never_rests`, it always has something to do, for 3 ms at a time, as simulated hardware has. With `is_quick`, move()
// is enough to finish a request.
class CountingSession final : public Session {
 public:
  struct Shared {
    std::atomic<int> submitted = 0, aborted = 0, left = 0, destroyed = 0;
    std::atomic<bool> fails = false, finishes = true, has_afterwork = false, never_rests = false, is_quick = false;
    std::atomic<int> submits_before_no_memory = 1000;
    std::atomic<bool> has_memory = true;  // to pump and to move
    std::atomic<int> afterwork_done = 0, pumps = 0;
    int data_of_a_peer = -1;                       // readable; of interest only while a request is open
    std::atomic<int> inside = 0, inside_most = 0;  // threads in the session at once
  };

  explicit CountingSession(Shared& shared) : shared_(shared) {}
  ~CountingSession() override { ++shared_.destroyed; }

  Result<bool> pump(Nanoseconds now) override {
    const Inside inside(shared_);
    ++shared_.pumps;
    if (shared_.never_rests) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    time_ = now;
    if (!shared_.has_memory) throw std::bad_alloc();
    if (shared_.fails) return fail(ErrorCode::kPeerFailed, "rank 1 died", 1);
    if (now >= afterwork_at_) {
      afterwork_at_ = kNever;
      ++shared_.afterwork_done;
    }
    if (!shared_.finishes) return false;
    if (!open_.empty() && shared_.has_afterwork) afterwork_at_ = now + 5 * kMillisecond;
    return finish_open() || shared_.never_rests;
  }
  Result<bool> move() override {
    const Inside inside(shared_);
    if (!shared_.has_memory) throw std::bad_alloc();
    return shared_.is_quick && finish_open();
  }
  bool is_quick(const CollectiveRequest&) const override { return shared_.is_quick; }
  void submit(Ticket ticket, const CollectiveRequest&, std::unique_ptr<Prepared>) override {
    const Inside inside(shared_);
    if (shared_.submits_before_no_memory-- <= 0) throw std::bad_alloc();
    ++shared_.submitted;
    open_.push_back(ticket);
  }
  std::vector<Ticket> take_finished() override { return std::exchange(finished_, {}); }
  bool is_idle() const override { return open_.empty(); }
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override {
    if (request.count == 13) return fail(ErrorCode::kInvalidArgument, "13 elements");
    return nullptr;
  }
  std::vector<Ticket> abort(const Error&, Nanoseconds) override {
    const Inside inside(shared_);
    ++shared_.aborted;
    return std::exchange(open_, {});
  }
  bool leave(const std::optional<Error>&, Nanoseconds now) override {
    const Inside inside(shared_);
    ++shared_.left;
    if (leaves_at_ == kNever) leaves_at_ = now + 5 * kMillisecond;
    return now >= leaves_at_;
  }
  Nanoseconds deadline() const override {
    if (leaves_at_ != kNever) return leaves_at_;
    return open_.empty() ? afterwork_at_ : std::min(afterwork_at_, time_ + kMillisecond);
  }
  bool arm() override { return is_armed_ = !open_.empty(), true; }
  void add_polls(std::vector<pollfd>& polls) const override {
    if (is_armed_ && shared_.data_of_a_peer >= 0) polls.push_back({shared_.data_of_a_peer, POLLIN, 0});
  }
  nlohmann::json counters() const override { return {{"submitted", shared_.submitted.load()}}; }

 private:
  struct Inside {
    explicit Inside(Shared& shared) : shared_(shared) {
      const int now = ++shared_.inside;
      int most = shared_.inside_most;
      while (now > most && !shared_.inside_most.compare_exchange_weak(most, now)) {
      }
    }
    ~Inside() { --shared_.inside; }
    Shared& shared_;
  };

  bool finish_open() {
    finished_.insert(finished_.end(), open_.begin(), open_.end());
    open_.clear();
    return !finished_.empty();
  }

  Shared& shared_;
  Nanoseconds time_ = 0, leaves_at_ = kNever, afterwork_at_ = kNever;
  std::vector<Ticket> open_, finished_;
  bool is_armed_ = false;
};

class TestGroup final : public Driver {
 public:
  TestGroup(CountingSession::Shared& shared, bool has_thread, bool submits_at_once = false)
      : Driver({.thread_name = "nf-test",
                .has_thread = has_thread,
                .submits_at_once = submits_at_once,
                .closed = "this test group is closed"}) {
    start(std::make_unique<CountingSession>(shared));
  }
  ~TestGroup() override { close(); }
};

class DriverWithAndWithoutThread : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Thread, DriverWithAndWithoutThread, ::testing::Bool());

TEST_P(DriverWithAndWithoutThread, FinishesWhatManyThreadsSubmitAndOneThreadIsInTheSession) {
  CountingSession::Shared shared;
  TestGroup group(shared, GetParam());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) ASSERT_TRUE(group.run({}));
    });
  }
  for (auto& each : threads) each.join();
  EXPECT_EQ(shared.submitted, 800);
  EXPECT_EQ(shared.inside_most, 1);
  EXPECT_EQ(counter(group, "submitted"), 800);
}

TEST_P(DriverWithAndWithoutThread, ClosedByManyThreadsAtOnceLeavesOnce) {
  for (int round = 0; round < 20; ++round) {
    CountingSession::Shared shared;
    {
      TestGroup group(shared, GetParam());
      ASSERT_TRUE(group.run({}));
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 4; ++thread) threads.emplace_back([&] { group.close(); });
      for (auto& each : threads) each.join();
      EXPECT_EQ(shared.destroyed, 1);
    }
    EXPECT_EQ(shared.aborted, 1);
    EXPECT_GE(shared.left, 2) << "asked again until it is done";
    EXPECT_EQ(shared.inside_most, 1);
  }
}

TEST_P(DriverWithAndWithoutThread, AFailureFailsWhatIsOpenAndWhatComes) {
  CountingSession::Shared shared;
  TestGroup group(shared, GetParam());
  shared.finishes = false;
  const auto first = group.submit_awaited({});
  ASSERT_TRUE(first);
  shared.fails = true;
  const auto completion = group.wait(*first, 5 * kSecond);
  ASSERT_TRUE(completion);
  ASSERT_TRUE(completion->error);
  EXPECT_EQ(completion->error->rank, 1);
  const auto later = group.run({});
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().message, "rank 1 died");
  EXPECT_EQ(shared.aborted, 1);
}

TEST_P(DriverWithAndWithoutThread, ATensorThatIsStillOnItsDeviceHoldsUpThoseAfterIt) {
  CountingSession::Shared shared;
  TestGroup group(shared, GetParam());
  std::uint32_t copied = 0, over = 0;
  CollectiveRequest of_device;
  of_device.words = {&copied, &over, 7};
  const auto first = group.submit(of_device);
  const auto second = group.submit({});
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(group.next_completion(30 * kMillisecond));
  EXPECT_EQ(shared.submitted, 0);
  EXPECT_EQ(std::atomic_ref(over).load(), 0U);
  std::atomic_ref(copied).store(7);
  for (const auto& ticket : {first, second}) {
    const auto completion = group.next_completion(5 * kSecond);
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->ticket, *ticket);
    EXPECT_FALSE(completion->error);
  }
  EXPECT_EQ(std::atomic_ref(over).load(), 7U);
  EXPECT_EQ(shared.submitted, 2);
}

// Otherwise the device would wait forever, with everything that follows in its stream.
TEST_P(DriverWithAndWithoutThread, TheDeviceIsToldOfFailuresToo) {
  for (const bool is_copied : {false, true}) {
    for (const bool closes : {false, true}) {
      CountingSession::Shared shared;
      shared.finishes = false;
      std::uint32_t copied = is_copied ? 1 : 0, over = 0, over_late = 0;
      CollectiveRequest of_device;
      TestGroup group(shared, GetParam());
      of_device.words = {&copied, &over, 1};
      ASSERT_TRUE(group.submit(of_device));
      if (closes) {
        group.close();
      } else {
        shared.fails = true;
        const auto completion = group.next_completion(5 * kSecond);
        ASSERT_TRUE(completion && completion->error);
      }
      EXPECT_EQ(std::atomic_ref(over).load(), 2U);
      of_device.words.over = &over_late;
      ASSERT_TRUE(group.submit(of_device));
      EXPECT_EQ(std::atomic_ref(over_late).load(), 2U) << "a group that has failed";
    }
  }
}

// Every request ends, with the error: those that the session has, the one that it could not take, and those behind it.
TEST_P(DriverWithAndWithoutThread, RefusedMemoryFailsTheGroupAndNotTheProcess) {
  for (const bool is_quick : {false, true}) {
    for (const bool is_refused_at_submit : {false, true}) {
      CountingSession::Shared shared;
      shared.is_quick = is_quick;
      shared.finishes = false;
      shared.submits_before_no_memory = is_refused_at_submit ? 1 : 1000;
      shared.has_memory = is_refused_at_submit;
      TestGroup group(shared, GetParam());
      std::vector<Group::Ticket> tickets;
      for (int i = 0; i < 3; ++i) tickets.push_back(*group.submit_awaited({}));
      for (const Group::Ticket ticket : tickets) {
        const auto completion = group.wait(ticket, 5 * kSecond);
        ASSERT_TRUE(completion && completion->error) << ticket;
        EXPECT_EQ(completion->error->rank, 0);
        EXPECT_THAT(completion->error->message, HasSubstr("rank 0 got no more memory"));
      }
      EXPECT_FALSE(group.run({}));
      EXPECT_EQ(shared.aborted, 1);
    }
  }
}

TEST_P(DriverWithAndWithoutThread, RefusedMemoryFailsAQuickRequest) {
  for (const bool is_refused_at_submit : {false, true}) {
    CountingSession::Shared shared;
    shared.is_quick = true;
    shared.submits_before_no_memory = is_refused_at_submit ? 0 : 1000;
    shared.has_memory = is_refused_at_submit;
    TestGroup group(shared, GetParam());
    const auto done = group.run({});
    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message, HasSubstr("rank 0 got no more memory"));
    EXPECT_FALSE(group.next_completion(0));
  }
}

TEST_P(DriverWithAndWithoutThread, SaysSoAfterClose) {
  CountingSession::Shared shared;
  TestGroup group(shared, GetParam());
  group.close();
  const auto late = group.run({});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, "this test group is closed");
}

TEST_P(DriverWithAndWithoutThread, CloseEndsAWait) {
  CountingSession::Shared shared;
  TestGroup group(shared, GetParam());
  shared.finishes = false;
  const auto ticket = group.submit_awaited({});
  auto waiting = std::async(std::launch::async, [&] { return group.wait(*ticket, 20 * kSecond); });
  group.close();
  const auto completion = waiting.get();
  ASSERT_TRUE(completion);
  EXPECT_TRUE(completion->error);
}

TEST(Driver, RefusesWhatTheSessionRefuses) {
  CountingSession::Shared shared;
  TestGroup group(shared, true);
  CollectiveRequest request;
  request.count = 13;
  EXPECT_EQ(group.submit(request).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(shared.submitted, 0);
}

TEST(Driver, HandsARequestToTheSessionAtOnceWhereNobodyDrives) {
  CountingSession::Shared shared;
  TestGroup group(shared, false, true);
  const auto ticket = group.submit({});
  ASSERT_TRUE(ticket);
  EXPECT_EQ(shared.submitted, 1) << "before anybody waits";
  ASSERT_TRUE(group.next_completion(5 * kSecond));
}

// The driver takes at its next step the requests that move() has finished. A request run in between must leave them.
TEST(Driver, AQuickRequestLeavesTheCompletionsOfEarlierOnes) {
  CountingSession::Shared shared;
  shared.is_quick = true;
  TestGroup group(shared, false, true);
  const auto awaited = group.submit_awaited({});
  ASSERT_TRUE(awaited);
  ASSERT_TRUE(group.run({}));
  const auto completion = group.wait(*awaited, kSecond);
  ASSERT_TRUE(completion);
  EXPECT_FALSE(completion->error);

  const auto any = group.submit({});
  ASSERT_TRUE(group.run({}));
  const auto next = group.next_completion(kSecond);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->ticket, *any);
  EXPECT_FALSE(group.next_completion(0)) << "what run() waited for is not told once more";
}

TEST(Driver, TheThreadGoesOnWithWhatACallerLeaves) {
  CountingSession::Shared shared;
  TestGroup group(shared, true);
  shared.finishes = false;
  const auto ticket = group.submit({});
  EXPECT_FALSE(group.wait(*ticket, 2 * kMillisecond));
  shared.finishes = true;
  ASSERT_TRUE(group.next_completion(5 * kSecond)) << "the thread has finished it";
}

TEST(Driver, CountsWhatIsDoneWhileTheThreadIsBusy) {
  CountingSession::Shared shared;
  shared.never_rests = true;
  TestGroup group(shared, true);
  for (int i = 1; i <= 20; ++i) {
    ASSERT_TRUE(group.submit({}));
    ASSERT_TRUE(group.next_completion(5 * kSecond));
    ASSERT_EQ(counter(group, "submitted"), i);
  }
  shared.never_rests = false;
}

// Data of a faster rank for the next request lie there, and only a request takes them.
TEST(Driver, TheIdleThreadSleepsWhateverItWaitedForBefore) {
  CountingSession::Shared shared;
  const link::Descriptor data(eventfd(1, EFD_CLOEXEC));
  shared.data_of_a_peer = data.get();
  shared.finishes = false;
  TestGroup group(shared, true);
  const auto ticket = group.submit({});
  ASSERT_TRUE(ticket);
  while (shared.pumps < 10) std::this_thread::yield();  // it waits for data
  shared.finishes = true;
  ASSERT_TRUE(group.wait(*ticket, 10 * kSecond));
  const int before = shared.pumps;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LT(shared.pumps - before, 10);
}

// As a packet that the other end has not acknowledged when its sender's own all-reduce is over.
TEST(Driver, TheThreadDoesWhatFallsDueAfterTheLastCallerHasGone) {
  CountingSession::Shared shared;
  shared.has_afterwork = true;
  TestGroup group(shared, true);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(group.run({}));
    const Nanoseconds most = now() + 5 * kSecond;
    while (shared.afterwork_done <= i && now() < most) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(shared.afterwork_done, i + 1);
  }
}

}  // namespace
}  // namespace netfold::group
