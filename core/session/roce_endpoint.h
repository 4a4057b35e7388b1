// A worker's two connections of the ring, over frames: it writes to its right neighbour and is written to by its left
// one, and the switch between them puts the sum in place of what was written. A pure state machine: frames and time in,
// frames and a deadline out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "session/roce_receiver.h"
#include "session/roce_sender.h"
#include "wire/roce_notice.h"

namespace netfold::session {

// What a worker's neighbours must know.
struct RoceWorkerCard {
  RoceCard sending;    // the end that writes to the right neighbour
  RoceCard receiving;  // the end that the left neighbour writes to

  bool operator==(const RoceWorkerCard&) const = default;
};

struct RoceEndpointStats {
  std::uint64_t received_frames = 0;
  std::uint64_t foreign_frames = 0;  // for another address or queue pair, or of a kind that is not spoken here
  std::uint64_t malformed_frames = 0, bad_icrcs = 0;
};

class RoceEndpoint {
 public:
  RoceEndpoint(const RoceWorkerCard& self, const RoceCard& right, const RoceCard& left, RoceSenderOptions options = {});

  void on_frame(std::span<const std::byte> frame, Nanoseconds now);
  // Writes the next frame to send; returns its size, 0 if there is none. Acknowledgements come first.
  static constexpr std::size_t kFrameBytesMax = RoceSender::kFrameBytesMax;
  std::size_t next(std::span<std::byte> frame, Nanoseconds now);

  RoceSender& sender() { return sender_; }
  const RoceSender& sender() const { return sender_; }
  RoceReceiver& receiver() { return receiver_; }
  const RoceReceiver& receiver() const { return receiver_; }
  std::span<std::byte> sending_memory() { return sending_; }  // kWindowBytes
  std::span<const std::byte> received_memory() const { return received_; }
  // What the switch said last, once.
  std::optional<wire::roce::Notice> take_notice() { return std::exchange(notice_, std::nullopt); }
  const RoceEndpointStats& stats() const { return stats_; }

 private:
  void on_notice(const wire::roce::Notice& notice, Nanoseconds now);

  RoceWorkerCard self_;
  std::vector<std::byte> sending_, received_;
  RoceSender sender_;
  RoceReceiver receiver_;
  std::optional<wire::roce::Notice> notice_;
  RoceEndpointStats stats_;
};

}  // namespace netfold::session
