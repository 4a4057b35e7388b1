// The errors of ranks without a switch if one of them dies, stalls, leaves or disagrees: real processes, and memory
// that all ranks share (`direct`). netfold-vopr tests the sessions over streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <set>

#include "link/descriptor.h"
#include "link/socket_address.h"
#include "link/tcp/control_socket.h"
#include "peer_groups.h"

namespace netfold::group {
namespace {

using numbers::Format;
using ::testing::HasSubstr;

// A rank in a process of its own, that can be killed or stopped. It connects and then does nothing.
class RankProcess {
 public:
  RankProcess(const PeerGroupOptions& options) {
    EXPECT_EQ(pipe(from_child_.data()), 0);
    EXPECT_EQ(pipe(to_child_.data()), 0);
    child_ = fork();
    if (child_ == 0) run(options);
    EXPECT_EQ(read(from_child_[0], address_.data(), address_.size()), static_cast<ssize_t>(address_.size()));
  }
  ~RankProcess() {
    send(SIGKILL);
    waitpid(child_, nullptr, 0);
    for (const int descriptor : {from_child_[0], from_child_[1], to_child_[0], to_child_[1]}) close(descriptor);
  }

  std::string address() const { return address_.data(); }
  void connect(const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) {
      std::array<char, 64> text{};
      address.copy(text.data(), text.size() - 1);
      EXPECT_EQ(write(to_child_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
  }
  void send(int signal) const { kill(child_, signal); }

 private:
  [[noreturn]] void run(const PeerGroupOptions& options) {
    auto group = PeerGroup::open(options);
    std::array<char, 64> text{};
    (*group)->address().copy(text.data(), text.size() - 1);
    if (write(from_child_[1], text.data(), text.size()) < 0) _exit(1);
    std::vector<std::string> addresses;
    for (int rank = 0; rank < options.world; ++rank) {
      if (read(to_child_[0], text.data(), text.size()) <= 0) _exit(1);
      addresses.emplace_back(text.data());
    }
    if (!(*group)->connect(addresses)) _exit(1);
    for (;;) pause();
  }

  std::array<int, 2> from_child_{}, to_child_{};
  pid_t child_ = -1;
  std::array<char, 64> address_{};
};

// Ranks 0 .. world-2 here, and the last in a process of its own.
struct Cluster {
  explicit Cluster(PeerGroupOptions options) {
    options.rank = options.world - 1;
    process = std::make_unique<RankProcess>(options);  // before there are threads here
    std::vector<std::string> addresses;
    for (options.rank = 0; options.rank < options.world - 1; ++options.rank) {
      groups.push_back(std::move(*PeerGroup::open(options)));
      addresses.push_back(groups.back()->address());
    }
    addresses.push_back(process->address());
    process->connect(addresses);
    std::vector<std::future<Result<void>>> connecting;
    for (auto& group : groups) {
      connecting.push_back(std::async(std::launch::async, [&] { return group->connect(addresses); }));
    }
    for (auto& each : connecting) EXPECT_TRUE(each.get());
  }

  std::unique_ptr<RankProcess> process;
  Groups groups;
};

std::vector<std::vector<float>> tensors_of(std::size_t ranks, std::size_t count) {
  std::vector<std::vector<float>> tensors;
  for (std::size_t rank = 0; rank < ranks; ++rank) tensors.emplace_back(count, static_cast<float>(rank + 1));
  return tensors;
}

class Failing : public ::testing::TestWithParam<bool> {
 protected:
  PeerGroupOptions options() const {
    PeerGroupOptions options;
    options.world = 4;
    options.inline_progress = GetParam();
    return options;
  }
  static CollectiveRequest direct() { return {.algorithm = {.name = "direct"}}; }
};

void expect_that_a_dead_rank_is_named(const PeerGroupOptions& options, const char* algorithm) {
  Cluster cluster(options);
  const auto before = tensors_of(3, 1'000'000);
  auto tensors = before;
  auto reducing = std::async(std::launch::async,
                             [&] { return reduce_all(cluster.groups, tensors, {.algorithm = {.name = algorithm}}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  cluster.process->send(SIGKILL);
  const Nanoseconds killed = now();
  for (const auto& error : reducing.get()) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kPeerFailed) << error->message;
    EXPECT_EQ(error->rank, 3) << error->message;
  }
  EXPECT_LT(now() - killed, 20 * kSecond) << "a closed connection is known before the timeout of 30 s";
  EXPECT_EQ(tensors, before);
  EXPECT_TRUE(cluster.groups[0]->submit(in_place(tensors[0], algorithm)));
}

TEST_P(Failing, ADeadRankIsNamedByAllAndTensorsArePutBack) {
  expect_that_a_dead_rank_is_named(options(), "direct");
}

TEST(FailingOverTcp, ADeadRankIsNamedByAllAndTensorsArePutBack) {
  expect_that_a_dead_rank_is_named({.world = 4, .shm = false}, "ring");
}

TEST_P(Failing, AStalledRankIsNamedByAllWithinTheTimeout) {
  PeerGroupOptions hasty = options();
  hasty.timeout_s = 1;
  Cluster cluster(hasty);
  cluster.process->send(SIGSTOP);
  const auto before = tensors_of(3, 1'000'000);
  auto tensors = before;
  const Nanoseconds started = now();
  for (const auto& error : reduce_all(cluster.groups, tensors, direct())) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kTimeout) << error->message;
    EXPECT_EQ(error->rank, 3) << error->message;
  }
  EXPECT_LT(now() - started, 20 * kSecond);
  EXPECT_EQ(tensors, before);
}

TEST_P(Failing, LeavingFailsNothingThatCanBeFolded) {
  for (int round = 0; round < 3; ++round) {
    Groups groups = open_all(4, options());
    auto tensors = tensors_of(4, 300'000);
    std::vector<std::future<std::optional<Error>>> waiting;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      waiting.push_back(std::async(std::launch::async, [&, rank] {
        const auto ticket = groups[rank]->submit(in_place(tensors[rank], "direct"));
        const auto error = finish(*groups[rank], *ticket);
        groups[rank]->close();
        return error;
      }));
    }
    for (auto& each : waiting) {
      const auto error = each.get();
      EXPECT_FALSE(error) << error->message;
    }
    for (const auto& tensor : tensors) EXPECT_THAT(tensor, ::testing::Each(10.0f));
  }
}

TEST_P(Failing, ARankThatLeftIsNamed) {
  Groups groups = open_all(4, options());
  groups[2]->close();
  groups.erase(groups.begin() + 2);
  auto tensors = tensors_of(3, 1000);
  for (const auto& error : reduce_all(groups, tensors, direct())) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kPeerFailed) << error->message;
    EXPECT_EQ(error->rank, 2) << error->message;
  }
}

TEST_P(Failing, AReasonToLeaveIsToldToAll) {
  Groups groups = open_all(4, options());
  auto tensors = tensors_of(3, 1000);
  groups[3]->close(Error{ErrorCode::kPeerFailed, "the training diverged"});
  groups.pop_back();
  for (const auto& error : reduce_all(groups, tensors)) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->rank, 3);
    EXPECT_THAT(error->message, HasSubstr("diverged"));
  }
}

struct Asked {
  std::size_t count = 1000;
  Format format = Format::kFp32;
  const char* algorithm = "direct";
  bool average = false;
};

TEST_P(Failing, DisagreementIsNamedBeforeAnyTensorChanges) {
  for (const Asked& other : {Asked{.count = 1001}, Asked{.count = 0}, Asked{.format = Format::kBf16},
                             Asked{.algorithm = "binomial"}, Asked{.average = true}}) {
    PeerGroupOptions options = this->options();
    options.timeout_s = 8;  // where rank 2 submits nothing, the others ask it after a quarter
    Groups groups = open_all(4, options);
    auto tensors = tensors_of(4, 1001);
    const auto before = tensors;
    std::vector<std::future<std::optional<Error>>> waiting;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const Asked asked = rank == 2 ? other : Asked{};
      waiting.push_back(std::async(std::launch::async, [&, rank, asked] {
        CollectiveRequest request = in_place(tensors[rank], asked.algorithm);
        request.count = asked.count;
        request.format = asked.format;
        request.average = asked.average;
        return finish(*groups[rank], *groups[rank]->submit(request));
      }));
    }
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const auto error = waiting[rank].get();
      ASSERT_TRUE(error) << "rank " << rank;
      EXPECT_EQ(error->code, ErrorCode::kMismatch) << error->message;
      EXPECT_NE(error->rank, kNoRank) << error->message;
      EXPECT_EQ(tensors[rank], before[rank]);
    }
  }
}

std::set<std::string> shared_files() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) names.insert(file.path());
  return names;
}

// At whatever moment of the handshake: the other is told, and nothing stays behind.
TEST(HostGroupErrors, ARankThatIsKilledWhileConnectingIsNamedAndLeavesNothingBehind) {
  const auto before = shared_files();
  PeerGroupOptions options;
  options.world = 2;
  options.timeout_s = 0.5;  // some moments cost rank 0 all of it
  int failed = 0;
  for (int moment = 0; moment < 40; ++moment) {
    options.rank = 1;
    RankProcess process(options);
    options.rank = 0;
    auto group = std::move(*PeerGroup::open(options));
    const std::vector<std::string> addresses{group->address(), process.address()};
    process.connect(addresses);
    std::thread killing([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * moment));
      process.send(SIGKILL);
    });
    const auto connected = group->connect(addresses);
    killing.join();
    if (connected) continue;
    ++failed;
    EXPECT_EQ(connected.error().rank, 1) << connected.error().message;
  }
  EXPECT_GT(failed, 0) << "none was killed early enough";
  for (const std::string& name : shared_files()) EXPECT_TRUE(before.contains(name)) << name << " was left behind";
}

INSTANTIATE_TEST_SUITE_P(Drivers, Failing, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "Inline" : "Thread"; });

TEST(HostGroupErrors, WorldsThatDifferAndRanksThatAreMissing) {
  PeerGroupOptions options;
  options.world = 2;
  options.timeout_s = 1;
  auto alone = PeerGroup::open(options);
  const auto address = (*alone)->address();
  const auto connected = (*alone)->connect({address, "127.0.0.1:1"});
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(connected.error().rank, 1);

  auto first = PeerGroup::open(options);
  options.world = 3;
  options.rank = 1;
  auto second = PeerGroup::open(options);
  const std::string a = (*first)->address(), b = (*second)->address();
  auto connecting = std::async(std::launch::async, [&] { return (*first)->connect({a, b}); });
  const auto here = (*second)->connect({a, b, "127.0.0.1:1"});
  const auto there = connecting.get();
  ASSERT_FALSE(here);
  ASSERT_FALSE(there);
  EXPECT_EQ(here.error().code, ErrorCode::kMismatch) << here.error().message;
  EXPECT_EQ(there.error().code, ErrorCode::kMismatch) << there.error().message;
  EXPECT_EQ(here.error().rank, 0);
  EXPECT_EQ(there.error().rank, 1);
}

// Rank 1 cannot reach rank 0, and all higher ranks have. They need rank 1, which still waits for rank 0 when their own
// time is over.
TEST(HostGroupErrors, ARankThatWaitsForAnotherIsNotTakenForTheOneThatFails) {
  const link::Descriptor silent(*link::listen_at(*link::parse_address("127.0.0.1:0")));  // it accepts nothing
  Groups groups;
  std::vector<std::string> addresses;
  PeerGroupOptions options{.world = 4, .timeout_s = 1, .shm = false};
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    options.timeout_s = options.rank == 1 ? 1.3 : 1;  // the others are earlier
    groups.push_back(*PeerGroup::open(options));
    addresses.push_back(groups.back()->address());
  }
  std::vector<std::future<Result<void>>> connecting;
  for (auto& group : groups) {
    auto known = addresses;
    if (&group == &groups[1]) known[0] = link::to_string(link::local_address_of(silent.get()));
    connecting.push_back(std::async(std::launch::async, [&group, known] { return group->connect(known); }));
  }
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    const auto connected = connecting[rank].get();
    ASSERT_FALSE(connected);
    if (rank == 0) continue;  // it misses rank 1
    EXPECT_EQ(connected.error().rank, 0) << "rank " << rank << ": " << connected.error().message;
  }
}

// Rank 2 stops when it has connected to rank 0, and not to rank 1 yet. Rank 0 waits for a word of rank 1, which waits
// for rank 2, and gives up first.
TEST(HostGroupErrors, ARankThatStopsBetweenTwoConnectionsIsNamed) {
  const link::Descriptor silent(*link::listen_at(*link::parse_address("127.0.0.1:0")));  // it accepts nothing
  PeerGroupOptions options{.rank = 2, .world = 4, .timeout_s = 30, .shm = false};
  RankProcess stopped(options);
  Groups groups;
  std::vector<std::string> addresses;
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    options.timeout_s = options.rank == 0 ? 1 : 1.4;
    groups.push_back(options.rank == 2 ? nullptr : *PeerGroup::open(options));
    addresses.push_back(options.rank == 2 ? stopped.address() : groups.back()->address());
  }
  auto known = addresses;
  known[1] = link::to_string(link::local_address_of(silent.get()));
  std::vector<std::future<Result<void>>> connecting;
  for (auto& group : groups) {
    if (!group) continue;
    connecting.push_back(std::async(std::launch::async, [&] { return group->connect(addresses); }));
  }
  stopped.connect(known);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  stopped.send(SIGSTOP);
  for (auto& each : connecting) {
    const auto connected = each.get();
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().rank, 2) << connected.error().message;
    EXPECT_THAT(connected.error().message, HasSubstr("rank 2"));
  }
}

TEST(HostGroupErrors, RequestsThatMakeNoSense) {
  PeerGroupOptions options;
  options.rank = 3;
  options.world = 2;
  EXPECT_EQ(PeerGroup::open(options).error().code, ErrorCode::kInvalidArgument);
  Groups groups = open_all(2);
  std::vector<float> tensor(8);
  EXPECT_THAT(groups[0]->submit(in_place(tensor, "butterfly")).error().message, HasSubstr("butterfly"));
  EXPECT_THAT(groups[0]->submit(in_place(tensor, "in-network")).error().message, HasSubstr("switch"));
  EXPECT_FALSE(groups[0]->submit({.in = nullptr, .out = tensor.data(), .count = 8}));
  EXPECT_FALSE(groups[0]->connect({"127.0.0.1:1", "127.0.0.1:2"}));
}

}  // namespace
}  // namespace netfold::group
