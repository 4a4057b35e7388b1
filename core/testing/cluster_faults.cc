// What goes wrong in a cluster.
#include <algorithm>
#include <array>
#include <utility>

#include "testing/cluster.h"

namespace netfold::testing {
namespace {

constexpr std::uint32_t kIntruderIp = 0x0a000f00;
// A few hundred bytes must pass now and then: a rank that moves is not blamed.
constexpr double kSlowestBytesPerS = 4000;

}  // namespace

Cluster::Seat& Cluster::seat_of(std::size_t job, std::uint16_t rank) {
  return *std::find_if(seats_.begin(), seats_.end(), [&](const Seat& seat) {
    return seat.rank == Party{static_cast<int>(job), rank};
  });
}

std::vector<std::uint32_t> Cluster::peers_of(const Seat& seat) const {
  if (!job_of(seat).is_among_peers) return {kSwitchAddress.ip.v4()};
  std::vector<std::uint32_t> ips;
  for (const Seat& other : seats_) {
    if (other.rank.job == seat.rank.job && other.rank != seat.rank) ips.push_back(other.ip);
  }
  return ips;
}

void Cluster::inflict(const FaultPlan& fault) {
  Seat& seat = seat_of(fault.job, fault.rank);
  const Nanoseconds end = end_of(fault.lasts);
  switch (fault.kind) {
    case FaultKind::kPauseWorker:
      if (!seat.process) return;
      around_.history.begin_trouble(seat.rank, trouble::kPaused);
      seat.process->pause_until(end);
      return around_.timeline.at(end, [this, &seat] { around_.history.end_trouble(seat.rank, trouble::kPaused); });
    case FaultKind::kStall:
      if (!seat.process) return;
      around_.history.begin_trouble(seat.rank, "stalled");
      seat.process->compute_until(end);
      return around_.timeline.at(end, [this, &seat] { around_.history.end_trouble(seat.rank, "stalled"); });
    case FaultKind::kPauseSwitch:
      if (!switch_) return;
      around_.history.begin_trouble(kTheSwitch, trouble::kPaused);
      switch_->pause_until(end);
      switch_resumes_at_ = std::max(switch_resumes_at_, end);
      return around_.timeline.at(end, [this] { around_.history.end_trouble(kTheSwitch, trouble::kPaused); });
    case FaultKind::kKillWorker: return crash(seat, false, fault.lasts);
    case FaultKind::kPowerWorker: return crash(seat, true, fault.lasts);
    case FaultKind::kKillSwitch: return crash_switch(false, fault.lasts);
    case FaultKind::kPowerSwitch: return crash_switch(true, fault.lasts);
    case FaultKind::kStopSwitch: return stop_switch(fault.lasts);
    case FaultKind::kPartition:
    case FaultKind::kPartitionOneWay: return partition(seat, fault);
    case FaultKind::kCut:
      around_.history.begin_trouble(seat.rank, trouble::kCut);
      around_.network.cut_connections(seat.ip);
      // A paused switch hears of it late.
      return around_.timeline.at(calm_at_ + around_.liveness.silence_max(),
                                 [this, &seat] { around_.history.end_trouble(seat.rank, trouble::kCut); });
    case FaultKind::kIntruder: return send_intruder(fault);
    case FaultKind::kStranger: return send_stranger(fault.lasts);
    default: return inflict_among_peers(seat, fault);
  }
}

void Cluster::inflict_among_peers(Seat& seat, const FaultPlan& fault) {
  auto* const process = static_cast<PeerProcess*>(seat.process.get());
  switch (fault.kind) {
    case FaultKind::kPartPeers: return partition(seat, fault);
    case FaultKind::kCutLine:
    case FaultKind::kCutStream: return cut(seat, fault);
    case FaultKind::kSlow:
      around_.history.note("the streams of {} are slow", History::to_string(seat.rank));
      around_.network.slow_down(seat.ip, kSlowestBytesPerS * static_cast<double>(1 + fault.detail % 16));
      return around_.timeline.at(end_of(fault.lasts), [this, &seat] { around_.network.slow_down(seat.ip, 0); });
    case FaultKind::kDisagree:
      if (process) process->disagree(fault.detail);
      return;
    case FaultKind::kLeaveEarly:
    case FaultKind::kGiveUp:
      if (process) process->leave_early(fault.kind == FaultKind::kGiveUp);
      return;
    default: return;
  }
}

// Of the rank with the switch, or with all other ranks of its job, or with one of them.
void Cluster::partition(Seat& seat, const FaultPlan& fault) {
  const bool is_pair = fault.kind == FaultKind::kPartPeers;
  const bool both = fault.kind == FaultKind::kPartition || (is_pair && fault.detail % 3 != 0);
  Seat& other = seat_of(fault.job, is_pair ? fault.other : fault.rank);
  if (is_pair && &other == &seat) return;
  const std::vector<std::uint32_t> ends = is_pair ? std::vector{other.ip} : peers_of(seat);
  const auto set = [this, &seat, both, is_outward = fault.is_outward, ends](bool is_blocked) {
    for (const std::uint32_t end : ends) {
      if (both || is_outward) around_.network.block(seat.ip, end, is_blocked);
      if (both || !is_outward) around_.network.block(end, seat.ip, is_blocked);
    }
  };
  for (const Seat* const each : std::array<const Seat*, 2>{&seat, &other})
    around_.history.begin_trouble(each->rank, trouble::kCutOff);
  set(true);
  // At a switch, what was sent meanwhile comes late, perhaps in the next life. Ranks among themselves meet anew.
  const Nanoseconds echo = job_of(seat).is_among_peers ? 0 : around_.liveness.silence_max();
  around_.timeline.at(end_of(fault.lasts), [this, &seat, &other, set, echo] {
    around_.history.note("{} is reached again", History::to_string(seat.rank));
    set(false);
    around_.timeline.after(echo, [this, &seat, &other] {
      for (const Seat* const each : std::array<const Seat*, 2>{&seat, &other})
        around_.history.end_trouble(each->rank, trouble::kCutOff);
    });
  });
}

void Cluster::cut(Seat& seat, const FaultPlan& fault) {
  const Seat& other = seat_of(fault.job, fault.other);
  if (&other == &seat) return;
  // Only those who are connected now notice.
  for (const Seat* const each : std::array<const Seat*, 2>{&seat, &other}) {
    around_.history.begin_trouble(each->rank, trouble::kCut);
    around_.history.end_trouble(each->rank, trouble::kCut);
  }
  const bool is_line = fault.kind == FaultKind::kCutLine;
  around_.network.cut_connections(seat.ip, other.ip, is_line ? Network::Cut::kLines : Network::Cut::kStreams);
}

void Cluster::send_intruder(const FaultPlan& fault) {
  if (plan_.secret.empty()) return;
  const Party rank{static_cast<int>(fault.job), fault.rank};
  const link::Address address{kIntruderIp + static_cast<std::uint32_t>(intruders_.size()), kWorkerPort};
  intruders_.push_back(
      std::make_unique<WorkerProcess>(around_, WorkerProcess::Options{rank, address, plan_.seed, true}, [] {}));
}

void Cluster::send_stranger(Nanoseconds lasts) {
  around_.network.connect(kIntruderIp - 1, kSwitchAddress, [this](std::unique_ptr<link::ControlLink> link) {
    if (!link) return;
    if (around_.prng.chance(0.5)) link->write(around_.prng.chance(0.5) ? "hello?\n" : "{\"type\":\"join\"");
    strangers_.push_back(std::move(link));
  });
  around_.timeline.at(end_of(lasts), [this] { strangers_.clear(); });
}

}  // namespace netfold::testing
