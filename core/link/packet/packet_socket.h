// Whole Ethernet frames of one interface through the kernel (AF_PACKET): what packet_link and packet_port have in
// common. The process needs CAP_NET_RAW.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace netfold::link {

// Whether the interface is up and its link too, asked by any socket of its network namespace.
bool has_link(int socket, const std::string& interface);

struct PacketSocketOptions {
  std::string interface;
  // Only frames of these types come in (untagged); empty: all.
  std::vector<std::uint16_t> ether_types = {};
  // Beside them, if not 0: whole IPv4 datagrams to this UDP port.
  std::uint16_t udp_port = 0;
  bool is_promiscuous = false;  // frames for other addresses too
  std::size_t buffer_bytes = 8u << 20;
};

class PacketSocket {
 public:
  static constexpr std::size_t kFramesAtOnce = 64;  // a system call

  // kSystem, with what to do, if the interface is not there or is down, or the process may not.
  static Result<std::unique_ptr<PacketSocket>> open(const PacketSocketOptions& options);
  ~PacketSocket();
  PacketSocket(const PacketSocket&) = delete;

  // Frames that have come, at most kFramesAtOnce; valid until the next call. VLAN tags are where they were on the wire.
  std::span<const std::span<const std::byte>> receive();
  // Sends frames, each in up to four pieces; returns how many were taken. `refused` counts those that the kernel did
  // not want for good.
  std::size_t send(std::span<const std::span<const iovec>> frames, std::uint64_t& refused);

  int descriptor() const { return descriptor_; }
  std::uint64_t mac() const { return mac_; }  // 48 bits
  const std::string& interface() const { return interface_; }
  bool is_up() const;

 private:
  PacketSocket(int descriptor, std::uint64_t mac, std::string interface);

  int descriptor_;
  std::uint64_t mac_;
  std::string interface_;
  std::vector<std::byte> room_;
  std::vector<mmsghdr> headers_;
  std::vector<iovec> pieces_;
  std::vector<std::array<char, 64>> controls_;
  std::vector<std::span<const std::byte>> frames_;
};

}  // namespace netfold::link
