// The frames that a generator sends to a switch, and the sums that it expects: contributions of a job's workers as
// frames, a few different contents in turn, and the sums of those contents by the reference kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "link/frame_port.h"
#include "switch/data_plane.h"
#include "switch/ethernet/headers.h"
#include "wire/lease.h"

namespace netfold::apps {

struct JobShape {
  wire::Lease lease;
  numbers::Format format = numbers::Format::kFp32;
  std::uint16_t count = 366;  // elements a chunk
};

// Between whom the frames travel.
struct Ends {
  struct Worker {
    switching::MacAddress mac, switch_mac;  // its own, and that of the switch as it sees it
    std::uint32_t ip = 0;
    std::uint16_t udp_port = 0;
  };
  std::uint32_t switch_ip = 0;
  std::vector<std::uint16_t> switch_udp_ports;  // by shard
  std::vector<Worker> workers;                  // by rank
};
// Of workers and a switch that are not there.
constexpr std::uint32_t kSwitchIp = 0x0a00'0001;
Ends made_up_ends(const wire::Lease& lease, std::uint32_t switch_ip, std::uint16_t switch_udp_port);

class Gradients {
 public:
  static constexpr std::size_t kContents = 5;  // neighbouring chunks differ: a mix-up of slots shows

  Gradients(JobShape shape, Ends ends, std::uint64_t seed);

  switching::Admission admission() const;
  const JobShape& shape() const { return shape_; }
  const Ends& ends() const { return ends_; }
  std::size_t frame_bytes() const {
    return switching::kUdpFrameBytes + wire::kHeaderBytes + payload_bytes_ + tag_bytes_;
  }

  // Into `room`, which must hold frame_bytes(); returns the frame's size.
  std::size_t contribution(std::uint16_t worker, std::uint32_t chunk, std::byte* room) const;
  // A packet without elements.
  std::size_t question(wire::Kind kind, std::uint16_t worker, std::uint32_t chunk, std::byte* room) const;

  // Whether a frame that came to a worker is of the job's switch, and for its job.
  bool is_for(std::uint16_t worker, const link::Frame& frame) const;
  // A frame that left a worker's port.
  enum class Kind : std::uint8_t { kResult, kMissing, kWaiting, kEcho, kWrong, kOther };
  struct Answer {
    Kind kind = Kind::kOther;
    std::uint32_t chunk = 0;
    std::uint16_t rank = 0;  // kWaiting: for whom
  };
  // kWrong: a result whose elements are not the sum, bit for bit; of fp32 sums, NaNs may differ.
  Answer read(std::uint16_t worker, const link::OutgoingFrame& frame) const;

 private:
  std::size_t write(std::uint16_t worker, const wire::Header& header, std::span<const std::byte> payload,
                    std::byte* room) const;

  JobShape shape_;
  Ends ends_;
  std::size_t payload_bytes_, tag_bytes_;
  std::vector<std::vector<std::byte>> payloads_;  // contents x world
  std::vector<std::vector<std::byte>> sums_;      // by content
};

}  // namespace netfold::apps
