#include "protocol/both_world.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "group/via_both/split_session.h"
#include "membership/join_attempts.h"
#include "support/same_bits.h"
#include "testing/actor.h"
#include "testing/plain_fold.h"

namespace netfold::tests {
namespace {

using group::CollectiveRequest;
using group::SwitchLife;
using testing::Actor;

constexpr std::uint32_t kFirstIp = 0x0a000100;
constexpr std::uint16_t kFirstPort = 30000;
const double kTimeoutS = to_seconds(BothWorld::kTimeout);
constexpr Nanoseconds kSubmitsWithin = kMillisecond;

testing::Plan plan_of(std::uint16_t world, double stream_bytes_s, std::uint64_t seed) {
  testing::Plan plan;
  plan.seed = seed;
  testing::JobPlan job;
  job.name = "job";
  job.world = world;
  job.is_among_peers = true;
  job.stream.bytes_per_s = stream_bytes_s;
  plan.jobs.push_back(std::move(job));
  return plan;
}

link::Address address_of_switch(std::size_t at) {
  return {IpAddress(testing::kSwitchAddress.ip.v4() + static_cast<std::uint32_t>(at)), testing::kSwitchAddress.port};
}

}  // namespace

// It joins the switches, meets the others, and then runs what it is given, as the driver does.
class BothWorld::Rank final : public Actor {
 public:
  Rank(BothWorld& world, int rank)
      : Actor(world.around_.timeline), world_(world), rank_(rank), ip_(kFirstIp + static_cast<std::uint32_t>(rank)) {
    for (std::size_t at = 0; at < world.switches_.size(); ++at) {
      joining_.emplace(SwitchLife{at, 0}, std::make_unique<Joining>(*this, at, "job"));
    }
    in_switches_.resize(world.switches_.size());
    world_.meeting_.come(rank_, {ip_, static_cast<std::uint64_t>(rank_), [this] { on_news(); },
                                 [this](testing::AdmissionsChecker::Life, group::PeerConnections connections) {
                                   connections_ = std::move(connections);
                                   wake();
                                 }});
    wake();
  }
  ~Rank() override { world_.meeting_.go(rank_); }

  void submit(group::Ticket ticket, const CollectiveRequest& request) {
    waiting_.emplace_back(ticket, request);
    ++unfinished_;
    wake();
  }
  bool has_left() const { return has_left_; }
  bool is_done() const { return unfinished_ == 0; }
  std::size_t unfinished() const { return unfinished_; }
  std::uint32_t ip() const { return ip_; }
  std::uint64_t counter(const char* name) const {
    return session_ ? session_->counters()[name].get<std::uint64_t>() : 0;
  }

 private:
  // Attempts to join one job at the switch, without end.
  class Joining {
   public:
    Joining(Rank& rank, std::size_t at, std::string job)
        : rank_(rank), address_(address_of_switch(at)), port_(rank.next_port_++) {
      options_.switch_address = fmt::format("switch{}:7171", at);
      options_.job = std::move(job);
      options_.world = rank.world_.plan_.jobs[0].world;
      options_.rank = static_cast<std::uint16_t>(rank.rank_);
      options_.udp_port = port_;
      options_.mtu = 9000;
      options_.timeout_s = options_.connect_timeout_s = kTimeoutS;
      link_ = rank.world_.around_.network.open({rank.ip_, port_}, [&rank] { rank.wake(); });
      start();
    }

    std::unique_ptr<group::SwitchSession> pump(Nanoseconds now) {
      if (attempts_->begin_attempt(now)) connect();
      auto joined = attempts_->pump(now);
      if (!joined) {
        start();
        return nullptr;
      }
      if (*joined) {
        group::SwitchSessionOptions options;
        options.rank = options_.rank;
        options.timeout = from_seconds(kTimeoutS);
        options.silence_max = 1500 * kMillisecond;
        options.switch_name = options_.switch_address;
        return std::make_unique<group::SwitchSession>(std::move(options), std::move(link_), std::move(*joined));
      }
      rank_.wake_at(attempts_->deadline());
      return nullptr;
    }

   private:
    void start() {
      attempts_ = std::make_unique<membership::JoinAttempts>(
          options_, address_,
          [this] {
            control::Nonce nonce;
            for (std::byte& b : nonce) b = static_cast<std::byte>(rank_.world_.around_.prng.next());
            return nonce;
          },
          rank_.timeline_.now());
      rank_.wake();
    }
    void connect() {
      const std::uint64_t attempt = ++attempt_;
      rank_.world_.around_.network.connect(
          rank_.ip_, address_,
          [this, attempt, lives = std::weak_ptr<int>(lives_)](std::unique_ptr<link::ControlLink> link) {
            if (lives.expired() || attempt != attempt_ || !attempts_->is_connecting()) return;
            if (link) {
              testing::on_news_of(*link, [rank = &rank_] { rank->on_news(); });
              attempts_->on_connected(std::move(link), rank_.timeline_.now());
            } else {
              attempts_->on_unreachable("Connection refused", rank_.timeline_.now());
            }
            rank_.wake();
          });
    }

    Rank& rank_;
    const link::Address address_;
    std::uint16_t port_;
    membership::JoinOptions options_;
    std::unique_ptr<link::Link> link_;
    std::unique_ptr<membership::JoinAttempts> attempts_;
    std::uint64_t attempt_ = 0;
    std::shared_ptr<int> lives_ = std::make_shared<int>();
  };

  class Returns final : public group::SwitchReturns {
   public:
    explicit Returns(Rank& rank) : rank_(rank) {}
    void ask(SwitchLife life) override {
      std::erase_if(rank_.joining_, [&](const auto& each) { return each.first.at == life.at; });
      const std::size_t switches = rank_.world_.switches_.size();
      const char* const what = life.at >= switches ? "/scatters" : "";
      rank_.joining_.emplace(
          life, std::make_unique<Joining>(rank_, life.at % switches, fmt::format("job{}~{}", what, life.life)));
    }
    std::optional<Joined> take() override {
      for (auto& [life, joining] : rank_.joining_) {
        auto session = joining->pump(rank_.timeline_.now());
        if (!session) continue;
        Joined joined{life, std::move(session)};
        rank_.joining_.erase(joined.of);
        return joined;
      }
      return std::nullopt;
    }

   private:
    Rank& rank_;
  };
  struct ByPlace {
    bool operator()(const SwitchLife& a, const SwitchLife& b) const {
      return std::pair(a.at, a.life) < std::pair(b.at, b.life);
    }
  };

  void on_news() {
    has_news_ = true;
    wake();
  }

  void run() override {
    if (world_.failure_) return;
    if (has_left_ || (!session_ && !join())) return;
    const Nanoseconds now = timeline_.now();
    if (const auto handed = hand_over(); !handed) return fail(handed.error());
    if (std::exchange(has_news_, false)) session_->on_wake(std::array<pollfd, 1>{{{-1, POLLIN, POLLIN}}});
    if (is_leaving_) return leave();
    const auto moved = session_->pump(now);
    if (!moved) return fail(moved.error());
    unfinished_ -= session_->take_finished().size();
    is_leaving_ = world_.are_leaving_ && is_done();
    if (is_leaving_) return leave();
    if (*moved || (!session_->is_idle() && !session_->arm())) wake();
    wake_at(session_->deadline());
  }

  void leave() {
    has_left_ = session_->leave(std::nullopt, timeline_.now());
    if (has_left_) {
      session_.reset();
    } else {
      wake_at(session_->deadline());
    }
  }

  bool join() {
    for (std::size_t at = 0; at < in_switches_.size(); ++at) {
      const auto first = joining_.find({at, 0});
      if (first == joining_.end()) continue;
      in_switches_[at] = first->second->pump(timeline_.now());
      if (in_switches_[at]) joining_.erase(first);
    }
    if (!connections_ || !joining_.empty()) return false;
    const int world = world_.plan_.jobs[0].world;
    const group::PeerSessionOptions options{rank_, world, from_seconds(kTimeoutS)};
    auto among_ranks = std::make_unique<group::PeerSession>(options, std::move(*connections_),
                                                            group::Plans(world, rank_), timeline_.now());
    session_ =
        std::make_unique<group::SplitSession>(options, std::move(in_switches_), std::move(among_ranks),
                                              std::make_shared<group::ShareReport>(), std::make_unique<Returns>(*this));
    return true;
  }

  Result<void> hand_over() {
    while (!waiting_.empty() && (!world_.is_one_by_one_ || unfinished_ == waiting_.size())) {
      const auto [ticket, request] = waiting_.front();
      waiting_.pop_front();
      auto prepared = session_->prepare(request);
      if (!prepared) return tl::unexpected(prepared.error());
      session_->submit(ticket, request, std::move(*prepared));
    }
    return {};
  }

  void fail(const Error& error) { world_.failure_ = error; }

  BothWorld& world_;
  int rank_;
  std::uint32_t ip_;
  std::uint16_t next_port_ = kFirstPort;
  std::map<SwitchLife, std::unique_ptr<Joining>, ByPlace> joining_;
  std::vector<std::unique_ptr<group::SwitchSession>> in_switches_;  // until the others are met
  std::optional<group::PeerConnections> connections_;
  std::unique_ptr<group::SplitSession> session_;
  std::deque<std::pair<group::Ticket, CollectiveRequest>> waiting_;
  std::size_t unfinished_ = 0;  // of all, those that wait included
  bool has_news_ = true, is_leaving_ = false, has_left_ = false;
};

BothWorld::BothWorld(std::uint16_t world, double stream_bytes_s, std::uint64_t seed, const testing::Weather& weather,
                     std::size_t switches)
    : plan_(plan_of(world, stream_bytes_s, seed)), around_(plan_, {}), meeting_(around_, 0), switches_(switches) {
  around_.network.set_weather(weather);
  for (std::size_t at = 0; at < switches; ++at) start_switch(at);
  for (int rank = 0; rank < world; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
}

BothWorld::~BothWorld() = default;

void BothWorld::start_switch(std::size_t at) {
  switches_[at] = std::make_unique<testing::SwitchProcess>(around_, switch_lives_++, address_of_switch(at));
}

void BothWorld::narrow_switch(double bytes_s, std::size_t at) {
  around_.network.narrow(address_of_switch(at).ip, bytes_s);
}

void BothWorld::widen_switch(std::size_t at) {
  around_.network.widen(address_of_switch(at).ip);
}

void BothWorld::pause_switch(Nanoseconds time, std::size_t at) {
  switches_[at]->pause_until(now() + time);
}

void BothWorld::pause(int rank, Nanoseconds time) {
  ranks_[static_cast<std::size_t>(rank)]->pause_until(now() + time);
}

void BothWorld::block(int rank, bool is_outward, bool is_blocked, std::size_t at) {
  const IpAddress here = ip_of(rank), there = address_of_switch(at).ip;
  around_.network.block(is_outward ? here : there, is_outward ? there : here, is_blocked);
}

std::uint32_t BothWorld::ip_of(int rank) const {
  return ranks_[static_cast<std::size_t>(rank)]->ip();
}

void BothWorld::deafen(int rank) {
  const std::uint32_t ip = ip_of(rank);
  block(rank, false, true);
  for (const auto& other : ranks_) {
    if (other->ip() != ip) around_.network.block(other->ip(), ip, true);
  }
}

void BothWorld::stop(int rank) {
  ranks_[static_cast<std::size_t>(rank)]->pause_until(kNever);
}

void BothWorld::silence_switch() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) block(static_cast<int>(rank), false, true);
}

void BothWorld::submit(const CollectiveRequest& request) {
  auto collective = std::make_unique<Collective>(request);
  collective->request.algorithm.name = "split";
  const int world = plan_.jobs[0].world;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    auto& in = collective->in.emplace_back(group::in_bytes(request, world) / sizeof(float));
    for (float& each : in) each = static_cast<float>(around_.prng.unit() - 0.5);
    collective->out.emplace_back(group::out_bytes(request, world) / sizeof(float));
  }
  const auto ticket = static_cast<group::Ticket>(collectives_.size() + 1);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    CollectiveRequest own = collective->request;
    own.in = collective->in[rank].data();
    own.out = collective->out[rank].data();
    ranks_[rank]->submit(ticket, own);
    ranks_[rank]->pause_until(now() + around_.draw_time(kSubmitsWithin));
  }
  collectives_.push_back(std::move(collective));
}

bool BothWorld::are_all_done() const {
  return std::ranges::all_of(ranks_, [](const auto& rank) { return rank->is_done(); });
}

template <class Happened>
bool BothWorld::run_until(Happened has_happened, Nanoseconds limit) {
  const Nanoseconds until = now() + limit;
  while (!failure_ && !has_happened() && around_.timeline.step(until)) continue;
  return !failure_ && has_happened();
}

bool BothWorld::run_until_done(Nanoseconds limit) {
  return run_until([this] { return are_all_done(); }, limit);
}

bool BothWorld::run_until_left(Nanoseconds limit) {
  return run_until([this] { return std::ranges::all_of(ranks_, [](const auto& each) { return each->has_left(); }); },
                   limit);
}

bool BothWorld::run_until_ahead(int rank, int of, Nanoseconds limit) {
  const auto unfinished = [this](int of_rank) { return ranks_[static_cast<std::size_t>(of_rank)]->unfinished(); };
  return run_until([&] { return unfinished(rank) < unfinished(of); }, limit);
}

bool BothWorld::run_for(Nanoseconds time) {
  run_until([] { return false; }, time);
  return !failure_;
}

std::vector<std::byte> BothWorld::expected(const Collective& collective, std::size_t rank) const {
  std::vector<std::vector<std::byte>> inputs;
  for (const auto& each : collective.in) {
    const auto bytes = std::as_bytes(std::span(each));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return testing::plain_result(collective.request, std::move(inputs), rank);
}

int BothWorld::wrong_results() {
  int wrong = 0;
  for (; looked_at_ < collectives_.size(); ++looked_at_) {
    Collective& collective = *collectives_[looked_at_];
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      wrong += are_same_bits(collective.out[rank], expected(collective, rank)) ? 0 : 1;
    }
    collective.in.clear();  // a long test has many
    collective.out.clear();
  }
  return wrong;
}

std::vector<std::uint64_t> BothWorld::counters(const char* name) const {
  std::vector<std::uint64_t> values;
  for (const auto& rank : ranks_) values.push_back(rank->counter(name));
  return values;
}

}  // namespace netfold::tests
