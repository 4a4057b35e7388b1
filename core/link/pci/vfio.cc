#include "link/pci/vfio.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "link/descriptor.h"
#include "link/pci/held_device.h"

namespace netfold::link {
namespace {

// Writes to memory are there before the write of a register that follows; reads of memory come after the read of a
// register before them. x86 keeps this order by itself.
void order_memory_and_registers() {
#if defined(__aarch64__)
  asm volatile("dmb osh" ::: "memory");
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

Result<std::string> name_of_link(const std::string& path) {
  std::array<char, 256> target{};
  const ssize_t size = readlink(path.c_str(), target.data(), target.size() - 1);
  if (size < 0) return tl::unexpected(system_error(path));
  const std::string text(target.data(), static_cast<std::size_t>(size));
  return text.substr(text.rfind('/') + 1);
}

class VfioDevice final : public HeldDevice {
 public:
  explicit VfioDevice(PciPlace place) : HeldDevice("the PCI device", std::move(place)) {}

  Result<void> set_up(std::size_t register_bytes, std::size_t memory_bytes) {
    if (auto opened = open_group(); !opened) return opened;
    if (auto opened = open_device(); !opened) return opened;
    if (auto mapped = map_registers(register_bytes); !mapped) return mapped;
    if (auto shared = share_memory(memory_bytes); !shared) return shared;
    if (auto asked = ask_for_interrupts(); !asked) return asked;
    return may_use_memory();
  }

  Result<std::uint32_t> read(std::uint32_t offset) override {
    const std::uint32_t value = *at(offset);
    order_memory_and_registers();
    return value;
  }
  Result<void> write(std::uint32_t offset, std::uint32_t value) override {
    order_memory_and_registers();
    *at(offset) = value;
    return {};
  }

  std::uint64_t memory_address() const override { return memory_address_; }

 private:
  volatile std::uint32_t* at(std::uint32_t offset) const {
    return reinterpret_cast<volatile std::uint32_t*>(registers_->data() + in_page_ + offset);
  }
  tl::unexpected<Error> refused(const char* what) const {
    return failed(fmt::format("{}: {}", what, std::strerror(errno)));
  }

  // The device and what shares an IOMMU with it.
  Result<void> open_group() {
    const std::string folder = "/sys/bus/pci/devices/" + place_.device;
    if (access(folder.c_str(), F_OK) != 0) return failed("there is no device there (lspci -D lists the devices)");
    const auto driver = name_of_link(folder + "/driver");
    if (!driver || *driver != "vfio-pci") {
      return failed(fmt::format("its driver is {}, not vfio-pci: `driverctl set-override {} vfio-pci` changes it",
                                driver ? *driver : "none", place_.device));
    }
    const auto number = name_of_link(folder + "/iommu_group");
    if (!number) return failed("no IOMMU guards it: boot with intel_iommu=on (AMD's and Arm's are on by default)");
    const std::string path = "/dev/vfio/" + *number;
    group_ = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!group_.is_open()) {
      return failed(fmt::format("cannot open {}: {}", path,
                                errno == EBUSY    ? "another program drives it"
                                : errno == EACCES ? "this user may not; `chown` the file to the user who trains"
                                                  : std::strerror(errno)));
    }
    vfio_group_status status{.argsz = sizeof status, .flags = 0};
    if (ioctl(group_.get(), VFIO_GROUP_GET_STATUS, &status) != 0) return refused("its group has no status");
    if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
      return failed(
          fmt::format("a device of the same IOMMU group {} still has another driver: bind all of that group to "
                      "vfio-pci",
                      *number));
    }
    container_ = Descriptor(open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC));
    if (!container_.is_open()) return refused("cannot open /dev/vfio/vfio");
    const int container = container_.get();
    if (ioctl(group_.get(), VFIO_GROUP_SET_CONTAINER, &container) != 0) return refused("cannot take its IOMMU group");
    if (ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) return refused("cannot use its IOMMU");
    return {};
  }

  Result<void> open_device() {
    device_ = Descriptor(ioctl(group_.get(), VFIO_GROUP_GET_DEVICE_FD, place_.device.c_str()));
    if (!device_.is_open()) return refused("cannot be opened");
    vfio_device_info info{};
    info.argsz = sizeof info;
    if (ioctl(device_.get(), VFIO_DEVICE_GET_INFO, &info) != 0) return refused("says nothing about itself");
    // Not every device can be reset by the bus; the driver of the device resets it by its registers.
    if ((info.flags & VFIO_DEVICE_FLAGS_RESET) != 0) static_cast<void>(ioctl(device_.get(), VFIO_DEVICE_RESET));
    return {};
  }

  Result<vfio_region_info> region(unsigned index) const {
    vfio_region_info info{};
    info.argsz = sizeof info;
    info.index = index;
    if (ioctl(device_.get(), VFIO_DEVICE_GET_REGION_INFO, &info) != 0) return refused("does not describe its regions");
    return info;
  }

  Result<void> map_registers(std::size_t register_bytes) {
    const auto info = region(place_.bar);
    if (!info) return tl::unexpected(info.error());
    if (auto fits = check_room(info->size, register_bytes); !fits) return fits;
    // Not the whole BAR: other pages may be the kernel's, such as the table of MSI-X.
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    in_page_ = place_.offset % page_bytes;
    auto mapping = Mapping::of(device_, info->offset + place_.offset - in_page_, in_page_ + register_bytes, true);
    if (!mapping) return refused("cannot map its registers");
    registers_.emplace(std::move(*mapping));
    return {};
  }

  // The addresses that the IOMMU can translate, the lowest first.
  std::vector<vfio_iova_range> address_ranges() const {
    vfio_iommu_type1_info about{};
    about.argsz = sizeof about;
    if (ioctl(container_.get(), VFIO_IOMMU_GET_INFO, &about) != 0) return {};
    std::vector<std::byte> room(about.argsz);
    about.argsz = static_cast<std::uint32_t>(room.size());
    std::memcpy(room.data(), &about, std::min(room.size(), sizeof about));
    if (ioctl(container_.get(), VFIO_IOMMU_GET_INFO, room.data()) != 0) return {};
    std::memcpy(&about, room.data(), std::min(room.size(), sizeof about));
    if ((about.flags & VFIO_IOMMU_INFO_CAPS) == 0) return {};
    for (std::size_t offset = about.cap_offset; offset != 0 && offset + sizeof(vfio_info_cap_header) <= room.size();) {
      vfio_info_cap_header header;
      std::memcpy(&header, room.data() + offset, sizeof header);
      vfio_iommu_type1_info_cap_iova_range capability;
      if (header.id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE && offset + sizeof capability <= room.size()) {
        std::memcpy(&capability, room.data() + offset, sizeof capability);
        const std::size_t fit = (room.size() - offset - sizeof capability) / sizeof(vfio_iova_range);
        std::vector<vfio_iova_range> ranges(std::min<std::size_t>(capability.nr_iovas, fit));
        std::memcpy(ranges.data(), room.data() + offset + sizeof capability, ranges.size() * sizeof(vfio_iova_range));
        return ranges;
      }
      offset = header.next;
    }
    return {};
  }

  Result<void> share_memory(std::size_t memory_bytes) {
    constexpr std::uint64_t kLowest = std::uint64_t{1} << 30;  // below lie addresses that machines keep for themselves
    if (const auto made = make_memory(memory_bytes); !made) return tl::unexpected(made.error());
    memory_address_ = kLowest;
    for (const vfio_iova_range& range : address_ranges()) {
      const std::uint64_t start = std::max<std::uint64_t>(range.start, kLowest);
      if (start > range.end || range.end - start < memory_bytes - 1) continue;
      memory_address_ = start;
      break;
    }
    vfio_iommu_type1_dma_map map{};
    map.argsz = sizeof map;
    map.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
    map.vaddr = reinterpret_cast<std::uint64_t>(memory_->data());
    map.iova = memory_address_;
    map.size = memory_bytes;
    if (ioctl(container_.get(), VFIO_IOMMU_MAP_DMA, &map) == 0) return {};
    if (errno == ENOMEM) {
      return failed(fmt::format("this user may not lock the {} MiB that it shares with the device: raise `ulimit -l`",
                                memory_bytes >> 20));
    }
    return refused("cannot share memory with it");
  }

  Result<void> ask_for_interrupts() {
    for (const unsigned index : {VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX}) {
      vfio_irq_info info{};
      info.argsz = sizeof info;
      info.index = index;
      if (ioctl(device_.get(), VFIO_DEVICE_GET_IRQ_INFO, &info) != 0 || info.count == 0) continue;
      const Wakeup& event = interrupt_.emplace();
      vfio_irq_set set{};
      const std::int32_t descriptor = event.descriptor();
      std::array<std::byte, sizeof set + sizeof descriptor> wanted;
      set.argsz = wanted.size();
      set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
      set.index = index;
      set.count = 1;
      std::memcpy(wanted.data(), &set, sizeof set);
      std::memcpy(wanted.data() + sizeof set, &descriptor, sizeof descriptor);
      if (ioctl(device_.get(), VFIO_DEVICE_SET_IRQS, wanted.data()) != 0) return refused("cannot get its interrupts");
      return {};
    }
    return {};
  }

  // As bus master.
  Result<void> may_use_memory() {
    const auto config = region(VFIO_PCI_CONFIG_REGION_INDEX);
    if (!config) return tl::unexpected(config.error());
    const auto at = static_cast<off_t>(config->offset + PCI_COMMAND);
    std::uint16_t command = 0;
    if (pread(device_.get(), &command, sizeof command, at) != sizeof command) return refused("cannot be configured");
    command |= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    if (pwrite(device_.get(), &command, sizeof command, at) != sizeof command) return refused("cannot be configured");
    return {};
  }

  Descriptor container_, group_, device_;
  std::optional<Mapping> registers_;
  std::size_t in_page_ = 0;  // where the registers begin in the mapping
  std::uint64_t memory_address_ = 0;
};

}  // namespace

Result<std::unique_ptr<PciDevice>> open_vfio_device(const PciPlace& place, std::size_t register_bytes,
                                                    std::size_t memory_bytes) {
  auto device = std::make_unique<VfioDevice>(place);
  if (const auto ready = device->set_up(register_bytes, memory_bytes); !ready) return tl::unexpected(ready.error());
  return device;
}

}  // namespace netfold::link
