// What a generator offers a switch and wants back: contributions of a job's workers as frames, a few different contents
// in turn, and the sums of those contents by the reference kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data_plane.h"
#include "frames/headers.h"
#include "link/frame_port.h"
#include "wire/lease.h"

namespace netfold::apps {

struct JobShape {
  wire::Lease lease;
  numbers::Format format = numbers::Format::kFp32;
  std::uint16_t count = 366;  // elements a chunk
};

class Gradients {
 public:
  static constexpr std::size_t kContents = 5;  // neighbouring chunks differ: a mix-up of slots shows

  Gradients(JobShape shape, std::uint32_t switch_ip, std::uint16_t udp_port, std::uint64_t seed);

  engine::Admission admission() const;
  const JobShape& shape() const { return shape_; }
  std::size_t frame_bytes() const { return frames::kUdpFrameBytes + wire::kHeaderBytes + payload_bytes_; }

  // Into `room`, which must hold frame_bytes(); returns the frame's size.
  std::size_t contribution(std::uint16_t worker, std::uint32_t chunk, std::byte* room) const;
  std::size_t probe(std::uint16_t worker, std::uint32_t chunk, std::byte* room) const;

  // What came back out of a worker's port.
  enum class Kind : std::uint8_t { kResult, kMissing, kWaiting, kWrong, kOther };
  struct Answer {
    Kind kind = Kind::kOther;
    std::uint32_t chunk = 0;
  };
  // kWrong: a result whose elements are not the sum, bit for bit; of fp32 sums, NaNs may differ.
  Answer read(std::uint16_t worker, const link::OutgoingFrame& frame) const;

 private:
  void write_head(std::uint16_t worker, const wire::Header& header, std::size_t payload_bytes, std::byte* room) const;

  JobShape shape_;
  std::uint32_t switch_ip_;
  std::uint16_t udp_port_;
  std::size_t payload_bytes_;
  std::vector<std::vector<std::byte>> payloads_;  // contents x world
  std::vector<std::vector<std::byte>> sums_;      // by content
};

}  // namespace netfold::apps
