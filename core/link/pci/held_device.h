// The parts of a PCI device (pci_device.h) that do not depend on the way to it: memory that the device uses, and its
// interrupt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/wakeup.h"
#include "link/pci/pci_device.h"
#include "link/shared_memory.h"

namespace netfold::link {

class HeldDevice : public PciDevice {
 public:
  std::span<std::byte> memory() override { return {memory_->data(), memory_->size_bytes()}; }
  int interrupt() const override { return interrupt_ ? interrupt_->descriptor() : -1; }
  void clear_interrupt() override {
    if (interrupt_) interrupt_->clear();
  }

 protected:
  // `kind`: as errors name it, "the device".
  HeldDevice(const char* kind, PciPlace place) : place_(std::move(place)), kind_(kind) {}

  tl::unexpected<Error> failed(const std::string& why) const;
  // Does the BAR hold the registers?
  Result<void> check_room(std::uint64_t bar_bytes, std::size_t register_bytes) const;
  // Makes the memory; the descriptor is for another process.
  Result<Descriptor> make_memory(std::size_t memory_bytes);

  const PciPlace place_;
  std::optional<Mapping> memory_;    // outlives what a derived class has of the device, and so the device's use of it
  std::optional<Wakeup> interrupt_;  // empty for a device without one

 private:
  const char* const kind_;
};

}  // namespace netfold::link
