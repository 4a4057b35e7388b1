#include "testing/peer_process.h"

#include <array>
#include <utility>

#include "group/via_peers/buffer_layout.h"
#include "testing/plan_peers.h"

namespace netfold::testing {
namespace {

using schedule::Collective;

constexpr Nanoseconds kConnectingMax = 20 * kMillisecond;  // from the meeting to the first request

// Whether it has become something else that a rank may ask for.
bool change(group::CollectiveRequest& request, const JobPlan& job, std::uint64_t detail) {
  const bool has_elements = request.collective != Collective::kBarrier;
  switch (detail % 6) {
    case 0:
      if (!has_elements || request.count == 0) return false;
      --request.count;
      return true;
    case 1:
      request.format = request.format == numbers::Format::kBf16 ? numbers::Format::kFp16 : numbers::Format::kBf16;
      return has_elements && numbers::can_travel_as(request.type, request.format);
    case 2: request.average = !request.average; return group::folds(request.collective);
    case 3: {
      const auto table = schedule::algorithms();
      const std::string other = table[(detail >> 8) % table.size()].name;
      return other != std::exchange(request.algorithm.name, other) && is_served(job, request);
    }
    case 4: request.root = (request.root + 1) % job.world; return request.collective == Collective::kBroadcast;
    default:
      request = {};
      if (!has_elements) return true;
      request.collective = Collective::kBarrier;
      request.algorithm.name = "dissemination";
      return true;
  }
}

}  // namespace

PeerProcess::PeerProcess(Surroundings& around, Meeting& meeting, Options options, std::function<void()> on_exit)
    : RankProcess(around, options, std::move(on_exit)), meeting_(meeting) {}

// --- Meeting the others ---

void PeerProcess::join() {
  const Nanoseconds now = timeline_.now(), gives_up_at = started_at_ + from_seconds(plan().timeout_s);
  if (!std::exchange(has_come_, true)) {
    meeting_.come(options_.rank.rank, {options_.address.ip.v4(), options_.seed, [this] { on_news(); },
                                       [this](AdmissionsChecker::Life life, group::PeerConnections connections) {
                                         life_ = life;
                                         connections_ = std::move(connections);
                                         begins_at_ = timeline_.now() + around_.draw_time(kConnectingMax);
                                         wake_at(begins_at_);
                                       }});
  }
  if (!connections_ && now >= gives_up_at) {
    meeting_.go(options_.rank.rank);
    around_.history.note("{} has not met the others", History::to_string(options_.rank));
    around_.liveness.on_error(options_.rank, {ErrorCode::kTimeout, "it has not met the others", kNoRank});
    return leave();
  }
  if (now < begins_at_) return wake_at(connections_ ? begins_at_ : gives_up_at);
  const group::PeerSessionOptions session{options_.rank.rank, plan().world, from_seconds(plan().timeout_s)};
  group::Plans plans(plan().world, options_.rank.rank);
  plans.set_order(plan().order);
  plans.set_networked(!plan().stream.is_memory);
  begin(
      std::make_unique<group::PeerSession>(session, std::move(*std::exchange(connections_, {})), std::move(plans), now),
      life_);
}

// --- Working ---

// As the driver: it sleeps once nothing moves and no link has news.
void PeerProcess::sleep(bool has_moved) {
  if (has_moved || (!session_->is_idle() && !session_->arm())) wake();
}

// Nobody drives a group without a thread while its caller computes.
bool PeerProcess::rests() const {
  return plan().drives_in_waits && submitted_ == finished_ && timeline_.now() < acts_at_ && !session_->has_unsent();
}

group::CollectiveRequest PeerProcess::ask(std::size_t index) {
  const group::CollectiveRequest planned = RankProcess::ask(index);
  if (!disagreement_ || plan().world == 1) return planned;
  for (std::uint64_t detail = *std::exchange(disagreement_, {});; ++detail) {
    group::CollectiveRequest asked = planned;
    if (!change(asked, plan(), detail)) continue;
    around_.history.begin_trouble(options_.rank, trouble::kDisagreeing);
    other_than_planned_ = index;
    return tensors_[index].with_memory(asked);
  }
}

// --- Leaving ---

void PeerProcess::leave_early(bool with_a_reason) {
  if (state_ != State::kWorking || submitted_ == wanted_) return;
  around_.history.begin_trouble(options_.rank, "leaving early");
  wanted_ = submitted_;
  acts_at_ = timeline_.now();
  if (with_a_reason) {
    error_ = Error{ErrorCode::kPeerFailed, "the training diverged", kNoRank};
    state_ = State::kLeaving;
  }
  wake();
}

std::optional<Nanoseconds> PeerProcess::part(Nanoseconds now) {
  if (const auto again = RankProcess::part(now)) return again;
  for (const group::Ticket ticket :
       session_ ? session_->abort({ErrorCode::kInvalidArgument, "closed"}, now) : std::vector<group::Ticket>{}) {
    tensors_[ticket].state = Tensor::State::kFailed;
  }
  return {};
}

}  // namespace netfold::testing
