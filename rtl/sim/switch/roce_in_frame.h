// Finds the RoCE packet in an Ethernet frame, of version 1 or 2, without a VLAN tag or with one; checksums of v2.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "switch/mac.h"
#include "wire/roce.h"

namespace netfold::rtl {

inline constexpr std::size_t kTagAt = 12, kTagBytes = 4;  // of a VLAN tag

// Where the bytes behind the Ethernet header and its tag begin.
std::size_t content_at(const Bytes& frame);

struct RoceInFrame {
  std::size_t at = 0;           // of the network header
  wire::roce::Packet packet{};  // its spans are the frame's bytes
};
// Empty if the frame is not RoCE, or its lengths are wrong. The ICRC is not checked.
std::optional<RoceInFrame> roce_in(const Bytes& frame);

// Writes the checksum of an IPv4 header.
void set_ipv4_checksum(std::span<std::byte> header);
// Writes the UDP checksum of an IPv4 packet without options. It may not be 0, which stands for none.
void set_udp_checksum(std::span<std::byte> packet);

}  // namespace netfold::rtl
