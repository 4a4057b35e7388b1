#include "group/via_switch/observer_path.h"

namespace netfold::group {
namespace {

constexpr std::size_t kHeardMost = 64;  // datagrams at once; a host hears little

}  // namespace

void ObserverPath::expect(Ticket ticket, std::uint64_t chunks, Nanoseconds now) {
  waiting_.push_back(ticket);
  watch_.expect(chunks, now);
}

void ObserverPath::pump(Nanoseconds now) {
  for (const link::Incoming& datagram : link_.receive(kHeardMost)) handle(datagram, now);
  while (const auto question = watch_.next(now)) {
    const wire::ShortPacket packet(lease_, wire::Kind::kAwait, wire::kSwitchWorker, question->chunk);
    const link::Outgoing datagram{shards_[question->shard], packet.bytes(), {}, {}};
    link_.send({&datagram, 1});  // what the link does not take is asked again
    ++stats_.questions;
  }
}

void ObserverPath::handle(const link::Incoming& datagram, Nanoseconds now) {
  wire::Packet packet;
  const bool is_ours = wire::parse(datagram.bytes, packet) == wire::ParseError::kNone &&
                       packet.header.kind == wire::Kind::kComplete &&
                       datagram.from == shards_[lease_.shard_of(packet.header.chunk)] &&
                       wire::is_of_lease(lease_, packet, datagram.bytes);
  if (!is_ours) {
    ++stats_.dropped_packets;
    return;
  }
  const std::uint64_t before = watch_.completed();
  if (!watch_.on_complete(packet.header.chunk, now)) return;  // an answer to what was asked twice
  lease_.reach(packet.header.chunk);
  ++stats_.signals;
  if (watch_.completed() == before) return;
  finished_.push_back(waiting_.front());
  waiting_.pop_front();
}

}  // namespace netfold::group
