#include "group/via_switch/data_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "group/session.h"

namespace netfold::group {
namespace {

constexpr std::size_t kReceiveMost = 1024;  // datagrams a batch
constexpr std::size_t kBatchesAtOnce = 16;  // a bound, so that a flood does not delay heartbeats and time-outs
constexpr int kUnansweredProbesMost = 5;    // after so many the switch no longer answers

// Transmissions prepared at once. Of large packets, as many as one segmented send carries: their tags have read the
// payloads, and the copy to the kernel then finds them in the cache.
std::size_t send_most(const wire::Lease& lease) {
  constexpr std::size_t kMost = 64, kLargeBytes = 4096;
  if (lease.payload_bytes < kLargeBytes) return kMost;
  const std::size_t packet_bytes = wire::kHeaderBytes + lease.payload_bytes + (lease.keys ? wire::kTagBytes : 0);
  return std::max<std::size_t>(1, link::kSegmentedBytesMax / packet_bytes);
}

}  // namespace

DataPath::DataPath(const wire::Lease& lease, std::uint16_t rank, WindowOptions options, link::Link& link,
                   std::vector<link::Address> shards)
    : lease_(lease),
      rank_(rank),
      link_(link),
      shards_(std::move(shards)),
      window_(lease, options),
      prepared_(send_most(lease)),
      payload_room_(prepared_.size() * lease.payload_bytes) {
  assert(shards_.size() == lease.shards && rank < lease.world);
  pending_.reserve(prepared_.size());
  sending_.reserve(prepared_.size());
}

void DataPath::watch_path(link::Address path, const control::Nonce& nonce) {
  path_ = path;
  path_nonce_ = nonce;
}

Nanoseconds DataPath::deadline() const {
  const Nanoseconds deadline = std::min(window_.deadline(), link_.deadline());
  if (path_.port == 0 || window_.is_idle()) return deadline;
  return std::min(deadline, path_watch_.begin_at(window_.last_progress()));
}

void DataPath::on_share(const control::LinkShare& share, Nanoseconds now) {
  if (share.of_fair > 1) window_.give_way(share.of_fair, now);
  if (share.grant_bytes_s > 0) window_.on_grant(share.grant_bytes_s, now);
}

void DataPath::submit(std::unique_ptr<Operation> operation, Nanoseconds now) {
  if (operation->chunks() == 0) {
    finished_.push_back(operation->ticket());
    return;
  }
  if (window_.is_idle()) heard_at_ = now;
  operations_.push_back(std::move(operation));  // first: start() may be refused memory
  operations_.back()->start(window_.end(), buffers_);
  window_.extend(operations_.back()->chunks(), now);
}

bool DataPath::pump(Nanoseconds now) {
  // While this rank did not run, it did not ask the switch.
  if (now - pumped_at_ > 2 * window_.probe_period_max()) heard_at_ = now;
  pumped_at_ = now;
  receive(now);
  window_.on_time(now);
  if (path_.port != 0 && !window_.is_idle() && path_watch_.begin_pair(now, window_.last_progress())) {
    send_path_probes();
  }
  return send(now);
}

std::vector<Operation::Ticket> DataPath::take_finished() {
  return std::exchange(finished_, {});
}

std::vector<Operation::Ticket> DataPath::abandon() {
  std::vector<Operation::Ticket> tickets;
  for (const auto& operation : operations_) {
    if (operation->is_whole()) continue;
    operation->put_back();
    tickets.push_back(operation->ticket());
  }
  operations_.clear();
  pending_.clear();
  return tickets;
}

std::optional<Error> DataPath::overdue(Nanoseconds now, Nanoseconds timeout, const std::string& switch_name,
                                       const std::string& above) const {
  if (window_.is_idle() || now - window_.last_progress() < timeout) return std::nullopt;
  const double waited_s = to_seconds(timeout);
  // An answer of the switch from long ago, before it fell silent itself, no longer blames a rank.
  const bool answers = window_.answered_at() != kNever &&
                       now - window_.answered_at() <= kUnansweredProbesMost * window_.probe_period_max();
  const auto rank = window_.missing_rank();
  if (rank == wire::kSwitchWorker && answers) {
    return Error{ErrorCode::kSwitchFailed,
                 fmt::format("the switch {} had no answer of the switch above it, {}, for {:g} s: check that this one "
                             "runs and that UDP passes both ways between the two",
                             switch_name, above, waited_s)};
  }
  if (rank && answers) return silent_rank(*rank, rank_, timeout);
  if (answers) {
    return Error{ErrorCode::kTimeout,
                 fmt::format("the switch {} answers, but contributions of this rank ({}) did not reach it for {:g} s: "
                             "check the path for packets of {} bytes (MTU)",
                             switch_name, rank_, waited_s, packet_bytes()),
                 rank_};
  }
  return no_answer(switch_name, waited_s);
}

std::size_t DataPath::packet_bytes() const {
  const std::size_t tag_bytes = lease_.keys ? wire::kTagBytes : 0;
  return shards_.front().ip.header_bytes() + wire::kUdpBytes + wire::kHeaderBytes + lease_.payload_bytes + tag_bytes;
}

// The oldest chunk is probed at least every probe_period_max(), and a switch that runs answers each probe.
std::optional<Error> DataPath::silent(Nanoseconds now, Nanoseconds longest, const std::string& switch_name) const {
  if (window_.is_idle() || now - heard_at_ <= longest) return std::nullopt;
  return no_answer(switch_name, to_seconds(longest));
}

Error DataPath::no_answer(const std::string& switch_name, double waited_s) const {
  return {ErrorCode::kSwitchFailed,
          fmt::format("the switch {} did not answer rank {}'s data packets for {:g} s: check that it runs and that UDP "
                      "passes both ways, or raise the timeout of the group",
                      switch_name, rank_, waited_s)};
}

DataPathStats DataPath::stats() const {
  return {window_.stats(), link_.stats(), dropped_packets_, reduced_elements_};
}

void DataPath::receive(Nanoseconds now) {
  for (std::size_t batch = 0; batch < kBatchesAtOnce; ++batch) {
    const auto datagrams = link_.receive(kReceiveMost);
    if (datagrams.empty()) return;
    for (const link::Incoming& datagram : datagrams) handle(datagram, now);
    send(now);  // what the results made room for: keeping the wire busy comes first
  }
}

bool DataPath::is_ours(const link::Incoming& datagram, const wire::Packet& packet) const {
  return datagram.from == shards_[lease_.shard_of(packet.header.chunk)] &&
         wire::is_of_lease(lease_, packet, datagram.bytes);
}

// The small one first: the kernel might take the two as one, and refuse both.
void DataPath::send_path_probes() {
  const auto large = wire::emit(wire::PathProbe{path_nonce_, path_watch_.large()});
  const auto small = wire::emit(wire::PathProbe{path_nonce_, path_watch_.small()});
  const std::size_t datagram_bytes = packet_bytes() - shards_.front().ip.header_bytes() - wire::kUdpBytes;
  const auto room = std::span<const std::byte>(payload_room_).first(datagram_bytes - large.size());
  const std::array<link::Outgoing, 2> pair{{{path_, small, {}, {}}, {path_, large, room, {}}}};
  link_.send(pair);  // what the link refuses is lost
}

std::optional<Error> DataPath::shrunk(const std::string& switch_name) const {
  if (!path_watch_.has_shrunk()) return std::nullopt;
  return Error{ErrorCode::kSwitchFailed,
               fmt::format("the MTU of the path between rank {} and the switch {} has shrunk: packets of {} bytes no "
                           "longer pass, and small ones do; see `ip link` and the routers on the way, then start the "
                           "job again",
                           rank_, switch_name, packet_bytes()),
               rank_};
}

void DataPath::handle(const link::Incoming& datagram, Nanoseconds now) {
  if (const auto probe = wire::read_path_probe(datagram.bytes); probe && path_.port != 0) {
    if (probe->nonce == path_nonce_) path_watch_.on_answer(probe->number, now);
    return;
  }
  wire::Packet packet;
  if (wire::parse(datagram.bytes, packet) != wire::ParseError::kNone || !is_ours(datagram, packet)) {
    ++dropped_packets_;
    return;
  }
  heard_at_ = now;
  if (packet.header.kind == wire::Kind::kEcho) return window_.on_echo(packet.header.chunk, now, packet.header.count);
  const auto position = window_.position_of(packet.header.chunk);
  if (!position) return;  // a late duplicate
  switch (packet.header.kind) {
    case wire::Kind::kCopied:
    case wire::Kind::kResult: return handle_result(packet, *position, now);
    case wire::Kind::kDone: return handle_done(*position, now);
    case wire::Kind::kMissing: return window_.on_missing(*position, now);
    case wire::Kind::kWaiting: return window_.on_waiting(*position, packet.header.worker, now);
    default: ++dropped_packets_;
  }
}

void DataPath::handle_result(const wire::Packet& packet, Window::Position position, Nanoseconds now) {
  Operation& operation = operation_at(position);
  if (!operation.accepts(position, packet)) {
    ++dropped_packets_;
    return;
  }
  if (!window_.on_result(position, now, operation.direction())) return;
  operation.store(position, packet.payload);
  finish_if_whole(operation);
}

void DataPath::handle_done(Window::Position position, Nanoseconds now) {
  Operation& operation = operation_at(position);
  if (!operation.accepts_done(position)) {
    ++dropped_packets_;
    return;
  }
  if (!window_.on_result(position, now, operation.direction())) return;
  operation.store_done(position);
  finish_if_whole(operation);
}

void DataPath::finish_if_whole(Operation& operation) {
  if (!operation.is_whole()) return;
  finished_.push_back(operation.ticket());
  reduced_elements_ += operation.elements();
  while (!operations_.empty() && operations_.front()->is_whole()) {
    operations_.front()->finish(buffers_);
    operations_.pop_front();
  }
}

// Transmissions are kept, not packets: a tensor's memory is the caller's again once its operation is finished, so what
// the link did not take is prepared anew, if it is still wanted.
bool DataPath::send(Nanoseconds now) {
  for (;;) {
    std::erase_if(pending_,
                  [&](const auto& each) { return each.kind != wire::Kind::kEcho && window_.is_done(each.position); });
    while (pending_.size() < prepared_.size()) {
      const auto transmission = window_.next(now);
      if (!transmission) break;
      pending_.push_back(*transmission);
    }
    if (pending_.empty()) return false;
    // Neighbours to one shard travel as one segmented send, which a packet of another size ends.
    const auto place_in_batch = [&](const Window::Transmission& each) {
      return std::pair(each.kind != wire::Kind::kContribution,
                       lease_.shard_of(static_cast<std::uint32_t>(each.position)));
    };
    std::ranges::stable_sort(pending_, {}, place_in_batch);
    sending_.clear();
    for (std::size_t place = 0; place < pending_.size(); ++place) sending_.push_back(prepare(pending_[place], place));
    const std::size_t taken = link_.send(sending_);
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(taken));
    if (taken < sending_.size()) return true;
  }
}

link::Outgoing DataPath::prepare(const Window::Transmission& transmission, std::size_t place) {
  const auto chunk = static_cast<std::uint32_t>(transmission.position);
  wire::Header header = lease_.header(transmission.kind, rank_, chunk);
  std::span<const std::byte> payload;
  if (transmission.kind == wire::Kind::kProbe && transmission.position == window_.base()) {
    header.count =
        static_cast<std::uint16_t>(std::min<std::uint64_t>(window_.sent_after(transmission.position), 0xffff));
  }
  if (transmission.kind == wire::Kind::kContribution) {
    const Operation& operation = operation_at(transmission.position);
    lease_.reach(chunk);
    operation.describe(transmission.position, header);
    payload = operation.payload(transmission.position,
                                std::span(payload_room_).subspan(place * lease_.payload_bytes, lease_.payload_bytes));
  }
  Prepared& prepared = prepared_[place];
  prepared.head = wire::emit(header);
  std::span<const std::byte> tail;
  if (lease_.keys) {
    prepared.tag = lease_.tag(chunk, prepared.head, payload);
    tail = prepared.tag;
  }
  return {shards_[lease_.shard_of(chunk)], prepared.head, payload, tail};
}

Operation& DataPath::operation_at(Window::Position position) {
  const auto after =
      std::upper_bound(operations_.begin(), operations_.end(), position,
                       [](Window::Position at, const auto& operation) { return at < operation->first(); });
  assert(after != operations_.begin());
  return **std::prev(after);
}

}  // namespace netfold::group
