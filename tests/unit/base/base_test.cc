#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/fork.h"
#include "base/prng.h"
#include "base/result.h"

namespace netfold {
namespace {

TEST(Prng, IsSplitmix64) {
  Prng prng(1234567);  // the first numbers that the authors' reference gives for this seed
  EXPECT_EQ(prng.next(), 6457827717110365317u);
  EXPECT_EQ(prng.next(), 3203168211198807973u);
  EXPECT_EQ(prng.next(), 9817491932198370423u);
}

TEST(Prng, StaysBelowItsBoundAndReachesEverything) {
  Prng prng(1);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(prng.below(7));
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
  for (int i = 0; i < 1000; ++i) {
    const double unit = prng.unit();
    EXPECT_TRUE(unit >= 0 && unit < 1);
  }
  EXPECT_FALSE(prng.chance(0));
  EXPECT_TRUE(prng.chance(1));
}

TEST(ProcessOwned, AForkedChildLeavesItAlone) {
  struct Says {
    explicit Says(int* to) : ended(to) {}
    ~Says() { ++*ended; }
    int* ended;
  };
  int ended = 0;
  ProcessOwned<Says> owned = owned_by_process(std::make_unique<Says>(&ended));
  EXPECT_FALSE(is_inherited(owned));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool was_inherited = is_inherited(owned);
    owned.reset();
    ProcessOwned<Says> own = owned_by_process(std::make_unique<Says>(&ended));
    own.reset();
    _exit(was_inherited && ended == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(is_inherited(owned));
  owned.reset();
  EXPECT_EQ(ended, 1);
}

TEST(Fork, AConnectionClosesThoughAChildLives) {
  std::array<int, 2> ends;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  close_in_children(ends[0]);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(1);
  }
  forget_in_children(ends[0]);
  close(ends[0]);
  pollfd news{ends[1], POLLIN, 0};  // the child closes its own end once it runs
  ASSERT_EQ(poll(&news, 1, 10000), 1);
  char byte = 0;
  EXPECT_EQ(recv(ends[1], &byte, 1, MSG_DONTWAIT), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[1]);
}

TEST(Clock, ConvertsAndNeverGoesBack) {
  EXPECT_EQ(from_seconds(1.5), 1500 * kMillisecond);
  EXPECT_EQ(to_seconds(250 * kMillisecond), 0.25);
  const Nanoseconds before = now();
  EXPECT_GE(now(), before);
}

TEST(Result, CarriesWhatHappenedWhoAndWhy) {
  const Result<int> failed = fail(ErrorCode::kPeerFailed, "rank 3 died", 3);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().rank, 3);
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kSystem); ++code) {
    names.insert(name_of(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kSystem) + 1) << "every code has a name of its own";
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace netfold
