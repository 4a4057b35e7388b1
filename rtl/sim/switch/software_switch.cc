#include "switch/software_switch.h"

#include <stdexcept>

namespace netfold::rtl {

SoftwareSwitch::SoftwareSwitch(unsigned ports, switching::RoceOptions options)
    : switch_(static_cast<link::PortNumber>(ports), {.roce = options}) {}

switching::MemorySwitch::Sent SoftwareSwitch::offer(unsigned port, const Bytes& frame, Ticks now) {
  return switch_.offer(static_cast<link::PortNumber>(port), frame,
                       kSecond + static_cast<Nanoseconds>(now / kTicksPerNs));
}

void SoftwareSwitch::set_registers(std::uint32_t mode, std::uint32_t port_config) {
  const auto set = switching::set_registers({mode, port_config}, switch_.settings());
  if (!set) throw std::invalid_argument(set.error().message);
}

std::uint64_t SoftwareSwitch::flawed(switching::Flaw flaw) const {
  std::uint64_t frames = 0;
  for (link::PortNumber port = 0; port < switch_.ports(); ++port) {
    frames += switch_.pipeline().counters(port).flaws[static_cast<std::size_t>(flaw)].get();
  }
  return frames;
}

}  // namespace netfold::rtl
