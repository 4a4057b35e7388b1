// Ranks that lose one of them, in virtual time: the others go on over the streams that they have. The collective that
// the death ends leaves whatever it has under way in the streams, at a moment that the seed draws.
#include "group/via_peers/carry_over.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "group/via_peers/peer_session.h"
#include "support/random_seed.h"
#include "testing/all_of_them.h"
#include "testing/connected_ranks.h"
#include "testing/network.h"

namespace netfold::group {
namespace {

constexpr Nanoseconds kCarryOverStep = 50 * kMicrosecond;
constexpr Nanoseconds kCarryOverTimeout = 4 * kSecond;
constexpr Nanoseconds kWithoutTimeout = kSecond;  // nothing here waits for a timeout but what a test cuts

std::unique_ptr<LifeLines> life_lines_of(int rank, int world) {
  return std::make_unique<LifeLines>(rank, world, std::make_unique<testing::AllOfThem>());
}

// A process: a rank of the first group, then of the second.
struct Process {
  enum class State { kWorks, kParted, kCarriesOver, kWorksAgain, kDead } state = State::kWorks;
  std::unique_ptr<PeerSession> session;
  std::optional<Error> error;  // of its present group
  std::vector<float> tensor;
  std::vector<Ticket> finished;
  KeptPeers kept;
  PeerConnections connections;  // of the second group, while it is taken over
  std::unique_ptr<CarryOver> carry_over;
  Nanoseconds moves_at = 0;  // when it begins to take over: some are late
};

class Survivors {
 public:
  Survivors(std::uint64_t seed, int world) : prng_(seed), network_(timeline_, seed + 1), world_(world) {
    testing::StreamShape shape;
    shape.is_memory = prng_.chance(0.5);
    shape.buffer_bytes = std::size_t{1024} << prng_.below(7);
    shape.window_bytes = std::size_t{1024} << prng_.below(7);
    shape.piece_max = 1 + prng_.below(20000);
    shape.bytes_per_s = prng_.chance(0.5) ? 0 : 1e8;
    processes_.resize(static_cast<std::size_t>(world));
    std::vector<testing::RankPlace> places;
    for (int rank = 0; rank < world; ++rank) places.push_back({ip_of(rank)});
    auto all = testing::connect_ranks(network_, places, shape, true);
    // A word over a life line may come later than bytes over a stream that were sent after it.
    testing::Weather weather;
    weather.delay_max = prng_.chance(0.5) ? 40 * kMicrosecond : 3 * kMillisecond;
    network_.set_weather(weather);
    const std::size_t count = 5000 + prng_.below(60000);
    const auto format = prng_.chance(0.5) ? numbers::Format::kFp32 : numbers::Format::kBfp;
    for (int rank = 0; rank < world; ++rank) {
      begin(rank, std::move(all[at(rank)]), rank, world, count, format);
      // A message that is never received.
      Process& own = processes_[at(rank)];
      CollectiveRequest send{.in = own.tensor.data(),
                             .count = prng_.below(4000),
                             .format = numbers::Format::kNone,
                             .collective = schedule::Collective::kSend};
      send.peer = (rank + 1) % world;
      own.session->submit(2, send, nullptr);
    }
  }

  Prng& prng() { return prng_; }
  Process& process(int number) { return processes_[at(number)]; }
  Nanoseconds now() const { return timeline_.now(); }
  testing::Network& network() { return network_; }
  static IpAddress ip_of(int number) { return static_cast<std::uint32_t>(0x0a000001 + number); }
  bool are_all(const std::vector<int>& numbers, Process::State state) const {
    return std::ranges::all_of(numbers, [&](int each) { return processes_[at(each)].state == state; });
  }

  void kill(int number) {
    Process& doomed = process(number);
    doomed = Process();
    doomed.state = Process::State::kDead;
  }

  void run_for(Nanoseconds time) {
    for (const Nanoseconds until = now() + time; now() < until;) step();
  }
  template <class Done>
  bool run_until(Done done, Nanoseconds most) {
    for (const Nanoseconds until = now() + most; now() < until;) {
      if (done()) return true;
      step();
    }
    return done();
  }

  // Each of `survivors` that has heard of the death moves to the group of them, some time later.
  void shrink(std::vector<int> survivors, std::optional<control::Secret> secret = {}) {
    survivors_ = std::move(survivors);
    secret_ = std::move(secret);
  }
  void trust(int number, std::optional<control::Secret> secret) { odd_ = number, odd_secret_ = std::move(secret); }

 private:
  static std::size_t at(int number) { return static_cast<std::size_t>(number); }

  void begin(int number, PeerConnections connections, int rank, int world, std::size_t count,
             numbers::Format format = numbers::Format::kFp32) {
    Process& own = process(number);
    own.session = std::make_unique<PeerSession>(PeerSessionOptions{rank, world, kCarryOverTimeout},
                                                std::move(connections), Plans(world, rank), now());
    own.tensor.assign(count, static_cast<float>(1 << number));
    CollectiveRequest request{.in = own.tensor.data(),
                              .out = own.tensor.data(),
                              .count = count,
                              .format = format,
                              .algorithm = {.name = "ring"}};
    auto prepared = own.session->prepare(request);
    ASSERT_TRUE(prepared) << prepared.error().message;
    own.finished.clear();
    own.error.reset();
    own.session->submit(1, request, std::move(*prepared));
  }

  void step() {
    for (const Nanoseconds until = now() + kCarryOverStep; timeline_.step(until);) {
    }
    for (int number = 0; number < world_; ++number) advance(number);
  }

  void advance(int number) {
    Process& own = process(number);
    switch (own.state) {
      case Process::State::kWorks:
      case Process::State::kWorksAgain: return work(own);
      case Process::State::kParted:
        if (!survivors_.empty() && now() >= own.moves_at) move(number);
        return;
      case Process::State::kCarriesOver: return carry_over(number);
      case Process::State::kDead: return;
    }
  }

  void work(Process& own) {
    if (own.error) return;
    const auto moved = own.session->pump(now());
    for (const Ticket ticket : own.session->take_finished()) own.finished.push_back(ticket);
    if (moved) return;
    own.error = moved.error();
    own.session->abort(moved.error(), now());
    if (own.state == Process::State::kWorksAgain) return;
    own.session->keep(survivors_);
    EXPECT_TRUE(own.session->leave(own.error, now()));
    own.kept = own.session->take_kept();
    own.session.reset();
    own.state = Process::State::kParted;
    own.moves_at = now() + static_cast<Nanoseconds>(prng_.below(at(20 * static_cast<int>(kMillisecond))));
  }

  void move(int number) {
    Process& own = process(number);
    const int world = static_cast<int>(survivors_.size());
    const int rank = static_cast<int>(std::ranges::find(survivors_, number) - survivors_.begin());
    own.error.reset();
    PeerConnections& next = own.connections;
    next.data.resize(at(world));
    next.messages.resize(at(world));
    next.bells.resize(at(world));
    next.life_lines = life_lines_of(rank, world);
    own.carry_over =
        std::make_unique<CarryOver>(rank, world, "second", number == odd_ ? odd_secret_ : secret_, *next.life_lines);
    for (int other = 0; other < world; ++other) {
      auto& kept = own.kept.peers[at(survivors_[at(other)])];
      if (other == rank) continue;
      if (!kept) {  // its connection has ended: in a real group the two connect anew
        own.error = Error{ErrorCode::kPeerFailed, "its connection has ended", other};
        continue;
      }
      next.life_lines->add(other, std::move(kept->line), "second");
      next.data[at(other)] = std::move(kept->data);
      next.messages[at(other)] = std::move(kept->messages);
      own.carry_over->add(other, *next.data[at(other)], *next.messages[at(other)]);
    }
    own.kept = {};
    if (own.error) next.life_lines->say_failed(*own.error);
    own.state = Process::State::kCarriesOver;
  }

  void carry_over(int number) {
    Process& own = process(number);
    if (own.error) return;
    const auto done = own.carry_over->pump(now());
    if (!done) {
      own.error = done.error();
      own.connections.life_lines->say_failed(done.error());
      return;
    }
    if (!*done) return;
    own.carry_over.reset();
    const int world = static_cast<int>(survivors_.size());
    const int rank = static_cast<int>(std::ranges::find(survivors_, number) - survivors_.begin());
    own.state = Process::State::kWorksAgain;
    begin(number, std::exchange(own.connections, {}), rank, world, 5000);
  }

  Prng prng_;
  testing::Timeline timeline_;
  testing::Network network_;
  int world_;
  std::vector<Process> processes_;
  std::vector<int> survivors_;
  std::optional<control::Secret> secret_, odd_secret_;
  int odd_ = kNoRank;
};

struct Cast {
  int world, victim, second;  // numbers of processes
  std::vector<int> survivors;
};

Cast cast_of(std::uint64_t seed, int least) {
  Prng prng(seed * 77);
  Cast cast{least + static_cast<int>(prng.below(4)), 0, 0, {}};
  cast.victim = static_cast<int>(prng.below(static_cast<std::uint64_t>(cast.world)));
  for (int number = 0; number < cast.world; ++number) {
    if (number != cast.victim) cast.survivors.push_back(number);
  }
  cast.second = cast.survivors[prng.below(cast.survivors.size())];
  return cast;
}

// Up to a time that most runs spend in the collective.
Nanoseconds moment(Prng& prng, Nanoseconds most = 4 * kMillisecond) {
  return static_cast<Nanoseconds>(prng.below(static_cast<std::uint64_t>(most)));
}

TEST(CarryOver, SurvivorsSumRightOverTheStreamsThatTheyHave) {
  for (const std::uint64_t seed : tests::random_seeds(150)) {
    SCOPED_TRACE(seed);
    const Cast cast = cast_of(seed, 3);
    Survivors world(seed, cast.world);
    world.shrink(cast.survivors, control::Secret::from(seed % 2 == 0 ? "secret" : ""));
    world.run_for(moment(world.prng()));
    world.kill(cast.victim);
    const auto are_done = [&] {
      return std::ranges::all_of(cast.survivors, [&](int each) {
        Process& own = world.process(each);
        return own.state == Process::State::kWorksAgain && own.finished == std::vector<Ticket>{1};
      });
    };
    ASSERT_TRUE(world.run_until(are_done, kWithoutTimeout));
    float sum = 0;
    for (const int each : cast.survivors) sum += static_cast<float>(1 << each);
    for (const int each : cast.survivors) {
      const auto& tensor = world.process(each).tensor;
      ASSERT_TRUE(std::ranges::all_of(tensor, [&](float element) { return element == sum; }));
    }
  }
}

// The others hear of it soon, at every moment, and none blames another than the dead.
TEST(CarryOver, ADeathMeanwhileIsAnErrorAtEveryOtherThatNamesTheDead) {
  for (const std::uint64_t seed : tests::random_seeds(150)) {
    SCOPED_TRACE(seed);
    Cast cast = cast_of(seed, 4);
    Survivors world(seed, cast.world);
    world.shrink(cast.survivors);
    world.run_for(moment(world.prng()));
    world.kill(cast.victim);
    world.run_for(moment(world.prng(), 25 * kMillisecond));
    world.kill(cast.second);
    const auto dead = std::ranges::find(cast.survivors, cast.second) - cast.survivors.begin();
    const auto have_heard = [&] {
      return std::ranges::all_of(cast.survivors, [&](int each) {
        const Process& own = world.process(each);
        const bool is_second = own.state == Process::State::kCarriesOver || own.state == Process::State::kWorksAgain;
        return each == cast.second || (is_second && (own.error || own.finished == std::vector<Ticket>{1}));
      });
    };
    ASSERT_TRUE(world.run_until(have_heard, kWithoutTimeout));
    for (const int each : cast.survivors) {
      const auto& error = world.process(each).error;
      if (each != cast.second && error) {
        ASSERT_EQ(error->rank, dead) << error->message;
      }
    }
  }
}

TEST(CarryOver, AStreamThatIsCutMeanwhileNamesItsOtherEnd) {
  for (const std::uint64_t seed : tests::random_seeds(60)) {
    SCOPED_TRACE(seed);
    const Cast cast = cast_of(seed, 3);
    const int one = cast.survivors.front(), two = cast.survivors.back();
    Survivors world(seed, cast.world);
    world.shrink(cast.survivors);
    world.run_for(moment(world.prng()));
    world.kill(cast.victim);
    world.run_for(moment(world.prng(), 25 * kMillisecond));
    world.network().cut_connections(Survivors::ip_of(one), Survivors::ip_of(two));
    const auto have_ended = [&] {
      return std::ranges::all_of(cast.survivors, [&](int each) {
        const Process& own = world.process(each);
        const bool is_second = own.state == Process::State::kCarriesOver || own.state == Process::State::kWorksAgain;
        return is_second && (own.error || own.finished == std::vector<Ticket>{1});
      });
    };
    ASSERT_TRUE(world.run_until(have_ended, kCarryOverTimeout + 2 * kSecond));
  }
}

TEST(CarryOver, ARankWithAnotherSecretIsRefused) {
  const Cast cast = cast_of(tests::random_seed(), 3);
  Survivors world(tests::random_seed(), cast.world);
  world.shrink(cast.survivors, control::Secret::from("ours"));
  world.trust(cast.second, control::Secret::from("another"));
  world.run_for(kMillisecond);
  world.kill(cast.victim);
  const auto refuses = [&] {
    return std::ranges::all_of(cast.survivors, [&](int each) {
      const Process& own = world.process(each);
      return own.state == Process::State::kCarriesOver && own.error && own.error->code == ErrorCode::kAuth;
    });
  };
  EXPECT_TRUE(world.run_until(refuses, kWithoutTimeout));
}

}  // namespace
}  // namespace netfold::group
