// The switch's control side over real TCP on the loopback, with a packet path that only takes notes. Every wait is
// bounded.
#include "switch/switch_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>
#include "base/prng.h"
#include "base/wakeup.h"
#include "group/via_switch/joining.h"
#include "link/tcp/control_socket.h"

namespace netfold::switching {
using namespace group;
using namespace control;
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The calls that the fake packet path got; outlives it.
struct Notes {
  std::mutex mutex;
  std::map<std::uint16_t, Admission> running;
  int evictions = 0;
  bool has_no_memory = false;  // at the next admission
  std::set<std::uint16_t> without_memory;
  DataPlane::OnMismatch on_mismatch;

  std::size_t running_count() {
    const std::lock_guard lock(mutex);
    return running.size();
  }
};

class FakeDataPlane final : public DataPlane {
 public:
  explicit FakeDataPlane(Notes& notes) : notes_(notes) {}

  const std::vector<std::uint16_t>& udp_ports() const override { return ports_; }
  void admit(Admission admission) override {
    const std::lock_guard lock(notes_.mutex);
    if (std::exchange(notes_.has_no_memory, false)) {
      notes_.without_memory.insert(admission.lease.job);
      throw std::bad_alloc();
    }
    EXPECT_TRUE(notes_.running.emplace(admission.lease.job, admission).second);
  }
  void evict(std::uint16_t job) override {
    const std::lock_guard lock(notes_.mutex);
    if (notes_.without_memory.erase(job) == 1) return;
    EXPECT_EQ(notes_.running.erase(job), 1u);
    ++notes_.evictions;
  }
  std::vector<std::uint64_t> drops() const override { return {1, 2, 3}; }
  JobCounters counters(std::uint16_t) const override {
    JobCounters counters;
    counters.folded_chunks = 42;
    return counters;
  }
  link::LinkStats link_stats() const override { return {}; }

 private:
  Notes& notes_;
  std::vector<std::uint16_t> ports_ = {5000, 5001};
};

bool eventually(const std::function<bool()>& is_so, double seconds = 20) {
  const Nanoseconds until = now() + from_seconds(seconds);
  while (!is_so()) {
    if (now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

struct Server : ::testing::Test {
  static SwitchServerOptions options() {
    SwitchServerOptions options;
    options.bind = {0x7f000001, 0};
    options.heartbeat_s = 0.25;  // a busy machine may stop a test for longer than short ones allow
    return options;
  }

  void start(SwitchServerOptions options) {
    DataPlaneFactory factory;
    factory.start = [this](DataPlaneOptions, DataPlane::OnMismatch on_mismatch) -> Result<std::unique_ptr<DataPlane>> {
      notes.on_mismatch = std::move(on_mismatch);
      return std::make_unique<FakeDataPlane>(notes);
    };
    factory.memory_bytes = [](const wire::Lease& lease) { return std::size_t{lease.slots} * lease.payload_bytes; };
    auto started = SwitchServer::start(std::move(options), factory);
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }

  JoinOptions worker(std::string job, std::uint16_t world, std::uint16_t rank, double timeout_s = 20) const {
    JoinOptions options;
    options.switch_address = link::to_string(server->address());
    options.job = std::move(job);
    options.world = world;
    options.rank = rank;
    options.udp_port = static_cast<std::uint16_t>(6000 + rank);
    options.timeout_s = timeout_s;
    return options;
  }

  using Joined = Result<std::unique_ptr<ControlConnection>>;

  std::vector<std::unique_ptr<ControlConnection>> join_all(const std::string& job, std::uint16_t world) {
    std::vector<std::future<Joined>> futures;
    for (std::uint16_t rank = 0; rank < world; ++rank) {
      futures.push_back(
          std::async(std::launch::async, [this, job, world, rank] { return join_switch(worker(job, world, rank)); }));
    }
    std::vector<std::unique_ptr<ControlConnection>> connections;
    for (auto& future : futures) {
      Joined joined = future.get();
      EXPECT_TRUE(joined) << joined.error().message;
      connections.push_back(joined ? std::move(*joined) : nullptr);
    }
    return connections;
  }

  // Pumps these until one has failed, and returns why.
  static Error pump_until_failed(ControlConnection& connection, std::vector<ControlConnection*> others = {}) {
    const Nanoseconds until = now() + 20 * kSecond;
    while (now() < until) {
      for (ControlConnection* other : others) (void)other->pump(now());
      if (auto alive = connection.pump(now()); !alive) return alive.error();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return Error{ErrorCode::kTimeout, "did not fail within 20 s"};
  }

  Notes notes;
  std::unique_ptr<SwitchServer> server;
};

// A peer that speaks bytes, not messages.
class RawPeer {
 public:
  explicit RawPeer(link::Address address) : socket_(link::begin_connect(address).value()) {
    pollfd wanted{socket_.descriptor(), POLLOUT, 0};
    wait_for({&wanted, 1}, now() + kSecond);
  }
  void send(std::string_view bytes) { (void)socket_.write(bytes); }
  // All lines until the switch closes, or for so long.
  std::vector<std::string> hear(double seconds) {
    std::vector<std::string> lines;
    const Nanoseconds until = now() + from_seconds(seconds);
    while (now() < until && open_) {
      pollfd wanted{socket_.descriptor(), POLLIN, 0};
      wait_for({&wanted, 1}, until);
      open_ = socket_.read([&](std::string_view line) { lines.emplace_back(line); }).state ==
              link::ControlSocket::State::kOpen;
    }
    return lines;
  }
  bool open() const { return open_; }
  void hang_up_hard() {
    const linger now_or_never{1, 0};
    setsockopt(socket_.descriptor(), SOL_SOCKET, SO_LINGER, &now_or_never, sizeof now_or_never);
  }

 private:
  link::ControlSocket socket_;
  bool open_ = true;
};

TEST_F(Server, AdmitsWorkersAndLivesWithThem) {
  start(options());
  auto workers = join_all("a", 4);
  ASSERT_EQ(notes.running_count(), 1u);
  EXPECT_EQ(notes.running.begin()->second.workers[3], (link::Address{0x7f000001, 6003}));
  EXPECT_EQ(workers[2]->lease().world, 4);
  EXPECT_EQ(workers[2]->shard_addresses()[1], (link::Address{0x7f000001, 5001}));
  const Nanoseconds until = now() + 2 * kSecond;  // eight heartbeats: twice what a silent worker has
  while (now() < until) {
    for (auto& worker : workers) ASSERT_TRUE(worker->pump(now()));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const SwitchStats stats = server->stats();
  ASSERT_EQ(stats.jobs.size(), 1u);
  EXPECT_EQ(stats.jobs[0].counters.folded_chunks, 42u);
  EXPECT_EQ(stats.connections, 4u);
  EXPECT_GT(stats.memory_bytes, 0u);

  leave_switch(*workers[0]);
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(workers[1]->pump(now()));
    return workers[1]->left_ranks().contains(0);
  }));
  for (auto& worker : workers) leave_switch(*worker);
  EXPECT_TRUE(eventually([&] { return notes.running_count() == 0; }));
}

TEST_F(Server, AClosedConnectionFailsTheSurvivors) {
  start(options());
  auto workers = join_all("a", 3);
  workers[1].reset();  // as the kernel does for a killed process
  for (const int rank : {0, 2}) {
    const Error error = pump_until_failed(*workers[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(error.code, ErrorCode::kPeerFailed);
    EXPECT_EQ(error.rank, 1);
    EXPECT_THAT(error.message, HasSubstr("rank 1 of job 'a'"));
  }
  EXPECT_TRUE(eventually([&] { return notes.running_count() == 0; }));
  EXPECT_EQ(join_all("a", 3).size(), 3u) << "the next job of this name works";
}

TEST_F(Server, ASilentWorkerFailsTheSurvivors) {
  start(options());
  auto workers = join_all("a", 2);
  const Error error = pump_until_failed(*workers[0]);
  EXPECT_EQ(error.rank, 1);
  EXPECT_THAT(error.message, HasSubstr("silent"));
}

TEST_F(Server, AnErrorReachesTheSurvivorsWithItsBlame) {
  start(options());
  auto workers = join_all("a", 3);
  leave_switch(*workers[0], Error{ErrorCode::kTimeout, "rank 2 sent nothing for 30 s", 2});
  const Error error = pump_until_failed(*workers[1], {workers[2].get()});
  EXPECT_EQ(error.rank, 2);
  EXPECT_THAT(error.message, HasSubstr("rank 2 sent nothing"));
}

TEST_F(Server, AMismatchFailsAll) {
  start(options());
  auto workers = join_all("a", 2);
  const auto lease = workers[0]->lease();
  std::thread shard([&] { notes.on_mismatch(lease.job, lease.epoch, 1, "ranks 0 and 1 fold different counts"); });
  shard.join();
  const Error error = pump_until_failed(*workers[0], {workers[1].get()});
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_THAT(error.message, HasSubstr("different counts"));
}

TEST_F(Server, StoppingTellsTheWorkers) {
  start(options());
  auto workers = join_all("a", 2);
  auto stopped = std::async(std::launch::async, [&] { server->stop(); });
  const Error error = pump_until_failed(*workers[0], {workers[1].get()});
  EXPECT_EQ(error.code, ErrorCode::kSwitchFailed);
  EXPECT_THAT(error.message, HasSubstr("stopped"));
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(notes.running_count(), 0u);
}

TEST_F(Server, ASecretIsChecked) {
  auto with_secret = options();
  with_secret.secret = "sesame";
  with_secret.require_auth = true;
  start(with_secret);
  auto request = worker("a", 1, 0);
  request.secret = "open";
  auto wrong = join_switch(request);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kAuth);
  request.secret = "sesame";
  auto right = join_switch(request);
  ASSERT_TRUE(right) << right.error().message;
  EXPECT_TRUE((*right)->lease().keys);
}

TEST_F(Server, AStartThatCannotWorkSaysWhatToDo) {
  auto bad = options();
  bad.require_auth = true;
  EXPECT_THAT(SwitchServer::start(bad).error().message, HasSubstr("secret"));
  start(options());
  auto taken = options();
  taken.bind = server->address();
  const auto second = SwitchServer::start(taken);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, AllOf(HasSubstr("another switch"), HasSubstr("choose another")));
}

TEST_F(Server, StrangersDoNotDisturbAJob) {
  start(options());
  auto workers = join_all("a", 2);
  std::atomic<bool> done{false};
  std::thread pumping([&] {
    while (!done) {
      for (auto& worker : workers) EXPECT_TRUE(worker->pump(now()));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  Prng random(1);
  for (int i = 0; i < 200; ++i) {
    RawPeer peer(server->address());
    std::string bytes;
    for (std::uint64_t n = random.below(3000); n > 0; --n) bytes += static_cast<char>(random.next());
    peer.send(bytes);
    if (random.chance(0.5)) peer.hang_up_hard();
  }
  RawPeer endless(server->address());
  endless.send(std::string(200000, 'x'));
  const auto heard = endless.hear(20);
  EXPECT_FALSE(endless.open());
  ASSERT_EQ(heard.size(), 2u) << "hello, and a refusal";
  EXPECT_THAT(heard[1], HasSubstr("65536"));
  done = true;
  pumping.join();
}

TEST_F(Server, MakesRoomForWorkersWhenStrangersHoldConnections) {
  auto few = options();
  few.connections_max = 8;
  start(few);
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(std::make_unique<RawPeer>(server->address()));
  EXPECT_TRUE(join_switch(worker("a", 1, 0)));
  EXPECT_LE(server->stats().connections, 8u);
}

// As `ulimit -n` does.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limit{most, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

// The next descriptor that the kernel would give.
rlim_t open_descriptors() {
  const int next = dup(0);
  EXPECT_GE(next, 0);
  close(next);
  return static_cast<rlim_t>(next);
}

TEST_F(Server, LeavesDescriptorsToTheProgramThatHoldsIt) {
  {
    const DescriptorLimit few(128);
    start(options());
  }
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(std::make_unique<RawPeer>(server->address()));
  EXPECT_TRUE(join_switch(worker("a", 1, 0)));
  EXPECT_LE(server->stats().connections, 32u);
}

TEST_F(Server, MakesRoomWhereNoDescriptorIsLeft) {
  start(options());
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (int i = 0; i < 3; ++i) strangers.push_back(std::make_unique<RawPeer>(server->address()));
  ASSERT_TRUE(eventually([&] { return server->stats().connections == 3; }));
  const DescriptorLimit few(open_descriptors() + 1);  // one for the next stranger, none for the switch
  RawPeer last(server->address());
  EXPECT_TRUE(eventually([&] { return last.hear(0.01).size() == 1; })) << "hello: the first stranger had to go";
}

TEST_F(Server, SaysThatTheMachineHasNoMemoryAndGoesOn) {
  start(options());
  {
    const std::lock_guard lock(notes.mutex);
    notes.has_no_memory = true;
  }
  static_cast<void>(join_switch(worker("large", 1, 0)));  // the failure may come just after the admission
  EXPECT_TRUE(eventually([&] { return server->stats().table.jobs_failed == 1; }));
  EXPECT_TRUE(join_switch(worker("small", 1, 0)));
}

TEST_F(Server, AWorkerThatDoesNotReadIsClosedAndBlocksNobody) {
  start(options());
  RawPeer lazy(server->address());
  control::Join join;
  join.job = "lazy";
  join.world = 2;
  join.udp_port = 1;
  join.timeout_s = 60;
  lazy.send(control::emit(join));
  auto workers = join_all("a", 2);  // admitted at once all the same
  EXPECT_EQ(workers.size(), 2u);
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; })) << "silent: dead";
}

TEST_F(Server, TellsItsStatisticsInTwoForms) {
  start(options());
  auto workers = join_all("train/1", 1);
  const SwitchStats stats = server->stats();
  const auto json = to_json(stats);
  EXPECT_EQ(json["jobs"][0]["name"], "train/1");
  EXPECT_EQ(json["jobs"][0]["folded_chunks"], 42);
  EXPECT_EQ(json["drops"]["short"], 1);
  const std::string text = to_prometheus(stats);
  EXPECT_THAT(text, HasSubstr("netfold_switch_dropped_packets_total{reason=\"version\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("netfold_job_folded_chunks_total{job=\"train/1\",id=\"0\",epoch=\""));
  EXPECT_THAT(text,
              HasSubstr("# TYPE netfold_switch_jobs_admitted_total counter\nnetfold_switch_jobs_admitted_total 1"));
}

}  // namespace
}  // namespace netfold::switching
