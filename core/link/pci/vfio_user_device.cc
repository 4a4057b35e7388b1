#include "link/pci/vfio_user_device.h"

#include <fmt/core.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "link/pci/held_device.h"
#include "link/pci/vfio_user.h"

namespace netfold::link {
namespace {

using vfio_user::bytes_of;
using vfio_user::Command;
using vfio_user::Header;
using vfio_user::Message;

constexpr std::uint64_t kMemoryAddress = std::uint64_t{1} << 30;  // as the device says it; any will do

class VfioUserDevice final : public HeldDevice {
 public:
  VfioUserDevice(PciPlace place, vfio_user::Socket socket)
      : HeldDevice("the device", std::move(place)), socket_(std::move(socket)) {}

  Result<void> set_up(std::size_t register_bytes, std::size_t memory_bytes) {
    if (auto agreed = agree_on_version(); !agreed) return agreed;
    if (auto found = find_registers(register_bytes); !found) return found;
    if (auto reset = call(Command::kReset, {}); !reset) return tl::unexpected(reset.error());
    if (auto shared = share_memory(memory_bytes); !shared) return shared;
    if (auto asked = ask_for_interrupts(); !asked) return asked;
    return may_use_memory();
  }

  Result<std::uint32_t> read(std::uint32_t offset) override {
    const vfio_user::RegionAccess access{place_.offset + offset, place_.bar, sizeof(std::uint32_t)};
    auto reply = call(Command::kRegionRead, {bytes_of(access)});
    if (!reply) return tl::unexpected(reply.error());
    const auto value = reply->at<std::uint32_t>(sizeof access);
    if (!value) return short_reply();
    return *value;
  }
  Result<void> write(std::uint32_t offset, std::uint32_t value) override {
    const vfio_user::RegionAccess access{place_.offset + offset, place_.bar, sizeof value};
    const auto reply = call(Command::kRegionWrite, {bytes_of(access), bytes_of(value)});
    if (!reply) return tl::unexpected(reply.error());
    return {};
  }

  std::uint64_t memory_address() const override { return kMemoryAddress; }

 private:
  // Later calls would wait for an answer in vain, or take an old one for their own.
  tl::unexpected<Error> lost(const std::string& why) {
    lost_ = why;
    return failed(why);
  }
  tl::unexpected<Error> short_reply() const { return failed("a reply is too short: it does not speak vfio-user"); }

  // Asks, and waits for the answer as the bus would let the processor wait, but for kPatience at most.
  Result<Message> call(Command command, std::initializer_list<std::span<const std::byte>> body,
                       std::span<const int> descriptors = {}) {
    if (!lost_.empty()) return failed(lost_);
    const Header header{.id = ++last_id_, .command = command};
    if (const auto sent = socket_.send(header, body, descriptors); !sent) return lost(sent.error().message);
    auto reply = socket_.receive(now() + vfio_user::Socket::kPatience);
    if (!reply) return lost(reply.error().message);
    if (!*reply) return lost("no answer came: is its program stopped?");
    const Header& answer = (*reply)->header;
    if ((answer.flags & vfio_user::kTypeMask) != vfio_user::kReply || answer.id != header.id) {
      return lost("it sent something else than a reply: it does not speak vfio-user");
    }
    if ((answer.flags & vfio_user::kError) != 0) {
      return failed(fmt::format("it refused command {}: {}", static_cast<int>(command),
                                std::strerror(static_cast<int>(answer.error))));
    }
    return std::move(**reply);
  }

  Result<void> agree_on_version() {
    const auto reply = call(Command::kVersion, {bytes_of(vfio_user::kVersion), bytes_of(vfio_user::kCapabilities)});
    if (!reply) return fail(reply.error().code, reply.error().message + ": does another program drive the device?");
    const auto version = reply->at<vfio_user::Version>();
    if (!version) return short_reply();
    if (version->major != vfio_user::kVersion.major) {
      return failed(
          fmt::format("it speaks version {} of vfio-user, not {}", version->major, vfio_user::kVersion.major));
    }
    return {};
  }

  Result<void> find_registers(std::size_t register_bytes) {
    vfio_region_info region{};
    region.argsz = sizeof region;
    region.index = place_.bar;
    const auto reply = call(Command::kGetRegionInfo, {bytes_of(region)});
    if (!reply) return tl::unexpected(reply.error());
    const auto info = reply->at<vfio_region_info>();
    if (!info) return short_reply();
    return check_room(info->size, register_bytes);
  }

  Result<void> share_memory(std::size_t memory_bytes) {
    const auto descriptor = make_memory(memory_bytes);
    if (!descriptor) return tl::unexpected(descriptor.error());
    const vfio_user::DmaMap map{sizeof map, vfio_user::kMayRead | vfio_user::kMayWrite, 0, kMemoryAddress,
                                memory_bytes};
    const std::array<int, 1> descriptors{descriptor->get()};
    const auto reply = call(Command::kDmaMap, {bytes_of(map)}, descriptors);
    if (!reply) return tl::unexpected(reply.error());
    return {};
  }

  Result<void> ask_for_interrupts() {
    for (const unsigned index : {VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX}) {
      vfio_irq_info wanted{};
      wanted.argsz = sizeof wanted;
      wanted.index = index;
      const auto reply = call(Command::kGetIrqInfo, {bytes_of(wanted)});
      if (!reply) return tl::unexpected(reply.error());
      const auto info = reply->at<vfio_irq_info>();
      if (!info) return short_reply();
      if (info->count == 0) continue;
      const Wakeup& event = interrupt_.emplace();
      vfio_irq_set set{};
      set.argsz = sizeof set;
      set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
      set.index = index;
      set.count = 1;
      const std::array<int, 1> descriptors{event.descriptor()};
      if (const auto done = call(Command::kSetIrqs, {bytes_of(set)}, descriptors); !done) {
        return tl::unexpected(done.error());
      }
      return {};
    }
    return {};
  }

  // As bus master.
  Result<void> may_use_memory() {
    const std::uint16_t command = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    const vfio_user::RegionAccess access{PCI_COMMAND, VFIO_PCI_CONFIG_REGION_INDEX, sizeof command};
    const auto reply = call(Command::kRegionWrite, {bytes_of(access), bytes_of(command)});
    if (!reply) return tl::unexpected(reply.error());
    return {};
  }

  vfio_user::Socket socket_;
  std::uint16_t last_id_ = 0;
  std::string lost_;  // why the device does not answer any more
};

}  // namespace

Result<std::unique_ptr<PciDevice>> open_vfio_user_device(const PciPlace& place, std::size_t register_bytes,
                                                         std::size_t memory_bytes) {
  auto socket = vfio_user::Socket::connect(place.device);
  if (!socket) return tl::unexpected(socket.error());
  auto device = std::make_unique<VfioUserDevice>(place, std::move(*socket));
  if (const auto ready = device->set_up(register_bytes, memory_bytes); !ready) return tl::unexpected(ready.error());
  return device;
}

}  // namespace netfold::link
