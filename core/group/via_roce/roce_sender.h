// The requester of a reliable connection: messages in, Write packets out, sent again until the other end has them.
// A pure state machine: acknowledgements and time in, frames and a deadline out.
//
// Words. A *position* counts packets in 64 bits from 0; its PSN is first_psn + position modulo 2^24. Positions below
// `base` are acknowledged, from there to `next` sent, to `end` waiting.
//
// An acknowledgement here confirms the sum, not the contribution: the switch lets a packet through only when all
// workers' are there. So silence is mostly another worker that computes, and after a time-out only the oldest packet is
// sent again, then two, four, ... ; once it is answered, twice as many of those sent before with each answer. For the
// same reason the time-out goes by the shortest round trip of a period, not by the usual one. The longest of the last
// periods counts. The queues empty at the end of a message. At the start of the next one an answer may wait behind a
// window of the neighbour's own packets. A receiver that is selective names each packet it misses; one that is not
// names the first, and everything from there on is sent again. A switch that has lost a Write First names the packets
// it could not place.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "group/via_roce/qp_info.h"

namespace netfold::group {

struct RoceSenderOptions {
  std::uint32_t window_packets = wire::roce::kWindowPackets;  // sent and not acknowledged, at most 512
  Nanoseconds timeout_min = 5 * kMillisecond;
  Nanoseconds timeout_start = 50 * kMillisecond;  // until a round trip was measured
  Nanoseconds timeout_max = 200 * kMillisecond;
};

struct RoceSenderStats {
  std::uint64_t sent_packets = 0, resent_packets = 0, timeouts = 0, naks = 0, unknown = 0;
  Nanoseconds round_trip = 0;  // without waiting for other workers
};

class RoceSender {
 public:
  RoceSender(const QpInfo& self, const QpInfo& peer, RoceSenderOptions options = {});

  // A message of 2 to 128 packets, to place `number` mod 4 of the peer's memory, with `number` as immediate data.
  // Numbers are consecutive; `bytes` stay as they are until it is acknowledged. At most four are on their way. Of a
  // message of short packets only the aggregation header, at the front of `bytes`, is read.
  void post(std::uint32_t number, std::span<const std::byte> bytes, Nanoseconds now, bool is_short = false);
  // Messages acknowledged so far, of all posted.
  std::uint64_t acknowledged() const { return acknowledged_; }
  std::uint64_t posted() const { return posted_; }

  // Writes the next frame, of at most kFrameBytesMax, into `frame`. Returns its size, or 0 if there is nothing to send.
  static constexpr std::size_t kFrameBytesMax = wire::roce::kEthernetBytes + wire::roce::kPacketBytesMax;
  std::size_t next(std::span<std::byte> frame, Nanoseconds now);
  void on_answer(const wire::roce::Header& header, Nanoseconds now);
  // The switch could not place a packet: its message's first packet, and then it, are sent again.
  void on_unknown(std::uint32_t psn, Nanoseconds now);
  // To be called once all that has come was handed over: acts if the deadline has passed.
  void on_time(Nanoseconds now);
  Nanoseconds deadline() const { return next_ == base_ ? kNever : timer_; }

  bool is_idle() const { return base_ == end_; }
  // The other end has refused a write for good: this connection is over.
  std::optional<std::uint8_t> refusal() const { return refusal_; }
  const RoceSenderStats& stats() const { return stats_; }

 private:
  using Position = std::uint64_t;
  struct Message {
    Position first;
    std::uint32_t packets, number;
    std::span<const std::byte> bytes;
    bool is_short;

    // Of packet `index`, where the packets are full.
    std::span<const std::byte> payload(std::uint32_t index) const;
  };
  struct Sent {
    Nanoseconds at = 0;
    bool was_resent = false, is_queued = false;
  };

  static constexpr std::size_t kRing = 1024;  // positions; more than a window
  Sent& at(Position position) { return sent_[position % kRing]; }
  std::optional<Position> position_of(std::uint32_t psn) const;
  std::optional<Position> choose(Nanoseconds now);
  std::size_t write(Position position, std::span<std::byte> frame) const;
  const Message& message_of(Position position) const;
  void queue(Position position);
  void queue_unless_recent(Position position, Nanoseconds now);
  void acknowledge(Position up_to, Nanoseconds now);
  void measure(Nanoseconds round_trip);
  Nanoseconds timeout() const;

  QpInfo self_, peer_;
  RoceSenderOptions options_;
  std::deque<Message> messages_;  // not acknowledged
  std::vector<Sent> sent_;
  std::deque<Position> again_;
  Position base_ = 0, next_ = 0, end_ = 0;
  std::uint64_t posted_ = 0, acknowledged_ = 0;
  Nanoseconds timer_ = kNever;
  static constexpr std::size_t kPeriods = 4;
  std::array<Nanoseconds, kPeriods> of_periods_{};  // the shortest round trips of the last ones; 0: not yet
  std::size_t period_ = 0;
  Nanoseconds round_trip_ = 0;     // that the time-out goes by
  Nanoseconds shortest_ = kNever;  // of this period
  std::uint32_t measured_ = 0;     // in this period
  std::uint32_t silences_ = 0;
  Position recover_to_ = 0;  // what was sent before the last time-out
  std::uint64_t recover_most_ = 1;
  std::optional<std::uint8_t> refusal_;
  RoceSenderStats stats_;
};

}  // namespace netfold::group
