// What a program does with a smart NIC (docs/reference/nic-registers.md): it takes the NIC, gives it a place in a ring,
// hands it requests, and hears how they ended. The NIC is a PCI device, another program, or a simulation in this
// process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "link/pci/pci_device.h"

namespace netfold::group {

constexpr std::size_t kNicRegisterBytes = 4096;
constexpr unsigned kNicRingMax = 32;

// What the NIC was built for.
struct NicShape {
  unsigned lanes = 0, block = 0, mantissa = 0;
  bool has_bfp = false;

  bool operator==(const NicShape&) const = default;
};

struct RingPlace {
  unsigned position = 0, size = 2;
  bool bfp = false;
  std::uint16_t ring = 1;
  std::uint8_t epoch = 1;
  std::uint64_t own = 0, right = 0, left = 0;  // Ethernet addresses, the first byte in the lowest bits
  std::uint32_t request_timeout = 0x10000;     // in 1024 cycles
  std::uint32_t link_timeout = 0x4000;         // in cycles
};

struct NicEnd {
  std::uint16_t tag;
  unsigned status;  // NETFOLD_NIC_DONE, ...
};
const char* name_of_nic_status(unsigned status);

class NicDriver {
 public:
  explicit NicDriver(link::PciDevice& device) : device_(device) {}

  // Is it such a NIC, and how was it built? kSystem if it is another device, or another version of it.
  Result<NicShape> identify();
  // Every request ends, and the ring is left. kSystem if the NIC is not ready again after many looks.
  Result<void> reset();
  // Resets, and enters a ring.
  Result<void> join(const RingPlace& place);
  // Adds up `count` elements at a device's address over the ring. False: too many requests are in progress.
  Result<bool> post(std::uint64_t source, std::uint64_t destination, std::uint32_t count, std::uint16_t tag);
  // The oldest request that has ended and was not returned yet.
  Result<std::optional<NicEnd>> completion();
  // The Ethernet address that the NIC has by itself; 0: none.
  Result<std::uint64_t> own_address();
  // The right neighbour has every frame.
  Result<bool> link_is_idle();
  Result<std::uint32_t> read(std::uint32_t offset) { return device_.read(offset); }

 private:
  Result<void> write_pair(std::uint32_t low, std::uint64_t value);

  link::PciDevice& device_;
  std::uint32_t room_ = 0;  // for requests
};

}  // namespace netfold::group
