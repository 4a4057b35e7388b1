// A link that also writes what passes to a capture file (pcap; raw IPv4 or Ethernet), for Wireshark and the dissector
// in tools/wireshark. A disk that fills ends the capture with a warning, never the traffic.
#pragma once

#include <memory>
#include <string>

#include "link/link.h"

namespace netfold::link {

// The file is made anew. `local` stands for the wrapped link's own ip where that is bound to any address.
Result<std::unique_ptr<Link>> capture(std::unique_ptr<Link> inner, const std::string& path, Address local);

// The same for a link whose datagrams are Ethernet frames.
Result<std::unique_ptr<Link>> capture_frames(std::unique_ptr<Link> inner, const std::string& path);

}  // namespace netfold::link
