// A link (link.h) whose datagrams are whole Ethernet frames of one interface; addresses mean nothing to it.
#pragma once

#include <memory>

#include "link/link.h"
#include "link/packet/packet_socket.h"

namespace netfold::link {

struct PacketLink {
  std::unique_ptr<Link> link;
  std::uint64_t mac;  // of the interface
};
Result<PacketLink> open_packet_link(const PacketSocketOptions& options);

}  // namespace netfold::link
