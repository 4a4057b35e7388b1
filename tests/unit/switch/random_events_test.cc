// Seeded random lives of many workers: whatever happens in whatever order, the table keeps its promises. They are
// checked after every event (conversation.h). Every worker ends with an answer, and nothing is left at the end.
// netfold-vopr runs the table too, with links and sessions around it. Here memory is short, and jobs have hosts.
#include "conversation.h"
#include "support/random_seed.h"

namespace netfold::switching {
using namespace membership;
using namespace control;
namespace {

class RandomLife {
 public:
  explicit RandomLife(std::uint64_t seed) : random_(seed), with_secret_(random_.chance(0.5)), c_(rules()) {}

  void run() {
    for (int step = 0; step < 400; ++step) {
      act();
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const auto id : alive_) {
      if (c_.is_open(id)) c_.cut(id);
    }
    c_.pass(12 * kSecond);  // strangers' time is over too
    EXPECT_TRUE(c_.table().jobs().empty());
    EXPECT_TRUE(c_.running().empty());
    EXPECT_EQ(c_.table().memory_bytes(), 0u);
    EXPECT_EQ(c_.table().connections(), 0u);
  }

 private:
  SwitchRules rules() {
    SwitchRules rules = Conversation::plain_rules();
    rules.jobs_max = static_cast<std::uint16_t>(1 + random_.below(4));
    rules.memory_max_bytes = 1 << (18 + random_.below(6));
    rules.first_epoch = static_cast<std::uint16_t>(random_.next());
    if (with_secret_) rules.secret = Secret::from("sesame");
    rules.tagged = with_secret_ && random_.chance(0.5);
    return rules;
  }

  void act() {
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: return begin_worker();
      case 5: return with_a_worker([&](ConnectionId id) { c_.cut(id); });
      case 6:
      case 7: return with_a_worker([&](ConnectionId id) { c_.leave(id); });
      case 8: return with_a_worker([&](ConnectionId id) { c_.mute(id); });
      case 9:
        return with_a_worker([&](ConnectionId id) {
          c_.leave(id, Error{ErrorCode::kTimeout, "x", static_cast<int>(random_.below(6)) - 1});
        });
      case 10: return disturb();
      default: return c_.pass(static_cast<Nanoseconds>(random_.below(3 * kSecond)));
    }
  }

  void begin_worker() {
    const auto job = static_cast<std::uint16_t>(random_.below(3));
    // The world follows from the name, mostly, or few jobs would ever be whole.
    const auto world = static_cast<std::uint16_t>(random_.chance(0.05) ? 1 + random_.below(4) : job + 1);
    auto request = Conversation::worker(std::string(1, static_cast<char>('a' + job)), world,
                                        static_cast<std::uint16_t>(random_.below(world)));
    if (random_.chance(0.1)) request.join.rank = kHostRank;
    request.join.is_hosted = random_.chance(0.1);
    request.join.timeout_s = 0.5 + random_.unit() * 20;
    request.join.window = static_cast<std::uint32_t>(random_.below(1000));
    request.join.mtu = static_cast<std::uint32_t>(256 + random_.below(9000));
    if (random_.chance(with_secret_ ? 0.95 : 0.05)) request.secret = Secret::from("sesame");
    alive_.push_back(c_.join(request));
  }

  template <class Do>
  void with_a_worker(Do&& what) {
    std::erase_if(alive_, [&](ConnectionId id) { return !c_.is_open(id); });
    if (!alive_.empty()) what(alive_[random_.below(alive_.size())]);
  }

  void disturb() {
    if (random_.chance(0.5)) {
      const ConnectionId stranger = c_.open();
      if (random_.chance(0.5)) c_.say(stranger, std::string("hello?"));
      return;
    }
    if (!c_.admissions().empty() && random_.chance(0.3)) {
      const auto& lease = c_.admissions()[random_.below(c_.admissions().size())].lease;
      c_.table().on_mismatch(lease.job, lease.epoch, 0, "they disagree");
      return c_.settle();
    }
    with_a_worker(
        [&](ConnectionId id) { c_.say(id, std::string(random_.chance(0.5) ? "rubbish" : R"({"type":"heartbeat"})")); });
  }

  Prng random_;
  bool with_secret_;
  Conversation c_;
  std::vector<ConnectionId> alive_;
};

TEST(RandomLives, KeepEveryPromise) {
  for (const std::uint64_t seed : tests::random_seeds(60)) {
    SCOPED_TRACE(::testing::Message() << "NETFOLD_SEED=" << seed);
    RandomLife(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace netfold::switching
