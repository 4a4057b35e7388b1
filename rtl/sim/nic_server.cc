#include "nic_server.h"

#include <fmt/core.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "group/via_nic/nic_driver.h"
#include "netfold_nic.h"

namespace netfold::rtl {
namespace {

namespace vfio_user = link::vfio_user;
using vfio_user::bytes_of;
using vfio_user::Command;

constexpr unsigned kTurnCycles = 64;          // between two looks at the sockets
constexpr std::uint64_t kQuietCycles = 1024;  // then other processes get the core
// After the last frame, so that acknowledgements go: two periods of them.
constexpr std::uint64_t kSettleCycles = 16384;
constexpr Nanoseconds kNap = kMillisecond, kLongNap = 100 * kMillisecond;
constexpr unsigned kMessagesAtOnce = 256;

// Of hardware that is developed in the open and has no number of its own.
constexpr std::uint16_t kVendor = 0x1234, kDeviceNumber = 0x4e46;
constexpr std::uint8_t kProcessingAccelerator = 0x12;  // the class
constexpr std::size_t kMsiAt = 0x40, kMsiBytes = 14;   // a message with an address of 64 bits
constexpr std::size_t kExpressAt = 0x60;
constexpr std::uint32_t kBarBytes = group::kNicRegisterBytes;

template <class Structure>
std::vector<std::byte> body_of(const Structure& structure) {
  return {bytes_of(structure).begin(), bytes_of(structure).end()};
}

// Every user may connect to a name that is in no file system.
bool is_own_user(const link::Descriptor& socket) {
  const auto peer = link::peer_of(socket);
  return peer && (peer->uid == geteuid() || peer->uid == 0);
}

constexpr std::uint32_t kRegisterBytes = 4;
bool is_registers(const vfio_user::RegionAccess& access) {
  return access.region == VFIO_PCI_BAR0_REGION_INDEX && access.offset % kRegisterBytes == 0 &&
         access.bytes % kRegisterBytes == 0 && access.offset < kBarBytes && access.bytes <= kBarBytes - access.offset;
}

}  // namespace

// --- What the device says of itself ---

ConfigSpace::ConfigSpace() {
  const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes_.data() + at, &value, sizeof value); };
  const auto allow = [&](std::size_t at, auto mask) { std::memcpy(writable_.data() + at, &mask, sizeof mask); };
  put(PCI_VENDOR_ID, kVendor);
  put(PCI_DEVICE_ID, kDeviceNumber);
  put(PCI_SUBSYSTEM_VENDOR_ID, kVendor);
  put(PCI_SUBSYSTEM_ID, kDeviceNumber);
  put(PCI_CLASS_DEVICE + 1, kProcessingAccelerator);
  put(PCI_STATUS, std::uint16_t{PCI_STATUS_CAP_LIST});
  put(PCI_CAPABILITY_LIST, static_cast<std::uint8_t>(kMsiAt));
  put(kMsiAt, std::uint8_t{PCI_CAP_ID_MSI});
  put(kMsiAt + PCI_CAP_LIST_NEXT, static_cast<std::uint8_t>(kExpressAt));
  put(kMsiAt + PCI_MSI_FLAGS, std::uint16_t{PCI_MSI_FLAGS_64BIT});
  put(kExpressAt, std::uint8_t{PCI_CAP_ID_EXP});
  put(kExpressAt + PCI_EXP_FLAGS, std::uint16_t{2});  // version 2, an endpoint
  put(kExpressAt + PCI_EXP_DEVCAP, std::uint32_t{PCI_EXP_DEVCAP_RBER | PCI_EXP_DEVCAP_FLR});
  allow(PCI_COMMAND, std::uint16_t{PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE});
  allow(PCI_BASE_ADDRESS_0, ~(kBarBytes - 1));
  allow(PCI_INTERRUPT_LINE, std::uint8_t{0xff});
  allow(kMsiAt + PCI_MSI_FLAGS, std::uint16_t{PCI_MSI_FLAGS_ENABLE});
  allow(kExpressAt + PCI_EXP_DEVCTL, std::uint16_t{0xffff});
  for (std::size_t at = kMsiAt + PCI_MSI_ADDRESS_LO; at < kMsiAt + kMsiBytes; ++at) allow(at, std::uint8_t{0xff});
}

std::span<const std::byte> ConfigSpace::read(std::size_t at, std::size_t bytes) const {
  if (at > bytes_.size() || bytes > bytes_.size() - at) return {};
  return std::span(bytes_).subspan(at, bytes);
}

bool ConfigSpace::write(std::size_t at, std::span<const std::byte> bytes) {
  if (at > bytes_.size() || bytes.size() > bytes_.size() - at) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes_[at + i] = (bytes_[at + i] & ~writable_[at + i]) | (bytes[i] & writable_[at + i]);
  }
  return true;
}

bool ConfigSpace::take_reset() {
  auto& control = bytes_[kExpressAt + PCI_EXP_DEVCTL + 1];
  constexpr auto kAsked = static_cast<std::byte>(PCI_EXP_DEVCTL_BCR_FLR >> 8);
  const bool is_asked = (control & kAsked) != std::byte{0};
  control &= ~kAsked;
  return is_asked;
}

bool ConfigSpace::is_bus_master() const {
  return (bytes_[PCI_COMMAND] & std::byte{PCI_COMMAND_MASTER}) != std::byte{0};
}

// --- The client's memory ---

int ClientMemory::map(const link::vfio_user::DmaMap& window, const link::Descriptor* file) {
  if (window.bytes == 0 || window.address + (window.bytes - 1) < window.address) return EINVAL;
  const auto after = windows_.lower_bound(window.address);
  const bool meets_next = after != windows_.end() && after->first - window.address < window.bytes;
  const bool meets_last =
      after != windows_.begin() && window.address - std::prev(after)->first < std::prev(after)->second.bytes;
  if (meets_next || meets_last) return EEXIST;
  constexpr std::uint32_t kBoth = vfio_user::kMayRead | vfio_user::kMayWrite;
  if (file == nullptr || (window.flags & kBoth) != kBoth) {
    windows_.emplace(window.address, Window{window.bytes, nullptr, nullptr});
    return 0;
  }
  struct stat status {};
  if (fstat(file->get(), &status) != 0) return errno;
  // Memory that is not there would end this process when the device touches it.
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (window.offset > file_bytes || window.bytes > file_bytes - window.offset) return EINVAL;
  auto& known = files_[{status.st_dev, status.st_ino}];
  auto mapping = known.lock();
  if (!mapping) {
    auto mapped = link::Mapping::of(*file, 0, file_bytes, true);
    if (!mapped) return ENOMEM;
    known = mapping = std::make_shared<link::Mapping>(std::move(*mapped));
  }
  windows_.emplace(window.address, Window{window.bytes, mapping, mapping->data() + window.offset});
  return 0;
}

void ClientMemory::unmap(std::uint64_t address, std::uint64_t bytes) {
  std::erase_if(windows_, [&](const auto& each) { return each.first >= address && each.first - address < bytes; });
}

void ClientMemory::clear() {
  windows_.clear();
  files_.clear();
}

template <class Use>
void ClientMemory::walk(std::uint64_t address, std::size_t bytes, Use use) const {
  for (std::size_t done = 0; done < bytes;) {
    const auto after = windows_.upper_bound(address + done);
    std::size_t some = bytes - done;
    if (after != windows_.end()) some = std::min<std::size_t>(some, after->first - (address + done));
    std::byte* place = nullptr;
    if (after != windows_.begin()) {
      const auto& [start, window] = *std::prev(after);
      const std::uint64_t offset = address + done - start;
      if (offset < window.bytes) {
        some = std::min<std::size_t>(some, window.bytes - offset);
        if (window.data != nullptr && is_allowed_) place = window.data + offset;
      }
    }
    use(place, done, some);
    done += some;
  }
}

void ClientMemory::read(std::uint64_t address, std::span<std::byte> into) const {
  walk(address, into.size(), [&](const std::byte* place, std::size_t done, std::size_t bytes) {
    if (place != nullptr) {
      std::memcpy(into.data() + done, place, bytes);
    } else {
      std::memset(into.data() + done, 0xff, bytes);
    }
  });
}

void ClientMemory::write(std::uint64_t address, std::span<const std::byte> bytes) const {
  walk(address, bytes.size(), [&](std::byte* place, std::size_t done, std::size_t some) {
    if (place != nullptr) std::memcpy(place, bytes.data() + done, some);
  });
}

// --- Its life ---

Result<NicServer> NicServer::open(const std::string& path, const CableOptions& cable) {
  auto plugged = Cable::plug_in(cable);
  if (!plugged) return tl::unexpected(plugged.error());
  auto listener = link::LocalListener::at(path, SOCK_STREAM);
  if (!listener) return tl::unexpected(listener.error());
  return NicServer(std::move(*listener), std::move(*plugged));
}

NicServer::NicServer(link::LocalListener listener, Cable cable)
    : listener_(std::move(listener)), cable_(std::move(cable)), memory_(std::make_shared<ClientMemory>()) {
  power_on();
}

// The device has the Ethernet address of its cable, as a board has one in its memory.
void NicServer::power_on() {
  device_.emplace(DeviceOptions{.host = memory_});
  static_cast<void>(device_->write(NETFOLD_NIC_OWN_ADDRESS_LOW, static_cast<std::uint32_t>(cable_.mac())));
  static_cast<void>(device_->write(NETFOLD_NIC_OWN_ADDRESS_HIGH, static_cast<std::uint32_t>(cable_.mac() >> 32)));
  interrupts_ = false;
}

void NicServer::lose_client(const std::string& why) {
  const auto frames = device_->read(NETFOLD_NIC_FRAMES_SENT);
  log::info("the program that drove this NIC has gone: {}. The NIC has sent {} frames", why, frames.value_or(0));
  client_.reset();
  interrupt_.reset();
  config_ = {};
  memory_->clear();
  memory_->allow(false);
  power_on();
}

void NicServer::turn() {
  // One program at a time: the socket of another is closed at once.
  if (auto accepted = listener_->accept(); accepted && !client_ && is_own_user(*accepted)) {
    client_.emplace(std::move(*accepted));
    log::info("a program drives this NIC");
  }
  serve();
  const bool had_traffic = run(kTurnCycles);
  quiet_cycles_ = had_traffic ? 0 : quiet_cycles_ + kTurnCycles;
  is_settled_ = quiet_cycles_ > kSettleCycles && !is_busy();
}

bool NicServer::is_busy() {
  const auto status = device_->read(NETFOLD_NIC_STATUS);
  return status &&
         ((*status >> NETFOLD_NIC_STATUS_BUSY_SHIFT | *status >> NETFOLD_NIC_STATUS_RESETTING_SHIFT) & 1) != 0;
}

Nanoseconds NicServer::deadline(Nanoseconds now) const {
  if (quiet_cycles_ < kQuietCycles) return now;
  return std::min(cable_.deadline(), now + (is_settled_ ? kLongNap : kNap));
}

void NicServer::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({listener_->descriptor(), POLLIN, 0});
  if (client_) polls.push_back({client_->descriptor(), POLLIN, 0});
  polls.push_back({cable_.descriptor(), POLLIN, 0});
}

// Runs some cycles, with the frames of the cable. True if a frame came or left.
bool NicServer::run(unsigned cycles) {
  auto arrived = cable_.receive();
  bool had_traffic = !arrived.empty();
  for (Frame& frame : arrived) device_->deliver(std::move(frame));
  std::vector<Frame> leaving;
  for (unsigned i = 0; i < cycles; ++i) {
    device_->step(true);
    while (auto frame = device_->sent()) leaving.push_back(std::move(*frame));
  }
  had_traffic = had_traffic || !leaving.empty();
  cable_.send(leaving);
  if (device_->interrupts() && !interrupts_ && interrupt_) interrupt_->wake();
  interrupts_ = device_->interrupts();
  return had_traffic;
}

// --- Messages ---

void NicServer::serve() {
  for (unsigned i = 0; client_ && i < kMessagesAtOnce; ++i) {
    auto message = client_->receive(0);
    if (!message) return lose_client(message.error().message);
    if (!*message) return;
    const vfio_user::Header& asked = (*message)->header;
    if ((asked.flags & vfio_user::kTypeMask) != 0) return lose_client("it sent a reply to nothing");
    const Answer given = answer(**message);
    if ((asked.flags & vfio_user::kWantsNoReply) != 0) continue;
    vfio_user::Header reply{.id = asked.id, .command = asked.command, .flags = vfio_user::kReply};
    if (given.error != 0) {
      reply.flags |= vfio_user::kError;
      reply.error = given.error;
    }
    if (const auto sent = client_->send(reply, {given.body}); !sent) return lose_client(sent.error().message);
  }
}

NicServer::Answer NicServer::answer(Message& message) {
  switch (message.header.command) {
    case Command::kVersion: {
      auto body = body_of(vfio_user::kVersion);
      const auto capabilities = bytes_of(vfio_user::kCapabilities);
      body.insert(body.end(), capabilities.begin(), capabilities.end());
      return {.body = std::move(body)};
    }
    case Command::kDmaMap: return map_memory(message);
    case Command::kDmaUnmap: return unmap_memory(message);
    case Command::kGetDeviceInfo:
      return {.body = body_of(vfio_user::DeviceInfo{sizeof(vfio_user::DeviceInfo),
                                                    VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI,
                                                    VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS})};
    case Command::kGetRegionInfo: return describe_region(message);
    case Command::kGetIrqInfo: return describe_interrupt(message);
    case Command::kSetIrqs: return set_interrupt(message);
    case Command::kRegionRead: return read_region(message);
    case Command::kRegionWrite: return write_region(message);
    case Command::kReset: power_on(); return {};
    default: return {.error = ENOTSUP};
  }
}

NicServer::Answer NicServer::map_memory(const Message& message) const {
  const auto window = message.at<vfio_user::DmaMap>();
  if (!window) return {.error = EINVAL};
  const auto* const file = message.descriptors.empty() ? nullptr : &message.descriptors.front();
  return {.error = static_cast<std::uint32_t>(memory_->map(*window, file))};
}

NicServer::Answer NicServer::unmap_memory(const Message& message) const {
  const auto window = message.at<vfio_user::DmaUnmap>();
  if (!window) return {.error = EINVAL};
  if ((window->flags & vfio_user::kUnmapAll) != 0) {
    memory_->clear();
  } else {
    memory_->unmap(window->address, window->bytes);
  }
  return {.body = body_of(*window)};
}

NicServer::Answer NicServer::describe_region(const Message& message) const {
  auto region = message.at<vfio_region_info>();
  if (!region || region->index >= VFIO_PCI_NUM_REGIONS) return {.error = EINVAL};
  region->argsz = sizeof *region;
  region->cap_offset = 0;
  region->offset = 0;
  region->flags = 0;
  region->size = 0;
  if (region->index == VFIO_PCI_BAR0_REGION_INDEX) region->size = kBarBytes;
  if (region->index == VFIO_PCI_CONFIG_REGION_INDEX) region->size = 256;
  if (region->size > 0) region->flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
  return {.body = body_of(*region)};
}

NicServer::Answer NicServer::describe_interrupt(const Message& message) const {
  auto interrupt = message.at<vfio_irq_info>();
  if (!interrupt || interrupt->index >= VFIO_PCI_NUM_IRQS) return {.error = EINVAL};
  interrupt->argsz = sizeof *interrupt;
  const bool is_msi = interrupt->index == VFIO_PCI_MSI_IRQ_INDEX;
  interrupt->flags = is_msi ? VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE : 0;
  interrupt->count = is_msi ? 1 : 0;
  return {.body = body_of(*interrupt)};
}

NicServer::Answer NicServer::set_interrupt(Message& message) {
  constexpr std::size_t kSetBytes = offsetof(vfio_irq_set, data);
  vfio_irq_set set{};
  if (message.body.size() < kSetBytes) return {.error = EINVAL};
  std::memcpy(&set, message.body.data(), kSetBytes);
  if (set.index != VFIO_PCI_MSI_IRQ_INDEX) return {.error = set.count == 0 ? 0u : static_cast<unsigned>(EINVAL)};
  if (set.start > 1 || set.count > 1) return {.error = EINVAL};
  if ((set.flags & VFIO_IRQ_SET_ACTION_TRIGGER) == 0) return {.error = ENOTSUP};  // masks are in the registers of MSI
  interrupt_.reset();
  if ((set.flags & VFIO_IRQ_SET_DATA_EVENTFD) != 0 && set.count == 1 && !message.descriptors.empty()) {
    interrupt_ = std::make_unique<Wakeup>(message.descriptors[0].release());
    if (device_->interrupts()) interrupt_->wake();
  }
  return {};
}

NicServer::Answer NicServer::read_region(const Message& message) {
  const auto access = message.at<vfio_user::RegionAccess>();
  if (!access) return {.error = EINVAL};
  std::vector<std::byte> body = body_of(*access);
  if (access->region == VFIO_PCI_CONFIG_REGION_INDEX) {
    const auto bytes = config_.read(access->offset, access->bytes);
    if (bytes.size() != access->bytes) return {.error = EINVAL};
    body.insert(body.end(), bytes.begin(), bytes.end());
    return {.body = std::move(body)};
  }
  if (!is_registers(*access)) return {.error = EINVAL};
  quiet_cycles_ = 0;
  for (std::uint32_t done = 0; done < access->bytes; done += kRegisterBytes) {
    const std::uint32_t value = device_->read(static_cast<std::uint32_t>(access->offset) + done).value_or(~0u);
    body.insert(body.end(), bytes_of(value).begin(), bytes_of(value).end());
  }
  return {.body = std::move(body)};
}

// A write does not see a bus error, as on PCIe.
NicServer::Answer NicServer::write_region(const Message& message) {
  const auto access = message.at<vfio_user::RegionAccess>();
  if (!access || message.body.size() < sizeof *access + access->bytes) return {.error = EINVAL};
  const auto bytes = std::span(message.body).subspan(sizeof *access, access->bytes);
  if (access->region == VFIO_PCI_CONFIG_REGION_INDEX) {
    if (!config_.write(access->offset, bytes)) return {.error = EINVAL};
    if (config_.take_reset()) power_on();
    memory_->allow(config_.is_bus_master());
    return {.body = body_of(*access)};
  }
  if (!is_registers(*access)) return {.error = EINVAL};
  quiet_cycles_ = 0;
  for (std::uint32_t done = 0; done < access->bytes; done += kRegisterBytes) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + done, sizeof value);
    static_cast<void>(device_->write(static_cast<std::uint32_t>(access->offset) + done, value));
  }
  return {.body = body_of(*access)};
}

}  // namespace netfold::rtl
