#include "link/dpdk/eal.h"

#include <fmt/core.h>
#include <fnmatch.h>
#include <net/if.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace netfold::link {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kOtherMemoryBytes = std::size_t{64} << 20;  // rings, queues, DPDK's own

std::size_t free_huge_bytes() {
  std::size_t free_bytes = 0;
  std::error_code ignored;
  for (const auto& size : fs::directory_iterator("/sys/kernel/mm/hugepages", ignored)) {
    std::ifstream file(size.path() / "free_hugepages");
    const std::string name = size.path().filename();  // hugepages-2048kB
    std::size_t pages = 0, kib = 0;
    const auto [end, error] = std::from_chars(name.data() + name.find('-') + 1, name.data() + name.size(), kib);
    if (error == std::errc{} && file >> pages) free_bytes += pages * kib << 10;
  }
  return free_bytes;
}

std::string full_pci_address(const std::string& port) {
  return std::count(port.begin(), port.end(), ':') == 1 ? "0000:" + port : port;
}

// Physical NICs are given to DPDK by a driver of the kernel; which one, says sysfs.
Result<void> check_pci(const std::string& address) {
  const fs::path device = fs::path("/sys/bus/pci/devices") / address;
  std::error_code failed;
  if (!fs::exists(device, failed)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no PCI device at {}: `lspci -D | grep Ethernet` lists those of this machine", address));
  }
  const std::string driver = fs::read_symlink(device / "driver", failed).filename();
  for (const char* const usable : {"vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core", "mlx4_core", "mana"}) {
    if (driver == usable) return {};
  }
  return fail(
      ErrorCode::kSystem,
      fmt::format("the device at {} is {}, so DPDK cannot have it: `modprobe vfio-pci` and `dpdk-devbind.py "
                  "--bind=vfio-pci {}` hand it over (the kernel's interface of it goes away)",
                  address, driver.empty() ? "bound to no driver" : "the kernel's, by its driver " + driver, address));
}

Result<void> check_interface(const std::string& device) {
  const std::string interface = kernel_interface(device);
  if (interface.empty() || if_nametoindex(interface.c_str()) != 0) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' names the interface {}, which is not there: `ip -br link` lists those of this machine",
                          device, interface));
}

}  // namespace

std::string kernel_interface(const std::string& device) {
  constexpr std::string_view kName = ",iface=";
  const std::size_t found = device.find(kName);
  if (device.rfind("net_tap", 0) == 0 || found == device.npos) return {};
  const std::size_t begin = found + kName.size();
  return device.substr(begin, device.find(',', begin) - begin);
}

bool is_pci_address(const std::string& port) {
  const std::string two = "[[:xdigit:]][[:xdigit:]]", address = two + ":" + two + ".[0-7]";
  const auto has_form = [&](const std::string& form) { return fnmatch(form.c_str(), port.c_str(), 0) == 0; };
  return has_form(address) || has_form(two + two + ":" + address);
}

Result<std::string> device_string(const std::string& port, std::size_t number) {
  if (is_pci_address(port)) {
    const std::string address = full_pci_address(port);
    if (auto usable = check_pci(address); !usable) return tl::unexpected(usable.error());
    return address;
  }
  if (port == kRingDevice) return port;
  if (port.rfind("net_", 0) == 0 || port.rfind("eth_", 0) == 0 || port.rfind("virtio_", 0) == 0) {
    if (auto usable = check_interface(port); !usable) return tl::unexpected(usable.error());
    return port;
  }
  if (port.find(',') == std::string::npos && if_nametoindex(port.c_str()) != 0) {
    return fmt::format("net_af_packet{},iface={}", number, port);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is neither a PCI address (0000:3b:00.0), nor a DPDK device string "
                          "(net_af_xdp0,iface=eth1), nor an interface of this machine (`ip -br link` lists them)",
                          port));
}

Result<void> start_eal(const DpdkOptions& options, const std::vector<std::string>& devices) {
  const bool has_pci = std::any_of(devices.begin(), devices.end(), is_pci_address);
  const std::size_t wanted_bytes = options.devices.buffers * (options.devices.room_bytes + 384) + kOtherMemoryBytes;
  const bool has_huge_pages = free_huge_bytes() >= wanted_bytes;
  if (has_pci && !has_huge_pages) {
    return fail(
        ErrorCode::kSystem,
        fmt::format("physical NICs need huge pages: {} MB for these buffers, and {} MB are free; as root, `echo "
                    "1024 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages` reserves 2 GB",
                    wanted_bytes >> 20, free_huge_bytes() >> 20));
  }
  // One lcore that may run anywhere: the switch's threads are its own, and register themselves.
  std::vector<std::string> words{"netfold", "--no-telemetry", "--log-level=*:error",
                                 fmt::format("--lcores=0@(0-{})", sysconf(_SC_NPROCESSORS_ONLN) - 1)};
  if (has_huge_pages) {
    words.push_back("--in-memory");
  } else {
    words.insert(words.end(), {"--no-shconf", "--no-huge", "-m", fmt::format("{}", (wanted_bytes >> 20) + 1)});
    if (options.on_notice) {
      options.on_notice(
          fmt::format("ordinary memory is used, which costs some speed: {} MB of huge pages are wanted, {} MB are free "
                      "(`echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages` as root reserves 1 GB)",
                      wanted_bytes >> 20, free_huge_bytes() >> 20));
    }
  }
  if (has_pci) {
    for (const std::string& device : devices) {
      if (is_pci_address(device)) words.insert(words.end(), {"-a", device});
    }
  } else {
    words.push_back("--no-pci");
  }
  words.insert(words.end(), options.eal.begin(), options.eal.end());

  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  cpu_set_t before;  // the environment layer pins whoever starts it
  const bool is_known = sched_getaffinity(0, sizeof before, &before) == 0;
  const int used = rte_eal_init(static_cast<int>(arguments.size()), arguments.data());
  if (is_known) sched_setaffinity(0, sizeof before, &before);
  if (used >= 0) return {};
  const char* const why = rte_errno == EALREADY ? "it runs already in this process" : rte_strerror(rte_errno);
  return fail(ErrorCode::kSystem, fmt::format("DPDK's environment does not start: {} (its own words are above){}", why,
                                              geteuid() == 0 ? "" : "; most devices need root, or CAP_NET_RAW"));
}

}  // namespace netfold::link
