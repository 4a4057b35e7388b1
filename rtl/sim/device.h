// One smart NIC as a host sees it: a Verilated netfold_nic with host memory behind its memory ports and frames at its
// Ethernet port. A driver uses its registers as those of a PCI device; each access takes a few cycles.
//
// No function blocks; step() is one cycle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/prng.h"
#include "link/pci/pci_device.h"

namespace netfold::rtl {

inline constexpr unsigned kLanes = NETFOLD_RTL_LANES;
inline constexpr std::size_t kBeatBytes = std::size_t{4} * kLanes;

using Frame = std::vector<std::byte>;

// The host's memory as the device uses it: by default this process's own, at its own addresses.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  virtual void read(std::uint64_t address, std::span<std::byte> into) const;
  virtual void write(std::uint64_t address, std::span<const std::byte> bytes) const;
};

struct DeviceOptions {
  unsigned read_latency = 40, write_latency = 40;  // cycles between command and answer
  double stall = 0;                                // probability that a port of the host does not accept or offer data
  std::uint64_t seed = 1;
  std::shared_ptr<HostMemory> host = std::make_shared<HostMemory>();
};

class Device final : public link::PciDevice {
 public:
  explicit Device(DeviceOptions options = {});
  ~Device() override;
  Device(Device&&) noexcept;

  // --- As a driver; the registers take cycles of only this device. ---
  Result<std::uint32_t> read(std::uint32_t offset) override;
  Result<void> write(std::uint32_t offset, std::uint32_t value) override;  // kSystem: a bus error
  std::span<std::byte> memory() override { return {}; }                    // any of the host's
  std::uint64_t memory_address() const override { return 0; }
  int interrupt() const override { return -1; }
  void clear_interrupt() override {}
  bool interrupts() const;  // interrupt_o

  // --- As the device's surroundings ---
  // One cycle. `may_send`: the MAC accepts a beat.
  void step(bool may_send);
  void deliver(Frame frame) { arriving_.push_back(std::move(frame)); }
  // A whole frame that has left; empty if no frame has left.
  std::optional<Frame> sent();
  std::uint64_t cycles() const;

 private:
  struct Burst {
    std::uint64_t address;
    std::size_t bytes, done = 0;
    std::uint64_t due = 0;  // the cycle of its data, or of its confirmation
  };
  struct Model;

  void drive_memory();
  void drive_ethernet(bool may_send);
  void take_answers();
  bool goes() { return options_.stall == 0 || !prng_.chance(options_.stall); }

  DeviceOptions options_;
  Prng prng_;
  std::unique_ptr<Model> model_;
  std::deque<Burst> reads_, writes_, confirmations_;
  std::deque<Frame> arriving_, sent_;
  std::size_t arrived_ = 0;  // bytes of the first arriving frame
  Frame leaving_;
};

}  // namespace netfold::rtl
