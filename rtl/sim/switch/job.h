// The frames of a job of RoCE workers: any packet of any message of any rank. Its numbers depend only on these and a
// seed. So a frame that is sent again has the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numbers/format.h"
#include "switch/mac.h"
#include "wire/aggregation_header.h"

namespace netfold::rtl {

struct JobOptions {
  wire::roce::Version version = wire::roce::Version::kV1;  // of all its frames
  std::uint16_t job = 1, epoch = 1;
  std::vector<unsigned> ports;  // by rank
  numbers::WireFormat format = {};
  bool names_format = true;  // else the message has no format, and the switch's AGG_MODE counts
  bool says_workers = true;  // v2: the aggregation header has the number of workers, not 0
  bool is_folded = true;     // else the same frames without an aggregation header: plain writes
  bool has_tag = false;      // a VLAN tag
  bool has_one_way = false;  // two messages of three go to one rank, or come from one
  bool is_wild = false;      // numbers of any bits: infinities, NaNs, subnormals
  std::uint32_t first_psn = 0;
  std::uint32_t packets = wire::roce::kMessagePackets;  // of a message
  std::uint32_t last_bytes = wire::roce::kPathMtu;      // of its last packet
  std::uint64_t seed = 1;
};

class Job {
 public:
  explicit Job(JobOptions options);

  unsigned world() const { return static_cast<unsigned>(options_.ports.size()); }
  unsigned port(unsigned rank) const { return options_.ports[rank]; }
  unsigned right_of(unsigned rank) const { return (rank + 1) % world(); }
  unsigned left_of(unsigned rank) const { return (rank + world() - 1) % world(); }
  const JobOptions& options() const { return options_; }
  std::uint32_t packets() const { return options_.packets; }
  std::uint32_t gradient_bytes() const;  // of a message

  // Of packet `index` of a message, from `rank` to its right neighbour.
  Bytes contribution(unsigned rank, std::uint32_t message, std::uint32_t index) const;
  // A whole message in the worker's memory: aggregation header, then gradients.
  std::vector<std::byte> message(unsigned rank, std::uint32_t number) const;
  // The acknowledgement of `rank` to its left neighbour for a whole message.
  Bytes acknowledgement(unsigned rank, std::uint32_t message) const;
  // Any frame from this rank's address, so that switches learn its port.
  Bytes greeting(unsigned rank) const;

  std::uint64_t address(unsigned rank) const;
  wire::roce::Gid gid(unsigned rank) const;
  std::uint32_t queue_pair(unsigned rank) const;  // the target of writes to this rank
  std::uint32_t psn(unsigned rank, std::uint32_t message, std::uint32_t index) const;
  // The same connections with frames of this version and without an aggregation header: plain writes.
  Job as_plain_writes(wire::roce::Version version) const;
  // Restarts the connections: other queue pairs and sequence numbers, the same messages.
  void restart(unsigned rank);

 private:
  wire::roce::AggregationHeader aggregation_header(unsigned rank, std::uint32_t message) const;
  std::vector<std::byte> payload(unsigned rank, std::uint32_t message, std::uint32_t index) const;
  void fill(unsigned rank, std::uint32_t message, std::uint32_t index, std::span<std::byte> out) const;
  wire::roce::Header header_between(unsigned from, unsigned to) const;
  Bytes finish(const wire::roce::Header& header, std::uint64_t to, std::uint64_t from,
               const std::vector<std::byte>& payload) const;

  JobOptions options_;
  std::vector<unsigned> lives_;  // of each rank's connection
};

// A plain frame of `size_bytes` between two addresses; its bytes depend on the seed.
Bytes plain_frame(std::uint64_t to, std::uint64_t from, std::size_t size_bytes, std::uint64_t seed);
// A plain IPv4 packet in such a frame, of TCP or of UDP to a port that is not RoCE's.
Bytes ipv4_frame(std::uint64_t to, std::uint64_t from, std::size_t size_bytes, std::uint64_t seed);
inline constexpr std::uint64_t kEverybody = 0xffffffffffff;

}  // namespace netfold::rtl
