// A notice: the switch itself tells a RoCE worker, outside the connection, which rank a repeated packet waits for. An
// Ethernet frame of its own type, which reaches a process with a packet socket and no RDMA NIC. Our own addition.
//
//   | Ethernet 14 (type 0x88b5) | magic 2 | ver, kind 1 | 0 | job 2 | epoch 2 | rank 2 | packet 2 | message 4 | padding
//   |
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace netfold::wire::roce {

constexpr std::uint16_t kNoticeEtherType = 0x88b5;             // IEEE 802: local experiments
constexpr std::uint64_t kSwitchAddress = 0x02'4e'46'00'00'01;  // locally administered; no host answers there
// In a tree of switches, the sender of frames that a leaf has folded and sends up: 02:4e:46, how many leaves have
// folded them so far, and the number of the last one. A frame that a leaf only forwards keeps its sender, so the switch
// above does not add it.
constexpr std::uint64_t leaf_address(std::uint64_t from, std::uint16_t leaf) {
  constexpr std::uint64_t kPrefix = kSwitchAddress >> 24;
  const std::uint64_t levels = from >> 24 == kPrefix ? from >> 16 & 0xff : 0;
  return kPrefix << 24 | (levels + 1) << 16 | leaf;
}
constexpr std::size_t kNoticeBytes = 16;
constexpr std::size_t kNoticeFrameBytes = 60;  // the shortest frame, without FCS

struct Notice {
  enum class Kind : std::uint8_t {
    kWaiting = 0,   // your packet is here; of the ranks whose is not, `rank` has been silent for longest
    kMismatch = 1,  // your message and that of `rank` differ in format or length
    kUnknown = 2,   // no message is known that the packet with the PSN `message` belongs to: its first was lost
    kWorkers = 3,   // the switch folds `rank` ports for the job, and not as many as the message says it has workers
  };
  Kind kind = Kind::kWaiting;
  std::uint16_t job = 0, epoch = 0, rank = 0;
  std::uint16_t packet = 0;  // of the message: 0 to 127
  std::uint32_t message = 0;

  bool operator==(const Notice&) const = default;
};

// Of the bytes behind the Ethernet header; empty if they are not a notice.
std::optional<Notice> parse_notice(std::span<const std::byte> bytes);
std::array<std::byte, kNoticeFrameBytes> emit_frame(const Notice& notice, std::uint64_t to);

}  // namespace netfold::wire::roce
