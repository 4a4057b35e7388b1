// vfio-user: what the kernel's VFIO does with a PCI device, as messages over a UNIX socket, so that the device may be
// another program. The messages are those of QEMU's docs/interop/vfio-user.rst, version 0.0; numbers are in the order
// of bytes of this machine. Where a message is one of VFIO's own structures, it is not written down again here
// (linux/vfio.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "link/descriptor.h"

namespace netfold::link::vfio_user {

enum class Command : std::uint16_t {
  kVersion = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kGetDeviceInfo = 4,
  kGetRegionInfo = 5,
  kGetIrqInfo = 7,
  kSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kReset = 13,
};

constexpr std::uint32_t kReply = 0x1, kTypeMask = 0xf;        // in `flags`; a command has type 0
constexpr std::uint32_t kWantsNoReply = 0x10, kError = 0x20;  // in `flags`

struct Header {
  std::uint16_t id = 0;
  Command command = {};
  std::uint32_t size_bytes = 0;  // of the header and the body
  std::uint32_t flags = 0;
  std::uint32_t error = 0;  // an errno, in a reply with kError
};
static_assert(sizeof(Header) == 16);

struct Version {
  std::uint16_t major, minor;  // and JSON, with a zero at its end
};
constexpr Version kVersion{0, 0};
constexpr char kCapabilities[] = R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576}})";

struct DmaMap {
  std::uint32_t size_bytes, flags;  // of this structure
  std::uint64_t offset, address, bytes;
};
constexpr std::uint32_t kMayRead = 1, kMayWrite = 2;  // in `flags` of DmaMap: the device

struct DmaUnmap {
  std::uint32_t size_bytes, flags;
  std::uint64_t address, bytes;
};
constexpr std::uint32_t kUnmapAll = 2;  // in `flags` of DmaUnmap

struct DeviceInfo {
  std::uint32_t size_bytes, flags, regions, irqs;
};

struct RegionAccess {
  std::uint64_t offset;
  std::uint32_t region, bytes;  // and so many bytes of data, with a write and with the reply to a read
};

constexpr std::size_t kBodyBytesMax = std::size_t{1} << 20;

struct Message {
  Header header;
  std::vector<std::byte> body;
  std::vector<Descriptor> descriptors;

  // The structure at an offset of the body; empty if the body is too short.
  template <class Structure>
  std::optional<Structure> at(std::size_t offset = 0) const;
};

// The bytes of a structure.
template <class Structure>
std::span<const std::byte> bytes_of(const Structure& structure) {
  return std::as_bytes(std::span(&structure, 1));
}

class Socket {
 public:
  // kSystem: no program listens there.
  static Result<Socket> connect(const std::string& path);

  explicit Socket(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  int descriptor() const { return descriptor_.get(); }

  // Sends a message whose body is the pieces one behind the other; sets size_bytes. It waits for at most kPatience.
  Result<void> send(Header header, std::initializer_list<std::span<const std::byte>> pieces,
                    std::span<const int> descriptors = {}) const;
  // The next message; empty if none has begun to come until the deadline. Once begun, a message has kPatience to come.
  // kSystem if the other end is closed, or sends something else.
  Result<std::optional<Message>> receive(Nanoseconds deadline) const;

  static constexpr Nanoseconds kPatience = 5 * kSecond;

 private:
  Result<bool> read(std::span<std::byte> into, std::vector<Descriptor>& descriptors, Nanoseconds deadline) const;
  bool wait(short events, Nanoseconds deadline) const;

  Descriptor descriptor_;
};

template <class Structure>
std::optional<Structure> Message::at(std::size_t offset) const {
  if (offset > body.size() || body.size() - offset < sizeof(Structure)) return std::nullopt;
  Structure structure;
  std::memcpy(&structure, body.data() + offset, sizeof structure);
  return structure;
}

}  // namespace netfold::link::vfio_user
