// Aggregator: a switch that has another one above it, or others below.
//
// It has no clock, so it repeats nothing by itself. Workers probe a chunk whose result is late, and their probes travel
// up: each switch passes on those of one contributor a chunk, which speaks for all. So what was lost on any link is
// sent again by the switch or the worker that sent it first.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "switch/aggregation/aggregator.h"

namespace netfold::switching {
namespace {

using wire::Header;
using wire::Kind;

constexpr std::uint16_t kUnansweredMost = 5;  // after so many probes the switch above no longer answers
// Of contributors that do not speak for all, until one of them does: the speaker's process may have stopped.
constexpr std::uint16_t kOtherProbesMost = 16;

}  // namespace

void Aggregator::send_up(std::uint32_t index, AggregatorOutput& outbox) {
  Slot& slot = slots_[index];
  const Above& above = *tree_.above;
  const bool is_copy = slot.first.kind == Kind::kCopy;
  Header header = above.lease.header(slot.first.kind, above.rank, slot.chunk);
  header.format = slot.first.format;
  header.count = slot.first.count;
  header.owner = slot.first.owner;
  header.flags |= static_cast<std::uint8_t>((slot.first.flags & wire::kTermFlags) | (is_copy ? 0 : wire::kPartial));
  const wire::HeaderBytes head = wire::emit(header);
  std::memcpy(slot.result, head.data(), head.size());
  const bool has_owner_below = place_of_owner(slot.first) != wire::kSwitchWorker;
  const std::size_t copied_bytes = has_owner_below ? header.count : 0;
  const std::size_t payload_bytes = is_copy ? copied_bytes : header.count * wire::kSumBytes;
  slot.result_bytes = static_cast<std::uint32_t>(wire::kHeaderBytes + payload_bytes);
  if (above.lease.keys) {
    const wire::Tag tag = above.lease.tag(slot.chunk, head, {slot.result + wire::kHeaderBytes, payload_bytes});
    std::memcpy(slot.result + slot.result_bytes, tag.data(), tag.size());
    slot.result_bytes += wire::kTagBytes;
  }
  slot.has_result = false;  // all are in, so all have the result of the round before, whose room this is
  slot.is_up = true;
  slot.speaker = slot.missing_above = wire::kSwitchWorker;
  slot.unanswered = slot.other_probes = 0;
  outbox.sum_to_above({slot.result, slot.result_bytes}, false);
}

void Aggregator::say_to_above(Kind kind, std::uint32_t chunk, std::uint16_t count, AggregatorOutput& outbox) {
  const wire::ShortPacket packet(tree_.above->lease, kind, tree_.above->rank, chunk, count);
  outbox.notice_to_above(packet.bytes());
}

void Aggregator::ask_above(std::uint16_t prober, std::uint16_t count, std::uint32_t index, AggregatorOutput& outbox) {
  Slot& slot = slots_[index];
  if (slot.speaker == wire::kSwitchWorker || ++slot.other_probes > kOtherProbesMost) slot.speaker = prober;
  if (slot.speaker == prober) {
    slot.other_probes = 0;
    if (slot.unanswered <= kUnansweredMost) ++slot.unanswered;
    say_to_above(Kind::kProbe, slot.chunk, count, outbox);
  }
  // Without a rank: the switch above is what is waited for.
  const bool answers = slot.unanswered <= kUnansweredMost;
  send_notice(Kind::kWaiting, prober, answers ? slot.missing_above : wire::kSwitchWorker, slot.chunk, outbox);
}

// Up to the top and back down, so that it meets every queue that a chunk meets. `count` remembers the rank that asked,
// and tells a worker of the topmost switch when the echo was there.
Verdict Aggregator::on_echo(const Header& header, Nanoseconds now, AggregatorOutput& outbox) {
  const std::uint16_t rank = tree_.rank_of(header.worker);
  const std::uint16_t asked = tree_.is_switch(header.worker) ? header.count : static_cast<std::uint16_t>(rank + 1);
  if (tree_.above) {
    say_to_above(Kind::kEcho, header.chunk, asked, outbox);
  } else {
    const std::uint16_t count = tree_.is_switch(header.worker) ? header.count : wire::echo_time(now);
    send_notice(Kind::kEcho, header.worker, rank, header.chunk, outbox, count);
  }
  return Verdict::kAnswered;
}

// The lowest rank that is missing. A switch below is asked: it sends its sum again, or says which rank it waits for.
std::uint16_t Aggregator::ask_who_is_missing(std::uint32_t index, AggregatorOutput& outbox) {
  const std::uint16_t place = lowest_missing(index);
  const std::uint16_t rank = tree_.rank_of(place);
  if (!tree_.is_switch(place)) return rank;
  const std::uint32_t chunk = slots_[index].chunk;
  send_notice(Kind::kMissing, place, rank, chunk, outbox);
  const Named& named = named_[place];
  const std::uint32_t age = std::max(chunk, named.chunk) - std::min(chunk, named.chunk);
  return named.rank != wire::kSwitchWorker && age < lease_.slots ? named.rank : rank;
}

Verdict Aggregator::on_waiting_below(const Header& header) {
  if (!tree_.is_switch(header.worker) || !tree_.contributors[header.worker].has(header.count)) return Verdict::kBadKind;
  named_[header.worker] = {header.chunk, header.count};
  return Verdict::kAnswered;
}

Verdict Aggregator::on_packet_from_above(const wire::Packet& packet, AggregatorOutput& outbox) {
  const Header& header = packet.header;
  assert(tree_.above);
  if (lease_.shard_of(header.chunk) != shard_) return Verdict::kBadSlot;
  switch (header.kind) {
    case Kind::kCopied:
    case Kind::kResult: return on_result_from_above(packet, outbox);
    case Kind::kDone: return on_done_from_above(header, outbox);
    case Kind::kMissing: return on_missing_from_above(header, outbox);
    case Kind::kWaiting: return on_waiting_from_above(header, outbox);
    case Kind::kEcho: return on_echo_from_above(header, outbox);
    default: return Verdict::kBadKind;
  }
}

Verdict Aggregator::on_result_from_above(const wire::Packet& packet, AggregatorOutput& outbox) {
  const Header& header = packet.header;
  const std::uint32_t index = place_of(header.chunk);
  Slot& slot = slots_[index];
  if (!slot.is_up || header.chunk != slot.chunk) {
    const bool is_kept_result = slot.has_result && header.chunk == slot.chunk - lease_.slots;
    return is_kept_result ? Verdict::kDuplicate : Verdict::kStaleChunk;
  }
  const bool is_copy = slot.first.kind == Kind::kCopy;
  const bool is_long =
      is_copy ? packet.payload.size() != header.count : !wire::payload_length_is_right(packet, lease_.bfp);
  if (is_long || packet.payload.size() > lease_.payload_bytes) return Verdict::kBadLength;
  const bool has_owner_below = place_of_owner(slot.first) != wire::kSwitchWorker;
  const bool is_for_us = slot.first.kind == Kind::kContribution || is_copy != has_owner_below;
  const bool fits = header.kind == (is_copy ? Kind::kCopied : Kind::kResult) && is_for_us &&
                    header.format == slot.first.format && header.count == slot.first.count &&
                    ((header.flags ^ slot.first.flags) & wire::kTermFlags) == 0;
  if (!fits) return Verdict::kBadKind;  // no switch of Netfold sends it
  if (header.format == numbers::Format::kBfp &&
      !numbers::kernels().bfp_is_well_formed(lease_.bfp, packet.payload.data(), header.count)) {
    return Verdict::kMalformedBlock;
  }
  // The sum may still be on its way up, once more.
  if (!take_room(index, packet.payload.size(), outbox)) return Verdict::kNoRoom;
  std::memcpy(slot.result + wire::kHeaderBytes, packet.payload.data(), packet.payload.size());
  publish(index, packet.payload.size(), outbox);
  return Verdict::kFromAbove;
}

// The switch above has nothing for this one. Of a copy the bytes are here already: they went up from below.
Verdict Aggregator::on_done_from_above(const Header& header, AggregatorOutput& outbox) {
  const std::uint32_t index = place_of(header.chunk);
  const Slot& slot = slots_[index];
  if (!slot.is_up || header.chunk != slot.chunk) {
    const bool is_kept_result = slot.has_result && header.chunk == slot.chunk - lease_.slots;
    return is_kept_result ? Verdict::kDuplicate : Verdict::kStaleChunk;
  }
  const Receivers receivers = receivers_of(slot.first);
  const bool has_owner_below = receivers.owner != wire::kSwitchWorker;
  const bool fits = receivers.who == Receivers::Who::kNone || (slot.first.kind == Kind::kCopy && has_owner_below) ||
                    (slot.first.kind == Kind::kScatter && !has_owner_below);
  if (!fits) return Verdict::kBadKind;
  const bool is_copy = slot.first.kind == Kind::kCopy;
  const std::size_t payload_bytes = is_copy ? slot.first.count : 0;
  if (!take_room(index, payload_bytes, outbox)) return Verdict::kNoRoom;
  if (is_copy && payloads_are_ == Payloads::kLent) write_copy(index);  // into the new memory
  publish(index, payload_bytes, outbox);
  return Verdict::kFromAbove;
}

// It lacks the sum: that was lost, or is not there yet because a rank here is missing.
Verdict Aggregator::on_missing_from_above(const Header& header, AggregatorOutput& outbox) {
  const std::uint32_t index = place_of(header.chunk);
  Slot& slot = slots_[index];
  if (header.chunk != slot.chunk) return Verdict::kStaleChunk;
  if (slot.is_up) {
    slot.unanswered = 0;
    outbox.sum_to_above({slot.result, slot.result_bytes}, true);
    return Verdict::kFromAbove;
  }
  say_to_above(Kind::kWaiting, header.chunk, ask_who_is_missing(index, outbox), outbox);
  return Verdict::kFromAbove;
}

Verdict Aggregator::on_waiting_from_above(const Header& header, AggregatorOutput& outbox) {
  Slot& slot = slots_[place_of(header.chunk)];
  if (!slot.is_up || header.chunk != slot.chunk) return Verdict::kStaleChunk;
  slot.unanswered = 0;
  slot.missing_above = header.worker;
  if (slot.speaker != wire::kSwitchWorker) {
    send_notice(Kind::kWaiting, slot.speaker, slot.missing_above, slot.chunk, outbox);
  }
  return Verdict::kFromAbove;
}

Verdict Aggregator::on_echo_from_above(const Header& header, AggregatorOutput& outbox) {
  const auto place = tree_.place_of(static_cast<std::uint16_t>(header.count - 1));
  if (!place) return Verdict::kBadKind;
  send_notice(Kind::kEcho, *place, tree_.rank_of(*place), header.chunk, outbox,
              tree_.is_switch(*place) ? header.count : std::uint16_t{0});
  return Verdict::kAnswered;
}

}  // namespace netfold::switching
