// A PCI device that a program drives by itself: its registers, memory that both of them use, and its interrupt. It is a
// device in this machine, by the kernel's VFIO, or a program that takes the part of one, by vfio-user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace netfold::link {

class PciDevice {
 public:
  virtual ~PciDevice() = default;

  // Registers of 32 bits at an offset in bytes. A device that sees a write of a register sees all that was written to
  // the memory before it. kSystem if the device does not answer any more.
  virtual Result<std::uint32_t> read(std::uint32_t offset) = 0;
  virtual Result<void> write(std::uint32_t offset, std::uint32_t value) = 0;

  // Memory that the device reads and writes, and the address that the device knows it by.
  virtual std::span<std::byte> memory() = 0;
  virtual std::uint64_t memory_address() const = 0;

  // An eventfd that the device's interrupt makes readable; -1 for a device without one, whose registers tell.
  virtual int interrupt() const = 0;
  virtual void clear_interrupt() = 0;  // makes it unreadable until the next one
};

// Where a device is, in one line of text: the PCI address of a device ("0000:65:00.0"), or the socket of a program (a
// path, or @name); after it perhaps bar=NUMBER and offset=NUMBER: where its registers are (default: the start of BAR
// 0).
struct PciPlace {
  std::string device;
  unsigned bar = 0;
  std::uint64_t offset = 0;

  bool is_socket() const { return device.starts_with('@') || device.find('/') != std::string::npos; }
  bool operator==(const PciPlace&) const = default;
};

// `{rank}` stands for the rank. kInvalidArgument, with what to write.
Result<PciPlace> parse_pci_place(const std::string& text, int rank);

// Takes the device, which no other process can have then, resets it, and lets it use `memory_bytes` of this process's
// memory (whole pages of it). Its registers are `register_bytes` long. kSystem, with what to do, if it cannot be taken.
Result<std::unique_ptr<PciDevice>> open_pci_device(const PciPlace& place, std::size_t register_bytes,
                                                   std::size_t memory_bytes);

}  // namespace netfold::link
