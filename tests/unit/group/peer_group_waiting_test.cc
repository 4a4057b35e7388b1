// The thread that waits does the work: callers drive the engine, and its thread continues when they leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "counter.h"
#include "peer_groups.h"

namespace netfold::group {
namespace {

// The number of times that a thread of this process has slept; -1 if no thread has that name.
long sleeps_of(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream name(task.path() / "comm"), status(task.path() / "status");
    std::string word;
    if (!std::getline(name, word) || word != thread) continue;
    while (status >> word) {
      if (long count = 0; word == "voluntary_ctxt_switches:" && status >> count) return count;
    }
  }
  return -1;
}

std::optional<Error> reduce_awaited(PeerGroup& group, std::vector<float>& tensor) {
  const auto ticket = group.submit_awaited(in_place(tensor));
  return ticket ? finish(group, *ticket) : ticket.error();
}

TEST(HostGroupWaiting, WakesNoThreadForWhoWaits) {
  constexpr int kTimes = 2000;
  Groups groups = open_all(2);
  auto tensors = gradients(2, 100);
  const auto reduce_often = [&](std::size_t rank) {
    for (int i = 0; i < kTimes; ++i) ASSERT_FALSE(reduce_awaited(*groups[rank], tensors[rank]));
  };
  long before = -1;
  for (const Nanoseconds deadline = now() + 5 * kSecond; before < 0 && now() < deadline;) {  // it names itself
    before = sleeps_of("nf-rank-0");
  }
  ASSERT_GE(before, 0);
  auto other = std::async(std::launch::async, [&] { reduce_often(1); });
  reduce_often(0);
  other.get();
  EXPECT_LT(sleeps_of("nf-rank-0") - before, kTimes / 10);
}

class Waiting : public ::testing::TestWithParam<bool> {
 protected:
  PeerGroupOptions options() const { return {.shm = GetParam()}; }
};

TEST_P(Waiting, TheThreadGoesOnWithWhatACallerLeaves) {
  for (int time = 0; time < 20; ++time) {
    Groups groups = open_all(2, options());
    auto tensors = gradients(2, 300'000);
    const auto ticket = *groups[0]->submit_awaited(in_place(tensors[0]));
    ASSERT_FALSE(groups[0]->wait(ticket, time * kMillisecond / 10));
    ASSERT_FALSE(reduce_awaited(*groups[1], tensors[1]));
    EXPECT_FALSE(groups[0]->next_completion(time * kMillisecond / 10)) << "it was left to wait()";
    const auto completion = groups[0]->wait(ticket, 20 * kSecond);
    ASSERT_TRUE(completion);
    EXPECT_FALSE(completion->error);
    EXPECT_EQ(tensors[0], tensors[1]);
  }
}

TEST_P(Waiting, ManyWaitAtOnceBesideTheThread) {
  constexpr std::size_t kWaiters = 3, kEach = 40;
  Groups groups = open_all(2, options());
  std::vector<std::vector<std::vector<float>>> tensors(2);
  std::vector<std::vector<PeerGroup::Ticket>> tickets(2);
  for (std::size_t t = 0; t < kWaiters * kEach; ++t) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto& tensor = tensors[rank].emplace_back(t * 997 % 20'000, static_cast<float>(rank + t));
      const CollectiveRequest request = in_place(tensor);
      const bool is_awaited = t % 2 == 0;
      tickets[rank].push_back(*(is_awaited ? groups[rank]->submit_awaited(request) : groups[rank]->submit(request)));
    }
  }
  std::vector<std::future<void>> waiting;
  for (std::size_t waiter = 0; waiter < 2 * kWaiters; ++waiter) {
    waiting.push_back(std::async(std::launch::async, [&, rank = waiter % 2, first = waiter / 2] {
      for (std::size_t t = first; t < tickets[rank].size(); t += kWaiters) {
        const auto error = finish(*groups[rank], tickets[rank][t]);
        ASSERT_FALSE(error) << error->message;
        ASSERT_THAT(tensors[rank][t], ::testing::Each(static_cast<float>(1 + 2 * t))) << "all-reduce " << t;
      }
    }));
  }
  for (auto& each : waiting) each.get();
}

// run() takes a short way where nothing else is on its way, and must keep its turn where something is.
TEST_P(Waiting, RunsAmongWhatIsOnItsWay) {
  Groups groups = open_all(2, options());
  std::vector<std::future<std::size_t>> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&group = *groups[rank], rank] {
      std::size_t elements = 0;
      for (std::size_t time = 0; time < 300; ++time) {
        const std::size_t count = time % 10 == 0 ? time * 1000 : time * 7;
        std::vector<float> early(count, static_cast<float>(rank + time)), own(count / 2 + 1, static_cast<float>(rank));
        const bool has_early = time % 3 == 0;
        const auto ticket = has_early ? *group.submit(in_place(early, time % 2 == 0 ? "direct" : "ring")) : 0;
        const auto over = group.run(in_place(own, "direct"));
        EXPECT_TRUE(over) << over.error().message;
        EXPECT_THAT(own, ::testing::Each(1.0F)) << "all-reduce " << time;
        elements += own.size();
        if (!has_early) continue;
        EXPECT_FALSE(finish(group, ticket));
        EXPECT_THAT(early, ::testing::Each(static_cast<float>(1 + 2 * time))) << "all-reduce " << time;
        elements += count;
      }
      return elements;
    }));
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::size_t elements = ranks[rank].get();
    EXPECT_EQ(counter(*groups[rank], "reduced_elements"), elements);
  }
}

TEST_P(Waiting, ManyRunAtOnce) {
  Groups groups = open_all(2, options());
  std::vector<std::future<void>> running;
  for (std::size_t caller = 0; caller < 6; ++caller) {
    running.push_back(std::async(std::launch::async, [&group = *groups[caller % 2], rank = caller % 2] {
      for (int time = 0; time < 200; ++time) {
        std::vector<float> tensor(500, static_cast<float>(rank + 1));  // alike for all: they meet in any order
        ASSERT_TRUE(group.run(in_place(tensor, "direct")));
        ASSERT_THAT(tensor, ::testing::Each(3.0F));
      }
    }));
  }
  for (auto& each : running) each.get();
}

TEST_P(Waiting, ARunThatNobodyJoinsFailsAndBlames) {
  PeerGroupOptions impatient = options();
  impatient.timeout_s = 0.4;
  Groups groups = open_all(2, impatient);
  std::vector<float> tensor(100, 1);
  for (int time = 0; time < 2; ++time) {  // the second finds the group failed
    const auto over = groups[0]->run(in_place(tensor, "direct"));
    ASSERT_FALSE(over);
    EXPECT_EQ(over.error().code, ErrorCode::kTimeout);
    EXPECT_EQ(over.error().rank, 1);
  }
  EXPECT_THAT(tensor, ::testing::Each(1.0F));
  EXPECT_FALSE(groups[0]->run(in_place(tensor, "no such")));
}

// The thread sleeps until the old timeout; the new one wakes it.
TEST_P(Waiting, AnotherTimeoutCountsAtOnce) {
  PeerGroupOptions long_timeout = options();
  long_timeout.timeout_s = 600;
  Groups groups = open_all(2, long_timeout);
  std::vector<float> tensor(1000, 1.0F);
  const auto ticket = groups[1]->submit(in_place(tensor));
  ASSERT_TRUE(ticket);
  EXPECT_FALSE(groups[1]->next_completion(50 * kMillisecond)) << "rank 0 takes no part";
  groups[1]->set_timeout(100 * kMillisecond);
  const auto completion = groups[1]->next_completion(20 * kSecond);
  ASSERT_TRUE(completion && completion->error);
  EXPECT_EQ(completion->error->code, ErrorCode::kTimeout);
  EXPECT_EQ(completion->error->rank, 0) << completion->error->message;
}

TEST_P(Waiting, RanksThatRunDifferentlyAreToldSo) {
  Groups groups = open_all(2, options());
  std::vector<std::vector<float>> tensors{std::vector<float>(100, 1), std::vector<float>(200, 1)};
  const auto run = [&](std::size_t rank) { return groups[rank]->run(in_place(tensors[rank], "direct")); };
  auto other = std::async(std::launch::async, [&] { return run(1); });
  const auto own = run(0), its = other.get();
  ASSERT_FALSE(own);
  ASSERT_FALSE(its);
  EXPECT_EQ(own.error().code, ErrorCode::kMismatch);
  EXPECT_EQ(its.error().code, ErrorCode::kMismatch);
  for (const auto& tensor : tensors) EXPECT_THAT(tensor, ::testing::Each(1.0F));
}

TEST_P(Waiting, ClosingEndsAWait) {
  Groups groups = open_all(2, options());
  std::vector<float> tensor(1000, 1);
  auto waiting = std::async(std::launch::async, [&] { return reduce_awaited(*groups[0], tensor); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Nanoseconds closed = now();
  groups[0]->close();
  EXPECT_TRUE(waiting.get());
  EXPECT_LT(now() - closed, 20 * kSecond);
  EXPECT_THAT(tensor, ::testing::Each(1.0F));
}

INSTANTIATE_TEST_SUITE_P(Links, Waiting, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "Shm" : "Tcp"; });

}  // namespace
}  // namespace netfold::group
