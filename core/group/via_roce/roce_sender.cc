#include "group/via_roce/roce_sender.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>

namespace netfold::group {
namespace {

namespace roce = wire::roce;

constexpr std::uint32_t kDoublingsMax = 10;
constexpr std::uint32_t kMeasured = 64;  // round trips of a period
constexpr Nanoseconds kRoundTrips = 3;   // of silence are a time-out
constexpr std::uint32_t kAskEvery = 16;  // packets; an acknowledgement is asked for at a message's end too

roce::Opcode opcode_of(std::uint32_t index, std::uint32_t packets) {
  if (index == 0) return roce::Opcode::kWriteFirst;
  return index + 1 == packets ? roce::Opcode::kWriteLastImmediate : roce::Opcode::kWriteMiddle;
}

}  // namespace

RoceSender::RoceSender(const QpInfo& self, const QpInfo& peer, RoceSenderOptions options)
    : self_(self), peer_(peer), options_(options), sent_(kRing) {
  options_.window_packets = std::clamp<std::uint32_t>(options_.window_packets, 1, roce::kWindowPackets);
}

std::span<const std::byte> RoceSender::Message::payload(std::uint32_t index) const {
  const std::size_t offset = std::size_t{index} * roce::kPathMtu;
  return bytes.subspan(offset, std::min(roce::kPathMtu, bytes.size() - offset));
}

void RoceSender::post(std::uint32_t number, std::span<const std::byte> bytes, Nanoseconds, bool is_short) {
  assert(bytes.size() > roce::kPathMtu && bytes.size() <= kMessageBytes);
  assert(messages_.size() < roce::kWindowMessages);
  const auto packets = static_cast<std::uint32_t>((bytes.size() + roce::kPathMtu - 1) / roce::kPathMtu);
  messages_.push_back({end_, packets, number, bytes, is_short});
  end_ += packets;
  ++posted_;
}

std::size_t RoceSender::next(std::span<std::byte> frame, Nanoseconds now) {
  const auto position = choose(now);
  return position ? write(*position, frame) : 0;
}

std::optional<RoceSender::Position> RoceSender::choose(Nanoseconds now) {
  while (!again_.empty()) {
    const Position position = again_.front();
    again_.pop_front();
    at(position).is_queued = false;
    if (position < base_) continue;
    at(position).at = now;
    at(position).was_resent = true;
    ++stats_.resent_packets;
    return position;
  }
  if (next_ == end_ || next_ - base_ >= options_.window_packets) return std::nullopt;
  if (next_ == base_) timer_ = now + timeout();
  at(next_) = {.at = now};
  ++stats_.sent_packets;
  return next_++;
}

std::size_t RoceSender::write(Position position, std::span<std::byte> frame) const {
  const Message& message = message_of(position);
  const auto index = static_cast<std::uint32_t>(position - message.first);
  const std::size_t head_bytes = index == 0 ? roce::kAggregationBytes : 0;
  const auto payload = message.is_short ? message.bytes.first(head_bytes) : message.payload(index);
  const std::size_t payload_bytes = message.is_short ? head_bytes + roce::kShortBytes : payload.size();
  const roce::Opcode opcode = opcode_of(index, message.packets);
  roce::Header header;
  address(header, self_, peer_);
  header.opcode = opcode;
  header.wants_ack = index % kAskEvery == kAskEvery - 1 || index + 1 == message.packets;
  header.queue_pair = peer_.queue_pair;
  header.psn = static_cast<std::uint32_t>(self_.first_psn + position) & roce::kPsnMask;
  header.address = peer_.address + message.number % roce::kWindowMessages * kMessageBytes;
  header.key = peer_.key;
  header.length_bytes = static_cast<std::uint32_t>(message.bytes.size());
  header.immediate = message.number;

  const std::size_t packet_bytes = roce::packet_bytes(opcode, payload_bytes, header.version);
  assert(frame.size() >= roce::kEthernetBytes + packet_bytes);
  roce::emit_ethernet(peer_.mac, self_.mac, frame, header.version);
  const auto packet = frame.subspan(roce::kEthernetBytes, packet_bytes);
  const std::size_t at = roce::emit(header, payload_bytes, packet);
  std::memcpy(packet.data() + at, payload.data(), payload.size());
  std::memset(packet.data() + at + payload.size(), 0, packet_bytes - at - payload.size() - roce::kIcrcBytes);
  roce::seal(packet);
  return roce::kEthernetBytes + packet_bytes;
}

const RoceSender::Message& RoceSender::message_of(Position position) const {
  for (const Message& message : messages_) {
    if (position < message.first + message.packets) return message;
  }
  std::abort();  // a position that is not acknowledged has a message
}

// Empty unless it is one that was sent, or the last acknowledged.
std::optional<RoceSender::Position> RoceSender::position_of(std::uint32_t psn) const {
  const std::uint32_t base_psn = static_cast<std::uint32_t>(self_.first_psn + base_) & roce::kPsnMask;
  const std::uint32_t ahead = (psn - base_psn) & roce::kPsnMask;
  if (ahead < next_ - base_) return base_ + ahead;
  return std::nullopt;
}

void RoceSender::on_answer(const roce::Header& header, Nanoseconds now) {
  const auto position = position_of(header.psn);
  if (header.syndrome >> 5 == 0) {  // an acknowledgement of everything up to here
    if (position) acknowledge(*position + 1, now);
    return;
  }
  if (!position) return;  // of a life before, or too late
  switch (header.syndrome) {
    case roce::kPacketMissing:
      ++stats_.naks;
      queue(*position);
      break;
    case roce::kSequenceError:
      ++stats_.naks;
      acknowledge(*position, now);
      for (Position again = *position; again < next_; ++again) queue(again);
      break;
    case roce::kInvalidRequest:
    case roce::kRemoteAccessError: refusal_ = header.syndrome; break;
    default: break;  // "receiver not ready" and the rest: time will tell
  }
}

void RoceSender::acknowledge(Position up_to, Nanoseconds now) {
  if (up_to <= base_) return;
  const Sent& last = at(up_to - 1);
  if (!last.was_resent) measure(now - last.at);  // Karn: an ambiguous round trip is not a measurement
  base_ = up_to;
  silences_ = 0;
  timer_ = now + timeout();
  recover_most_ = base_ < recover_to_ ? std::min<std::uint64_t>(2 * recover_most_, kRing) : 1;
  for (Position again = base_; again < std::min(recover_to_, base_ + recover_most_); ++again) {
    queue_unless_recent(again, now);
  }
  while (!messages_.empty() && messages_.front().first + messages_.front().packets <= base_) {
    messages_.pop_front();
    ++acknowledged_;
  }
}

void RoceSender::on_unknown(std::uint32_t psn, Nanoseconds now) {
  const auto position = position_of(psn);
  if (!position) return;
  ++stats_.unknown;
  // Each once in a while: where the switch refuses the first packet, the others must not chase each other.
  queue_unless_recent(std::max(message_of(*position).first, base_), now);
  queue_unless_recent(*position, now);
}

void RoceSender::on_time(Nanoseconds now) {
  if (next_ == base_ || now < timer_) return;
  ++stats_.timeouts;
  const Position oldest = std::uint64_t{1} << std::min(silences_, kDoublingsMax);
  for (Position position = base_; position < std::min(next_, base_ + oldest); ++position) queue(position);
  recover_to_ = next_;
  recover_most_ = oldest;
  ++silences_;
  timer_ = now + timeout();
}

void RoceSender::queue(Position position) {
  if (at(position).is_queued) return;
  at(position).is_queued = true;
  again_.push_back(position);
}

void RoceSender::queue_unless_recent(Position position, Nanoseconds now) {
  const bool is_on_its_way = at(position).was_resent && now - at(position).at < options_.timeout_min;
  if (!is_on_its_way) queue(position);
}

void RoceSender::measure(Nanoseconds round_trip) {
  shortest_ = std::min(shortest_, round_trip);
  if (++measured_ == kMeasured) {
    of_periods_[period_++ % kPeriods] = shortest_;
    shortest_ = kNever;
    measured_ = 0;
  }
  round_trip_ = period_ > 0 ? *std::ranges::max_element(of_periods_) : shortest_;
  stats_.round_trip = round_trip_;
}

Nanoseconds RoceSender::timeout() const {
  const Nanoseconds once =
      round_trip_ == 0 ? options_.timeout_start : std::max(options_.timeout_min, kRoundTrips * round_trip_);
  return std::min(options_.timeout_max, once << std::min(silences_, kDoublingsMax));
}

}  // namespace netfold::group
