#include "link/dpdk/dpdk.h"

#include <fmt/core.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "link/descriptor.h"
#include "link/dpdk/dpdk_port.h"
#include "link/dpdk/eal.h"
#include "link/dpdk/mbuf_pool.h"
#include "link/dpdk/ring_device.h"
#include "link/packet/packet_socket.h"

namespace netfold::link {
namespace {

constexpr unsigned kInboxFrames = 4096;

Error about(const std::string& device, const std::string& what, int status) {
  const int number = status < 0 ? -status : rte_errno;
  return {ErrorCode::kSystem, fmt::format("port {}: {}: {}{}", device, what, rte_strerror(number),
                                          geteuid() == 0 ? "" : " (most devices need root, or CAP_NET_RAW)")};
}

class Dpdk final : public FrameDevices {
 public:
  explicit Dpdk(const FrameDeviceOptions& options) : options_(options) {}

  ~Dpdk() override {
    for (const auto& device : devices_) {
      rte_eth_dev_stop(device->id);
      rte_eth_dev_close(device->id);
    }
    inboxes_.clear();
    far_ends_.clear();
    pool_.reset();
    rte_eal_cleanup();
  }

  Result<void> open(const std::vector<std::string>& devices) {
    auto pool = MbufPool::create("netfold", options_.buffers, options_.room_bytes);
    if (!pool) return tl::unexpected(pool.error());
    pool_ = std::move(*pool);
    for (const std::string& device : devices) {
      if (auto opened = open_device(device); !opened) return opened;
    }
    for (std::uint16_t thread = 0; thread < options_.threads; ++thread) {
      rte_ring* const ring = rte_ring_create_elem(fmt::format("nf-inbox-{}", thread).c_str(), sizeof(Frame),
                                                  kInboxFrames, SOCKET_ID_ANY, RING_F_SC_DEQ);
      if (ring == nullptr) return tl::unexpected(about("(all)", "no memory for the rings between threads", 0));
      inboxes_.push_back(std::make_unique<DpdkInbox>(ring));
    }
    watch_links();
    return {};
  }

  BufferPool& pool() override { return *pool_; }
  std::size_t ports() const override { return devices_.size(); }
  Port& port(PortNumber number, std::uint16_t thread) override { return *ports_[number * options_.threads + thread]; }
  std::uint16_t receive_queues(PortNumber number) const override { return devices_[number]->receive_queues; }
  Port& inbox(std::uint16_t thread) override { return *inboxes_[thread]; }
  FarEnd* far_end(PortNumber number) override {
    const auto found = far_ends_.find(number);
    return found == far_ends_.end() ? nullptr : found->second.get();
  }

  // Only threads that DPDK knows have a private store of buffers.
  void enter_thread() override { rte_thread_register(); }
  void leave_thread() override { rte_thread_unregister(); }

  void watch_links() override {
    for (const auto& device : devices_) {
      rte_eth_link link{};
      if (rte_eth_link_get_nowait(device->id, &link) != 0) continue;
      // Drivers for the kernel's interfaces take every link for up.
      const bool is_cut = !device->interface.empty() && !has_link(kernel_.get(), device->interface);
      device->is_up.store(link.link_status == RTE_ETH_LINK_UP && !is_cut, std::memory_order_relaxed);
    }
  }

 private:
  Result<void> open_device(const std::string& text) {
    const std::string name = text.substr(0, text.find(','));
    auto device = std::make_unique<DpdkDevice>();
    if (text == kRingDevice) {
      auto ring = RingDevice::create(devices_.size(), options_.threads, options_.queue_frames);
      if (!ring) return tl::unexpected(ring.error());
      device->id = (*ring)->id();
      far_ends_[static_cast<PortNumber>(devices_.size())] = std::move(*ring);
    } else if (rte_eth_dev_get_port_by_name(name.c_str(), &device->id) != 0) {
      const int status = rte_dev_probe(text.c_str());
      if (status != 0 || rte_eth_dev_get_port_by_name(name.c_str(), &device->id) != 0) {
        return tl::unexpected(about(text, "DPDK has no driver for it, or the driver refuses it", status));
      }
    }
    device->name = text;
    device->interface = kernel_interface(text);
    device->number = static_cast<PortNumber>(devices_.size());
    if (auto begun = start(*device); !begun) return begun;
    const bool shares = device->send_queues < options_.threads;
    for (std::uint16_t thread = 0; thread < options_.threads; ++thread) {
      ports_.push_back(std::make_unique<DpdkPort>(*device, thread, shares));
    }
    devices_.push_back(std::move(device));
    return {};
  }

  Result<void> start(DpdkDevice& device) {
    rte_eth_dev_info info{};
    int status = rte_eth_dev_info_get(device.id, &info);
    if (status != 0) return tl::unexpected(about(device.name, "it says nothing about itself", status));
    // How many queues a memif really has its other end says, later; one it always has.
    const bool may_lack_queues = std::string_view(info.driver_name) == "net_memif";
    device.receive_queues =
        may_lack_queues ? std::uint16_t{1} : std::clamp<std::uint16_t>(options_.receivers, 1, info.max_rx_queues);
    device.send_queues =
        may_lack_queues ? std::uint16_t{1} : std::clamp<std::uint16_t>(options_.threads, 1, info.max_tx_queues);
    device.takes_chains = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;

    rte_eth_conf conf{};
    conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_CHECKSUM;
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    if (device.receive_queues > 1) {  // a flow stays on a queue; whose slots it touches, the pipeline finds out
      conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
      conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
    }
    status = rte_eth_dev_configure(device.id, device.receive_queues, device.send_queues, &conf);
    if (status != 0) return tl::unexpected(about(device.name, "it cannot be set up", status));
    auto receive_descriptors = static_cast<std::uint16_t>(options_.queue_frames);
    std::uint16_t send_descriptors = receive_descriptors;
    rte_eth_dev_adjust_nb_rx_tx_desc(device.id, &receive_descriptors, &send_descriptors);
    for (std::uint16_t queue = 0; queue < device.receive_queues && status == 0; ++queue) {
      status = rte_eth_rx_queue_setup(device.id, queue, receive_descriptors, SOCKET_ID_ANY, nullptr, pool_->raw());
    }
    for (std::uint16_t queue = 0; queue < device.send_queues && status == 0; ++queue) {
      status = rte_eth_tx_queue_setup(device.id, queue, send_descriptors, SOCKET_ID_ANY, nullptr);
    }
    if (status != 0) return tl::unexpected(about(device.name, "no queues", status));
    status = rte_eth_dev_start(device.id);
    if (status != 0) return tl::unexpected(about(device.name, "it does not start", status));
    rte_eth_promiscuous_enable(device.id);  // a switch takes every frame; devices in memory know no other way
    return {};
  }

  FrameDeviceOptions options_;
  Descriptor kernel_{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};  // to ask it about interfaces
  std::unique_ptr<MbufPool> pool_;
  std::vector<std::unique_ptr<DpdkDevice>> devices_;
  std::vector<std::unique_ptr<DpdkPort>> ports_;  // by device, then thread
  std::vector<std::unique_ptr<DpdkInbox>> inboxes_;
  std::map<PortNumber, std::unique_ptr<RingDevice>> far_ends_;
};

}  // namespace

Result<std::unique_ptr<FrameDevices>> open_dpdk(const DpdkOptions& options) {
  std::vector<std::string> devices;
  for (const std::string& port : options.devices.ports) {
    auto device = device_string(port, devices.size());
    if (!device) return tl::unexpected(device.error());
    devices.push_back(std::move(*device));
  }
  if (auto started = start_eal(options, devices); !started) return tl::unexpected(started.error());
  auto dpdk = std::make_unique<Dpdk>(options.devices);
  if (auto opened = dpdk->open(devices); !opened) return tl::unexpected(opened.error());
  return dpdk;
}

bool has_dpdk() {
  return true;
}

}  // namespace netfold::link
