#include "group/via_roce/roce_endpoint.h"

#include "wire/bytes.h"

namespace netfold::group {

namespace roce = wire::roce;

RoceEndpoint::RoceEndpoint(const QpPairInfo& self, const QpInfo& right, const QpInfo& left, RoceSenderOptions options)
    : self_(self),
      sending_(kWindowBytes),
      received_(kWindowBytes),
      sender_(self.sending, right, options),
      receiver_(self.receiving, left, received_) {}

void RoceEndpoint::on_frame(std::span<const std::byte> frame, Nanoseconds now) {
  ++stats_.received_frames;
  if (frame.size() < roce::kEthernetBytes || wire::get_big<std::uint64_t, 6>(frame, 0) != self_.sending.mac) {
    ++stats_.foreign_frames;
    return;
  }
  const auto type = wire::get_big<std::uint16_t>(frame, 12);
  const auto content = frame.subspan(roce::kEthernetBytes);
  if (type == roce::kNoticeEtherType) {
    if (const auto notice = roce::parse_notice(content)) on_notice(*notice, now);
    return;
  }
  roce::Packet packet;
  const roce::Version version = self_.sending.version;
  const roce::ParseError error =
      type == roce::ether_type_of(version) ? roce::parse(content, packet, version) : roce::ParseError::kOpcode;
  if (error != roce::ParseError::kNone) {
    ++(error == roce::ParseError::kOpcode ? stats_.foreign_frames : stats_.malformed_frames);
    return;
  }
  const bool is_write = roce::is_write(packet.header.opcode);
  if (packet.header.queue_pair != (is_write ? self_.receiving : self_.sending).queue_pair) {
    ++stats_.foreign_frames;
  } else if (!roce::icrc_is_right(packet.packet)) {
    ++stats_.bad_icrcs;
  } else if (is_write) {
    receiver_.on_packet(packet);
  } else {
    sender_.on_answer(packet.header, now);
  }
}

void RoceEndpoint::on_notice(const roce::Notice& notice, Nanoseconds now) {
  if (notice.kind == roce::Notice::Kind::kUnknown) return sender_.on_unknown(notice.message, now);
  notice_ = notice;
}

std::size_t RoceEndpoint::next(std::span<std::byte> frame, Nanoseconds now) {
  if (const std::size_t size_bytes = receiver_.next(frame)) return size_bytes;
  return sender_.next(frame, now);
}

}  // namespace netfold::group
