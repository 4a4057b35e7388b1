#include "group/via_roce/roce_receiver.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace netfold::group {
namespace {

namespace roce = wire::roce;

constexpr std::uint64_t kReorderSlack = 3;
constexpr std::uint64_t kWindow = roce::kWindowPackets;
constexpr std::size_t kAnswersMax = 1024;
constexpr std::size_t kShortFirst = roce::kAggregationBytes + roce::kShortBytes;

}  // namespace

std::size_t RoceReceiver::Message::payload_bytes(std::uint32_t index) const {
  if (is_short) return index == 0 ? kShortFirst : roce::kShortBytes;
  return std::min(roce::kPathMtu, size_bytes - index * roce::kPathMtu);
}

RoceReceiver::RoceReceiver(const QpInfo& self, const QpInfo& peer, std::span<std::byte> memory)
    : self_(self), peer_(peer), memory_(memory), is_here_(kRing) {
  assert(memory.size() == kWindowBytes);
}

void RoceReceiver::on_packet(const roce::Packet& packet) {
  if (!roce::is_marked_as_sum(packet.header)) {
    ++stats_.not_sums;
    return;
  }
  const std::uint32_t expected_psn = static_cast<std::uint32_t>(peer_.first_psn + expected_) & roce::kPsnMask;
  const std::uint32_t ahead = (packet.header.psn - expected_psn) & roce::kPsnMask;
  if (ahead >= kWindow) {  // before what is expected, most likely: its acknowledgement was lost
    ++stats_.duplicates;
    owes_ack_ = true;
    return;
  }
  const Position position = expected_ + ahead;
  if (ahead > 0) ++stats_.out_of_order;
  if (!peer_.is_selective && ahead > 0) {
    if (refused_at_ != expected_ && answers_.size() < kAnswersMax) {
      refused_at_ = expected_;
      answers_.push_back({roce::kSequenceError, expected_});
    }
    return;
  }
  if (is_here_[position % kRing]) {
    ++stats_.duplicates;
    owes_ack_ = true;
    return;
  }
  if (roce::has_reth(packet.header.opcode) && !open(position, packet)) return;
  ++stats_.packets;
  if (store(position, packet)) {
    is_here_[position % kRing] = true;
    advance();
  }
  if (peer_.is_selective) ask_for_missing(position);
}

// False if the packet does not begin a message here. One that does is stored next, so the message is of its kind.
bool RoceReceiver::open(Position position, const roce::Packet& packet) {
  const roce::Header& header = packet.header;
  const auto known = std::find_if(open_.begin(), open_.end(), [=](const auto& m) { return m.first == position; });
  if (known != open_.end()) return true;
  const std::uint64_t offset = header.address - self_.address;
  if (header.key != self_.key || offset > memory_.size() || header.length_bytes > memory_.size() - offset ||
      header.length_bytes == 0) {
    ++stats_.refused;
    if (answers_.size() < kAnswersMax) answers_.push_back({roce::kRemoteAccessError, position});
    return false;
  }
  const auto packets = static_cast<std::uint32_t>((header.length_bytes + roce::kPathMtu - 1) / roce::kPathMtu);
  const bool is_short = packets > 1 && packet.payload.size() == kShortFirst;
  const Message message{position, packets, offset, header.length_bytes, is_short};
  if (packet.payload.size() != message.payload_bytes(0)) {
    ++stats_.refused;
    return false;
  }
  const auto after = std::find_if(open_.begin(), open_.end(), [=](const auto& m) { return m.first > position; });
  open_.insert(after, message);
  return true;
}

// False if the packet's message has not begun yet, or it is not the packet that belongs here.
bool RoceReceiver::store(Position position, const roce::Packet& packet) {
  for (Message& message : open_) {
    if (position < message.first || position >= message.first + message.packets) continue;
    const auto index = static_cast<std::uint32_t>(position - message.first);
    const bool is_last = index + 1 == message.packets;
    if (packet.payload.size() != message.payload_bytes(index) || roce::ends_message(packet.header.opcode) != is_last) {
      ++stats_.refused;
      return false;
    }
    if (index == 0 || !message.is_short) {
      std::byte* const at = memory_.data() + message.offset + std::size_t{index} * roce::kPathMtu;
      std::memcpy(at, packet.payload.data(), packet.payload.size());
    }
    if (is_last) message.immediate = packet.header.immediate & ~roce::kSummedImmediate;
    return true;
  }
  return false;
}

void RoceReceiver::advance() {
  while (is_here_[expected_ % kRing]) {
    is_here_[expected_ % kRing] = false;
    ++expected_;
    owes_ack_ = true;
    if (open_.empty() || open_.front().first + open_.front().packets != expected_) continue;
    const Message& whole = open_.front();
    completed_.push_back({whole.immediate, whole.offset, whole.is_short ? kShortFirst : whole.size_bytes});
    open_.pop_front();
    ++messages_;
  }
  asked_ = std::max(asked_, expected_);
}

void RoceReceiver::ask_for_missing(Position seen) {
  for (; asked_ + kReorderSlack <= seen; ++asked_) {
    if (asked_ < expected_ || is_here_[asked_ % kRing] || answers_.size() >= kAnswersMax) continue;
    answers_.push_back({roce::kPacketMissing, asked_});
  }
}

bool RoceReceiver::take(Completed& completed) {
  if (completed_.empty()) return false;
  completed = completed_.front();
  completed_.pop_front();
  return true;
}

std::size_t RoceReceiver::next(std::span<std::byte> frame) {
  while (!answers_.empty()) {
    const Answer answer = answers_.front();
    answers_.pop_front();
    if (answer.position >= expected_) return write(answer, frame);
  }
  if (!owes_ack_ || expected_ == 0) return 0;
  owes_ack_ = false;
  return write({roce::kAcknowledged, expected_ - 1}, frame);
}

std::size_t RoceReceiver::write(const Answer& answer, std::span<std::byte> frame) const {
  roce::Header header;
  address(header, self_, peer_);
  header.opcode = roce::Opcode::kAcknowledge;
  header.queue_pair = peer_.queue_pair;
  header.psn = static_cast<std::uint32_t>(peer_.first_psn + answer.position) & roce::kPsnMask;
  header.syndrome = answer.syndrome;
  header.messages = static_cast<std::uint32_t>(messages_) & 0xffffff;
  roce::emit_ethernet(peer_.mac, self_.mac, frame, header.version);
  const auto packet = frame.subspan(roce::kEthernetBytes, roce::packet_bytes(header.opcode, 0, header.version));
  roce::emit(header, 0, packet);
  roce::seal(packet);
  return roce::kEthernetBytes + packet.size();
}

}  // namespace netfold::group
