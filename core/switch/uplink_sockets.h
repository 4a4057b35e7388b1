// The connections of uplinks.h, as sockets.
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <vector>

#include "link/tcp/control_socket.h"
#include "switch/uplinks.h"

namespace netfold::switching {

class UplinkSockets {
 public:
  // `from_ip`: the address that the switch is bound to; it may be any.
  UplinkSockets(const IpAddress& from_ip, std::uint8_t dscp) : from_ip_(from_ip), dscp_(dscp) {}

  // Opens the connections that are wanted, and hands over those that are there. To be called every round.
  void turn(Uplinks& uplinks, Nanoseconds now);
  // Adds what is to be polled, the open connections included.
  void add_polls(const Uplinks& uplinks, std::vector<pollfd>& polls) const;

 private:
  IpAddress from_ip_;
  std::uint8_t dscp_;
  std::map<JobKey, std::unique_ptr<link::ControlSocket>> connecting_;
};

}  // namespace netfold::switching
