// The information that one end of a RoCE connection needs about the other, exchanged before the first packet.
#pragma once

#include <cstdint>

#include "wire/aggregation_header.h"
#include "wire/roce.h"
#include "wire/roce_network.h"

namespace netfold::group {

// A receiver's memory: a place of 128 KiB for each of four messages; message m is written to place m mod 4.
constexpr std::size_t kMessageBytes = wire::roce::kMessagePackets * wire::roce::kPathMtu;
constexpr std::size_t kWindowBytes = wire::roce::kWindowMessages * kMessageBytes;

struct QpInfo {
  wire::roce::Version version = wire::roce::Version::kV1;
  std::uint64_t mac = 0;  // 48 bits; of the next hop, in what a sender knows of an end behind a router
  wire::roce::Gid gid{};
  std::uint32_t queue_pair = 0;
  std::uint32_t first_psn = 0;  // of what this end sends
  std::uint64_t address = 0;    // of its memory, as RETH names it
  std::uint32_t key = 0;
  // It takes packets that come out of order, and asks for single ones: a process does, an RDMA NIC does not say.
  bool is_selective = false;

  bool operator==(const QpInfo&) const = default;
};

// Fills in who sends a packet to whom. v1 stays in its segment; v2 has hops to spend on routers.
inline void address(wire::roce::Header& header, const QpInfo& from, const QpInfo& to) {
  header.version = from.version;
  header.from = from.gid;
  header.to = to.gid;
  if (from.version == wire::roce::Version::kV1) return;
  header.hop_limit = 64;
  header.source_port = wire::roce::source_port_of(from.queue_pair, to.queue_pair);
}

}  // namespace netfold::group
