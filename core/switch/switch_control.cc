#include "switch/switch_control.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>
#include <variant>

#include "switch/ethernet/headers.h"
#include "wire/path_probe.h"

namespace netfold::switching {
namespace {

constexpr Nanoseconds kLingerMax = 2 * kSecond;  // for a closed peer to take its last line
constexpr Nanoseconds kStopMax = kSecond;        // the same, when the whole switch stops

using State = link::ControlLink::State;

}  // namespace

SwitchControl::SwitchControl(SwitchRules rules, DataPlane& data_plane, SwitchControlOptions options)
    : options_(std::move(options)), data_plane_(data_plane), table_(std::move(rules)), uplinks_(options_.uplink) {}

void SwitchControl::accept(std::unique_ptr<link::ControlLink> link, const IpAddress& ip, Nanoseconds now,
                           const std::optional<IpAddress>& source_ip, const std::string& interface) {
  if (peers_.size() >= options_.connections_max) make_room();
  if (peers_.size() >= options_.connections_max) {
    link->write(
        control::emit(control::Refused{fmt::format("the switch has {} connections, as many as it takes", peers_.size()),
                                       ErrorCode::kRefused, kNoRank, 0}));
    return;
  }
  const ConnectionId id = next_id_++;
  peers_[id].link = std::move(link);
  table_.on_open(id, ip, now, source_ip, interface);
}

bool SwitchControl::make_room() {
  for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
    if (table_.has_joined(peer->first)) continue;
    if (!peer->second.is_closing) table_.on_close(peer->first, "made room");
    peers_.erase(peer);
    return true;
  }
  return false;
}

void SwitchControl::serve(ConnectionId id, Nanoseconds now) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  const auto got = peer.link->read([&](std::string_view line) {
    if (!peer.is_closing) table_.on_line(id, line, now);
  });
  if (got.state == State::kGarbage) table_.on_violation(id, got.why);
  if (got.state == State::kClosed) return lose(id, peer, got.why, now);
  if (const auto sent = peer.link->flush(); sent.state != State::kOpen) lose(id, peer, sent.why, now);
}

void SwitchControl::on_mismatch(std::uint16_t job, std::uint16_t epoch, int rank, const std::string& what) {
  table_.on_mismatch(job, epoch, rank, what);
}

void SwitchControl::on_time(Nanoseconds now) {
  table_.on_time(now);
  if (now >= next_look_) look_at_jobs(now);
}

void SwitchControl::look_at_jobs(Nanoseconds now) {
  next_look_ = now + FairShares::kPeriod;
  std::map<FairShares::Job, FairShares::Share> shares;
  std::map<LateRanks::Job, std::vector<std::uint64_t>> came_last;
  const auto running = table_.running_jobs();
  for (const auto& [job, each] : running) {
    const JobCounters counters = data_plane_.counters(each.number);
    shares[job] = {{.up = counters.received_bytes + counters.up_received_bytes,
                    .down = counters.sent_bytes + counters.up_sent_bytes},
                   each.interface,
                   counters.ranks.size()};
    for (const RankCounters& rank : counters.ranks) came_last[job].push_back(rank.came_last);
  }
  const auto interfaces = traffic_of_the_only_interface(running);
  for (const auto& [job, share] : shares_.look(shares, interfaces, now)) table_.on_link_share(job, share);
  for (const auto& [job, place] : late_.look(came_last)) table_.on_late_rank(job, place);
}

// Where jobs are behind several interfaces, the packets of the switch are not known for each.
std::map<std::string, FairShares::Interface> SwitchControl::traffic_of_the_only_interface(
    const std::map<JobKey, RunningJob>& running) const {
  if (running.empty() || !options_.traffic_of) return {};
  const RunningJob& first = running.begin()->second;
  const bool is_only =
      std::ranges::all_of(running, [&](const auto& each) { return each.second.interface == first.interface; });
  if (!is_only || first.interface.empty()) return {};
  const auto traffic = options_.traffic_of(first.interface);
  if (!traffic) return {};
  const link::LinkStats own = data_plane_.link_stats();
  const std::size_t header_bytes = kEthernetBytes + first.header_bytes;
  return {{first.interface,
           {.carried = {.up = traffic->received_bytes, .down = traffic->sent_bytes},
            .own = {.up = own.received_bytes + own.received_packets * header_bytes,
                    .down = own.sent_bytes + own.sent_packets * header_bytes}}}};
}

void SwitchControl::stop(const std::string& why) {
  is_stopping_ = true;
  table_.on_stop(why);
}

void SwitchControl::settle(Nanoseconds now) {
  do {
    act(now);
  } while (hear_above(now));
  close_done(now);
}

// True if the switch above has said something.
bool SwitchControl::hear_above(Nanoseconds now) {
  const auto events = uplinks_.pump(now);
  for (const Uplinks::Event& event : events) {
    if (const auto* present = std::get_if<Uplinks::Present>(&event)) {
      table_.on_present_above(present->key, present->ranks);
    } else if (const auto* admitted = std::get_if<Uplinks::Admitted>(&event)) {
      table_.on_admitted_above(admitted->key, admitted->lease, admitted->shards, now);
    } else if (const auto* left = std::get_if<Uplinks::Left>(&event)) {
      table_.on_left_above(left->key, left->rank);
    } else if (const auto* lost = std::get_if<Uplinks::Lost>(&event)) {
      table_.on_lost_above(lost->key, lost->error);
    } else if (const auto* shared = std::get_if<Uplinks::Shared>(&event)) {
      table_.on_link_share(shared->key, shared->share);
    }
  }
  return !events.empty();
}

bool SwitchControl::sends_back(const link::Incoming& datagram) const {
  const auto probe = wire::read_path_probe(datagram.bytes);
  return probe && table_.has_greeted(probe->nonce, datagram.from.ip);
}

Nanoseconds SwitchControl::deadline() const {
  Nanoseconds deadline = is_stopping_ ? kNever : table_.deadline();
  for (const auto& [id, peer] : peers_) deadline = std::min(deadline, peer.close_by);
  if (!is_stopping_ && table_.has_running_jobs()) deadline = std::min(deadline, next_look_);
  return std::min(deadline, uplinks_.deadline());
}

void SwitchControl::lose(ConnectionId id, Peer& peer, const std::string& why, Nanoseconds now) {
  act(now);  // answers to what came before the end may have closed it in order
  if (!peer.is_closing) table_.on_close(id, why);
  peer.is_closing = true;
  peer.close_by = 0;
}

// Carries out what the table decided, and what it decides when that fails, until it rests.
void SwitchControl::act(Nanoseconds now) {
  for (auto actions = table_.take_actions(); !actions.empty(); actions = table_.take_actions()) {
    for (const Action& action : actions) {
      std::visit([&](const auto& what) { carry_out(what, now); }, action);
    }
  }
}

void SwitchControl::carry_out(const SendLine& send, Nanoseconds) {
  const auto found = peers_.find(send.connection);
  if (found == peers_.end()) return;
  const auto outcome = found->second.link->write(send.line);
  if (outcome.state == State::kOpen) return;
  table_.on_close(send.connection, outcome.why);
  found->second.is_closing = true;
  found->second.close_by = 0;
}

void SwitchControl::carry_out(const CloseConnection& close, Nanoseconds now) {
  const auto found = peers_.find(close.connection);
  if (found == peers_.end()) return;
  found->second.is_closing = true;
  found->second.close_by = std::min(found->second.close_by, now + (is_stopping_ ? kStopMax : kLingerMax));
}

void SwitchControl::carry_out(const AdmitJob& admit, Nanoseconds) {
  Admission admission;
  admission.lease = admit.lease;
  for (const Endpoint& worker : admit.workers) admission.workers.push_back({worker.ip, worker.port});
  admission.tree = admit.tree;
  if (admit.host) admission.host = link::Address{admit.host->ip, admit.host->port};
  try {
    data_plane_.admit(std::move(admission));
  } catch (const std::bad_alloc&) {
    table_.on_no_memory(admit.lease.job, admit.lease.epoch);
  }
}

void SwitchControl::carry_out(const EvictJob& evict, Nanoseconds) {
  data_plane_.evict(evict.job);
}

void SwitchControl::carry_out(const LogLine& line, Nanoseconds now) {
  if (options_.log) options_.log(line, now);
}

void SwitchControl::close_done(Nanoseconds now) {
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    Peer& it = peer->second;
    if (it.is_closing && !it.is_shut && !it.link->wants_to_write()) {
      it.link->shut_down_writing();
      it.is_shut = true;
    }
    peer = it.is_closing && now >= it.close_by ? peers_.erase(peer) : std::next(peer);
  }
}

}  // namespace netfold::switching
