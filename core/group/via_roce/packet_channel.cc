#include "group/via_roce/packet_channel.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace netfold::group {
namespace {

constexpr std::size_t kFramesMost = 256;
constexpr std::size_t kFrameBatchesMost = 16;  // a bound, so that a flood does not prevent time-outs

}  // namespace

wire::roce::Gid link_local_gid(std::uint64_t mac) {
  wire::roce::Gid gid{0xfe, 0x80};
  const auto byte = [&](int index) { return static_cast<std::uint8_t>(mac >> (40 - 8 * index)); };
  const std::array<std::uint8_t, 8> id{
      static_cast<std::uint8_t>(byte(0) ^ 2), byte(1), byte(2), 0xff, 0xfe, byte(3), byte(4), byte(5)};
  std::copy(id.begin(), id.end(), gid.begin() + 8);
  return gid;
}

PacketChannel::PacketChannel(std::unique_ptr<link::Link> link, PacketChannelOptions options)
    : link_(std::move(link)), options_(options), frames_(kSendMost) {
  QpInfo card;
  card.mac = options.mac;
  card.version = options.ip == 0 ? wire::roce::Version::kV1 : wire::roce::Version::kV2;
  card.gid = options.ip == 0 ? link_local_gid(options.mac) : wire::roce::gid_of_ipv4(options.ip);
  card.queue_pair = options.queue_pair & wire::roce::kQueuePairMask;
  card.first_psn = options.first_psn & wire::roce::kPsnMask;
  card.key = options.key;
  card.is_selective = true;
  card_.sending = card_.receiving = card;
  card_.receiving.queue_pair = (options.queue_pair + 1) & wire::roce::kQueuePairMask;
  sending_.reserve(kSendMost);
}

Result<void> PacketChannel::connect(const QpPairInfo& right, const QpPairInfo& left) {
  endpoint_ = std::make_unique<RoceEndpoint>(card_, right.receiving, left.sending, options_.sender);
  return {};
}

std::span<std::byte> PacketChannel::room(std::uint32_t number) {
  return endpoint_->sending_memory().subspan(number % wire::roce::kWindowMessages * kMessageBytes, kMessageBytes);
}

void PacketChannel::post(std::uint32_t number, std::size_t size_bytes, bool is_short, Nanoseconds now) {
  endpoint_->sender().post(number, room(number).first(size_bytes), now, is_short);
}

std::optional<MessageChannel::Arrived> PacketChannel::take() {
  RoceReceiver::Completed completed;
  if (!endpoint_->receiver().take(completed)) return std::nullopt;
  return Arrived{completed.immediate, endpoint_->received_memory().subspan(completed.offset, completed.size_bytes)};
}

Result<bool> PacketChannel::pump(Nanoseconds now) {
  for (std::size_t batch = 0; batch < kFrameBatchesMost; ++batch) {
    const auto frames = link_->receive(kFramesMost);
    if (frames.empty()) break;
    for (const link::Incoming& frame : frames) endpoint_->on_frame(frame.bytes, now);
    send(now);
  }
  endpoint_->sender().on_time(now);
  const bool is_full = send(now);
  if (const auto refusal = endpoint_->sender().refusal()) {
    return fail(ErrorCode::kPeerFailed,
                "the right neighbour refuses what is written to it: its endpoint information is of another connection: "
                "exchange it "
                "anew");
  }
  return is_full;
}

// True if the link is full. Frames that it did not accept are offered again before new ones are made.
bool PacketChannel::send(Nanoseconds now) {
  for (;;) {
    if (sending_.empty()) {
      while (sending_.size() < kSendMost) {
        auto& frame = frames_[sending_.size()];
        const std::size_t size_bytes = endpoint_->next(frame, now);
        if (size_bytes == 0) break;
        sending_.push_back({{}, std::span(frame).first(size_bytes), {}, {}});
      }
      if (sending_.empty()) return false;
    }
    const std::size_t taken = link_->send(sending_);
    if (taken < sending_.size()) {
      sending_.erase(sending_.begin(), sending_.begin() + static_cast<std::ptrdiff_t>(taken));
      return true;
    }
    sending_.clear();
  }
}

Nanoseconds PacketChannel::deadline() const {
  return std::min(endpoint_ ? endpoint_->sender().deadline() : kNever, link_->deadline());
}

nlohmann::json PacketChannel::counters() const {
  const link::LinkStats& link = link_->stats();
  nlohmann::json counters{{"sent_packets", link.sent_packets},         {"sent_bytes", link.sent_bytes},
                          {"received_packets", link.received_packets}, {"received_bytes", link.received_bytes},
                          {"send_errors", link.send_errors},           {"system_calls", link.system_calls}};
  if (!endpoint_) return counters;
  const RoceSenderStats& sender = endpoint_->sender().stats();
  const RoceReceiverStats& receiver = endpoint_->receiver().stats();
  counters.update({{"sent_writes", sender.sent_packets},
                   {"resent_writes", sender.resent_packets},
                   {"timeouts", sender.timeouts},
                   {"naks", sender.naks},
                   {"unknown_to_switch", sender.unknown},
                   {"round_trip_s", to_seconds(sender.round_trip)},
                   {"received_writes", receiver.packets},
                   {"duplicate_writes", receiver.duplicates},
                   {"out_of_order_writes", receiver.out_of_order},
                   {"refused_writes", receiver.refused},
                   {"writes_not_summed", receiver.not_sums},
                   {"foreign_frames", endpoint_->stats().foreign_frames},
                   {"malformed_frames", endpoint_->stats().malformed_frames},
                   {"bad_icrcs", endpoint_->stats().bad_icrcs}});
  return counters;
}

}  // namespace netfold::group
