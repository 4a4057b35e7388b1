// The network header of a RoCE packet: the GRH of v1, which stays in its Ethernet segment, or IPv4 and UDP of v2, which
// routers forward. wire/roce.cc reads and writes the rest of a packet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/roce.h"

namespace netfold::wire::roce {

// The outcome of reading a network header: a packet's length, if the header is right.
struct NetworkContent {
  ParseError error = ParseError::kNone;
  std::size_t packet_bytes = 0;  // network header to ICRC
};
NetworkContent parse_network(std::span<const std::byte> bytes, Version version, Header& header);
// `transport_bytes`: BTH to ICRC.
void emit_network(const Header& header, std::size_t transport_bytes, std::span<std::byte> out);
// Writes the lengths and checksums of a packet that was changed.
void set_transport_bytes(std::span<std::byte> packet, Version version, std::size_t transport_bytes);
// A byte of ones, which the ICRC counts for what routers may change.
constexpr std::byte kAllOnes{0xff};
// Sets the fields that routers may change to ones.
void mask_network(std::span<std::byte> header, Version version);

// IPv4 addresses as numbers, the first byte highest.
Gid gid_of_ipv4(std::uint32_t address);
std::optional<std::uint32_t> ipv4_of(const Gid& gid);
// The UDP port that a connection sends from. It is the same for every packet of it, and differs between connections, so
// that routers with several paths spread connections and keep each in order. Source: Linux, rdma_calc_flow_label and
// rdma_flow_label_to_udp_sport.
std::uint16_t source_port_of(std::uint32_t own_queue_pair, std::uint32_t peer_queue_pair);

}  // namespace netfold::wire::roce
