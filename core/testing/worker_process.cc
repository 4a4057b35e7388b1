#include "testing/worker_process.h"

#include <poll.h>

#include <utility>

namespace netfold::testing {

WorkerProcess::WorkerProcess(Surroundings& around, Options options, std::function<void()> on_exit)
    : RankProcess(around, options, std::move(on_exit)),
      link_(around.network.open(options.address, [this] { wake(); })) {
  const JobPlan& job = plan();
  join_options_.switch_address = "switch:7171";
  join_options_.job = job.name;
  join_options_.world = job.world;
  join_options_.rank = static_cast<std::uint16_t>(options.rank.rank);
  join_options_.secret = options.is_intruder ? "another secret" : around.plan.secret;
  join_options_.require_auth = around.plan.require_auth && !options.is_intruder;
  join_options_.udp_port = options.address.port;
  join_options_.mtu = job.mtu;
  join_options_.bfp = job.bfp;
  join_options_.window = job.window;
  join_options_.timeout_s = join_options_.connect_timeout_s = job.timeout_s;
  attempts_ = std::make_unique<membership::JoinAttempts>(
      join_options_, kSwitchAddress,
      [this] {
        control::Nonce nonce;
        for (std::byte& b : nonce) b = static_cast<std::byte>(around_.prng.next());
        return nonce;
      },
      timeline_.now());
}

// --- Joining ---

void WorkerProcess::join() {
  const Nanoseconds now = timeline_.now();
  if (attempts_->begin_attempt(now)) begin_attempt();
  auto joined = attempts_->pump(now);
  if (!joined) {
    refused_ = attempts_->take_connection();
    return fail_to_join(joined.error());
  }
  if (*joined) return start(std::move(*joined));
  wake_at(attempts_->deadline());
}

void WorkerProcess::begin_attempt() {
  const std::uint64_t attempt = ++attempt_;
  around_.network.connect(
      options_.address.ip, kSwitchAddress,
      [this, attempt, alive = std::weak_ptr<int>(alive())](std::unique_ptr<link::ControlLink> link) {
        if (alive.expired() || attempt != attempt_ || state_ != State::kJoining || !attempts_->is_connecting()) return;
        if (!link) {
          attempts_->on_unreachable("Connection refused", timeline_.now());
        } else {
          on_news_of(*link, [this] { on_news(); });
          attempts_->on_connected(std::move(link), timeline_.now());
        }
        wake();
      });
}

void WorkerProcess::start(std::unique_ptr<membership::ControlConnection> control) {
  const wire::Lease lease = control->lease();
  around_.admissions.on_worker_admitted(options_.rank, options_.is_intruder);
  around_.history.note("{} is in epoch {}", History::to_string(options_.rank), lease.epoch);
  const AdmissionsChecker::Life life = around_.admissions.life_of(lease);
  around_.bits.on_admitted(life.number, options_.rank, options_.seed);
  begin(std::make_unique<group::SwitchSession>(
            group::SwitchSessionOptions{.rank = join_options_.rank,
                                        .window = join_options_.window,
                                        .timeout = from_seconds(join_options_.timeout_s),
                                        .switch_name = join_options_.switch_address},
            std::move(link_), std::move(control)),
        life);
}

// --- Working and leaving ---

void WorkerProcess::sleep(bool) {
  std::vector<pollfd> polls;
  session_->add_polls(polls);
  const bool link_is_full = polls.size() > 1 && (polls[1].events & POLLOUT) != 0;
  if (link_is_full) wake_at(timeline_.now() + kFullPause);
}

std::optional<Nanoseconds> WorkerProcess::part(Nanoseconds now) {
  if (session_) return RankProcess::part(now);
  if (!refused_ || refused_->leave(error_, now)) return {};
  return refused_->deadline();
}

void WorkerProcess::let_go() {
  RankProcess::let_go();
  refused_.reset();
  attempts_.reset();
  link_.reset();
}

}  // namespace netfold::testing
