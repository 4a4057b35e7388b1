// The cable at the Ethernet port of a simulated NIC. It ends at an interface of this machine, which carries real frames
// (the process needs CAP_NET_RAW), or its frames are UDP datagrams to the processes of other NICs. By UDP the Ethernet
// address of a NIC says where its datagrams go: the IPv4 address is in its last four bytes, and the port (49152 and
// above) in the 14 bits before them that are free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device.h"
#include "link/link.h"

namespace netfold::rtl {

struct CableOptions {
  std::string interface;         // "": UDP
  std::string ip = "127.0.0.1";  // of this machine, for UDP
  std::string faults;            // link::parse_faults; "": none
};

class Cable {
 public:
  static Result<Cable> plug_in(const CableOptions& options);

  std::uint64_t mac() const { return mac_; }  // that the NIC has on it, the first byte in the lowest bits
  void send(std::span<const Frame> frames);   // a frame that the socket does not take is lost
  std::vector<Frame> receive();
  int descriptor() const { return link_->descriptor(); }
  Nanoseconds deadline() const { return link_->deadline(); }

 private:
  Cable(std::unique_ptr<link::Link> link, std::uint64_t mac, bool is_udp)
      : link_(std::move(link)), mac_(mac), is_udp_(is_udp) {}

  std::unique_ptr<link::Link> link_;
  std::uint64_t mac_;
  bool is_udp_;
};

// The Ethernet address of a NIC whose datagrams go to an IPv4 address and port, and back.
std::uint64_t mac_of(link::Address address);
link::Address address_of_mac(std::uint64_t mac);
constexpr std::uint16_t kCablePortMin = 49152;

}  // namespace netfold::rtl
