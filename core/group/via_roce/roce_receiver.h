// The responder of a reliable connection: Write packets in, written into memory where they say, acknowledgements out.
// A pure state machine.
//
// With a selective sender, packets are taken as they come, and those that three later ones have overtaken are asked for
// one by one (syndrome kPacketMissing, our own). With any other, packets out of order are thrown away and the first
// missing one is named, as the InfiniBand specification (9.9.2) wants it.
//
// The packets of a message are all full or all short (wire/aggregation_header.h); the first one says which. Of a short
// message only the first packet is written, and the rest of the message's room stays as it was.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "group/via_roce/qp_info.h"

namespace netfold::group {

struct RoceReceiverStats {
  std::uint64_t packets = 0, duplicates = 0, out_of_order = 0, refused = 0;
  std::uint64_t not_sums = 0;  // no switch has folded them
};

class RoceReceiver {
 public:
  struct Completed {
    std::uint32_t immediate;
    std::size_t offset, size_bytes;  // in the memory; of a short message: those of its first packet
  };

  // `memory` is what `self` names: kWindowBytes.
  RoceReceiver(const QpInfo& self, const QpInfo& peer, std::span<std::byte> memory);

  // A Write packet for this connection whose ICRC is right.
  void on_packet(const wire::roce::Packet& packet);
  // Messages that are whole, oldest first.
  bool take(Completed& completed);
  // Writes the next acknowledgement into `frame` and returns its size, or 0 if there is nothing to send.
  static constexpr std::size_t kFrameBytesMax = wire::roce::kEthernetBytes + wire::roce::kGrhBytes +
                                                wire::roce::kBthBytes + wire::roce::kAethBytes + wire::roce::kIcrcBytes;
  std::size_t next(std::span<std::byte> frame);

  std::uint64_t messages() const { return messages_; }  // whole so far
  const RoceReceiverStats& stats() const { return stats_; }

 private:
  using Position = std::uint64_t;
  struct Message {
    Position first;
    std::uint32_t packets;
    std::size_t offset, size_bytes;  // as RETH says
    bool is_short;
    std::uint32_t immediate = 0;

    std::size_t payload_bytes(std::uint32_t index) const;
  };
  struct Answer {
    std::uint8_t syndrome;
    Position position;
  };

  static constexpr std::size_t kRing = 1024;
  bool open(Position position, const wire::roce::Packet& packet);
  bool store(Position position, const wire::roce::Packet& packet);
  void advance();
  void ask_for_missing(Position seen);
  std::size_t write(const Answer& answer, std::span<std::byte> frame) const;

  QpInfo self_, peer_;
  std::span<std::byte> memory_;
  std::vector<bool> is_here_;  // by position modulo kRing
  std::deque<Message> open_;   // begun and not whole, by position
  std::deque<Completed> completed_;
  std::deque<Answer> answers_;
  Position expected_ = 0;  // everything before it is here
  Position asked_ = 0;     // missing packets before this one were asked for
  Position refused_at_ = UINT64_MAX;
  bool owes_ack_ = false;
  std::uint64_t messages_ = 0;
  RoceReceiverStats stats_;
};

}  // namespace netfold::group
