// A Verilated smart NIC as a PCI device for another program, by vfio-user: for netfold's own driver, or for QEMU, which
// gives it to a guest. BAR 0 holds the registers; one MSI is the interrupt. Its clock runs while there is work.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/wakeup.h"
#include "device.h"
#include "link/local_socket.h"
#include "link/pci/vfio_user.h"
#include "link/shared_memory.h"
#include "nic_cable.h"

namespace netfold::rtl {

// The configuration space of a PCI device: 256 bytes, some of which a host may write.
class ConfigSpace {
 public:
  ConfigSpace();
  std::span<const std::byte> read(std::size_t at, std::size_t bytes) const;  // empty if some are not there
  bool write(std::size_t at, std::span<const std::byte> bytes);
  bool take_reset();           // the host has asked for one (a function level reset)
  bool is_bus_master() const;  // the device may use memory

 private:
  std::array<std::byte, 256> bytes_{}, writable_{};
};

// The memory that a client lets the device use, in windows at addresses of the client's choice. Outside of all windows
// the device reads ones, and its writes are lost.
class ClientMemory final : public HostMemory {
 public:
  // `file`: empty where the client has the window to itself. An errno, or 0.
  void allow(bool is_bus_master) { is_allowed_ = is_bus_master; }
  int map(const link::vfio_user::DmaMap& window, const link::Descriptor* file);
  void unmap(std::uint64_t address, std::uint64_t bytes);
  void clear();

  void read(std::uint64_t address, std::span<std::byte> into) const override;
  void write(std::uint64_t address, std::span<const std::byte> bytes) const override;

 private:
  // A guest's memory comes as thousands of windows of one file, which is mapped once.
  using File = std::pair<dev_t, ino_t>;
  struct Window {
    std::uint64_t bytes;
    std::shared_ptr<link::Mapping> file;  // null: not for the device
    std::byte* data;
  };

  // Calls `use(place, offset, bytes)` for each part of a range that lies in one window, and with null between them.
  template <class Use>
  void walk(std::uint64_t address, std::size_t bytes, Use use) const;

  bool is_allowed_ = false;                  // else the device reaches no window
  std::map<std::uint64_t, Window> windows_;  // by address
  std::map<File, std::weak_ptr<link::Mapping>> files_;
};

class NicServer {
 public:
  // Errors as of the socket and of the cable.
  static Result<NicServer> open(const std::string& path, const CableOptions& cable);

  const std::string& path() const { return listener_->address(); }
  // Everything that can be done now: messages, frames, some cycles.
  void turn();
  // When to call turn() again, although nothing came.
  Nanoseconds deadline(Nanoseconds now) const;
  void add_polls(std::vector<pollfd>& polls) const;

 private:
  using Message = link::vfio_user::Message;
  struct Answer {
    std::uint32_t error = 0;  // an errno
    std::vector<std::byte> body;
  };

  NicServer(link::LocalListener listener, Cable cable);

  void power_on();
  void serve();
  void lose_client(const std::string& why);
  Answer answer(Message& message);
  Answer map_memory(const Message& message) const;
  Answer unmap_memory(const Message& message) const;
  Answer describe_region(const Message& message) const;
  Answer describe_interrupt(const Message& message) const;
  Answer set_interrupt(Message& message);
  Answer read_region(const Message& message);
  Answer write_region(const Message& message);
  bool run(unsigned cycles);
  bool is_busy();

  std::optional<link::LocalListener> listener_;
  Cable cable_;
  std::shared_ptr<ClientMemory> memory_;
  std::optional<Device> device_;
  ConfigSpace config_;
  std::optional<link::vfio_user::Socket> client_;
  std::unique_ptr<Wakeup> interrupt_;
  bool interrupts_ = false;         // the state of the device's line
  std::uint64_t quiet_cycles_ = 0;  // without a frame either way and without a message
  bool is_settled_ = true;
};

}  // namespace netfold::rtl
