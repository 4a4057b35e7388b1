// A worker's two connections of the ring, over frames: it writes to its right neighbour and its left one writes to it.
// The switch between them replaces the written data by the sum. A pure state machine: frames and time in, frames and a
// deadline out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "group/via_roce/roce_receiver.h"
#include "group/via_roce/roce_sender.h"
#include "wire/roce_notice.h"

namespace netfold::group {

// The information that a worker's neighbours need.
struct QpPairInfo {
  QpInfo sending;    // the end that writes to the right neighbour
  QpInfo receiving;  // the end that the left neighbour writes to
  std::uint16_t job = 0;
  std::uint16_t epoch = 0;  // the job's, if this is rank 0's and no epoch was given
  bool one_way = false;     // it has one-way messages, and its user says that the switch has them

  bool operator==(const QpPairInfo&) const = default;
};

struct RoceEndpointStats {
  std::uint64_t received_frames = 0;
  std::uint64_t foreign_frames = 0;  // for another address or queue pair, or of a kind that is not spoken here
  std::uint64_t malformed_frames = 0, bad_icrcs = 0;
};

class RoceEndpoint {
 public:
  RoceEndpoint(const QpPairInfo& self, const QpInfo& right, const QpInfo& left, RoceSenderOptions options = {});

  void on_frame(std::span<const std::byte> frame, Nanoseconds now);
  // Writes the next frame into `frame` and returns its size, or 0 if there is nothing to send. Acknowledgements come
  // first.
  static constexpr std::size_t kFrameBytesMax = RoceSender::kFrameBytesMax;
  std::size_t next(std::span<std::byte> frame, Nanoseconds now);

  RoceSender& sender() { return sender_; }
  const RoceSender& sender() const { return sender_; }
  RoceReceiver& receiver() { return receiver_; }
  const RoceReceiver& receiver() const { return receiver_; }
  std::span<std::byte> sending_memory() { return sending_; }  // kWindowBytes
  std::span<const std::byte> received_memory() const { return received_; }
  // The switch's last notice, once.
  std::optional<wire::roce::Notice> take_notice() { return std::exchange(notice_, std::nullopt); }
  const RoceEndpointStats& stats() const { return stats_; }

 private:
  void on_notice(const wire::roce::Notice& notice, Nanoseconds now);

  QpPairInfo self_;
  std::vector<std::byte> sending_, received_;
  RoceSender sender_;
  RoceReceiver receiver_;
  std::optional<wire::roce::Notice> notice_;
  RoceEndpointStats stats_;
};

}  // namespace netfold::group
