#include "switch/ethernet/kernel_switch.h"

#include <fmt/core.h>

#include <atomic>
#include <thread>

#include "base/thread.h"
#include "base/wakeup.h"
#include "link/packet/packet_port.h"
#include "switch/ethernet/ethernet_switch.h"

namespace netfold::switching {
namespace {

constexpr Nanoseconds kRest = kMillisecond;  // the protocol handlers are told the time so often

}  // namespace

class KernelSwitch::Thread {
 public:
  Thread(std::vector<std::unique_ptr<link::PacketSocket>> sockets, AggregationConfig config) {
    configure(config);
    PipelinePorts all;
    for (auto& socket : sockets) {
      const auto number = static_cast<link::PortNumber>(ports_.size());
      ports_.push_back(std::make_unique<link::PacketPort>(pool_, number, std::move(socket)));
      polled_.push_back({ports_.back()->descriptor(), POLLIN, 0});
      all.all.push_back(ports_.back().get());
      all.receiving.push_back(number);
    }
    polled_.push_back({wakeup_.descriptor(), POLLIN, 0});
    pipeline_ = switch_.make_thread(0, pool_, std::move(all)).pipeline;
    thread_ = std::thread([this] { run(); });
  }
  ~Thread() {
    is_stopping_ = true;
    wakeup_.wake();
    thread_.join();
  }
  Thread(const Thread&) = delete;

  std::vector<std::pair<std::string, std::uint64_t>> counts() const {
    std::vector<std::pair<std::string, std::uint64_t>> all;
    for (link::PortNumber port = 0; port < ports_.size(); ++port) {
      const PortCounters& counters = pipeline_->counters(port);
      for (const auto& [name, counter] :
           {std::pair{"received", &counters.received}, std::pair{"taken", &counters.taken},
            std::pair{"forwarded", &counters.forwarded}, std::pair{"flooded", &counters.flooded},
            std::pair{"filtered", &counters.filtered}, std::pair{"dropped", &counters.dropped}}) {
        all.emplace_back(fmt::format("port{}_{}", port, name), counter->get());
      }
    }
    for (auto& count : handler_counts(*pipeline_)) all.push_back(std::move(count));
    return all;
  }

  void configure(AggregationConfig config) { set_defaults(config, switch_.settings()); }
  Result<void> configure(std::uint16_t job, AggregationConfig config) {
    return switch_.jobs_settings().set(job, config);
  }

 private:
  void run() {
    set_up_thread("nf-frames", kAnyCore);
    while (!is_stopping_.load(std::memory_order_relaxed)) {
      if (pipeline_->pump(now()) == 0) wait_for(polled_, now() + kRest);
    }
  }

  link::MemoryPool pool_;
  EthernetSwitch switch_{{.roce = RoceOptions{}, .pcie = PcieOptions{}}};
  std::vector<std::unique_ptr<link::PacketPort>> ports_;
  std::vector<pollfd> polled_;
  Wakeup wakeup_;
  std::unique_ptr<Pipeline> pipeline_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

Result<std::unique_ptr<KernelSwitch>> KernelSwitch::open(const std::vector<std::string>& interfaces,
                                                         AggregationConfig config) {
  std::vector<std::unique_ptr<link::PacketSocket>> sockets;
  for (const std::string& interface : interfaces) {
    auto socket = link::PacketSocket::open({.interface = interface, .is_promiscuous = true});
    if (!socket) return tl::unexpected(socket.error());
    sockets.push_back(std::move(*socket));
  }
  return std::unique_ptr<KernelSwitch>(new KernelSwitch(std::make_unique<Thread>(std::move(sockets), config)));
}

KernelSwitch::KernelSwitch(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}
KernelSwitch::~KernelSwitch() = default;

void KernelSwitch::configure(AggregationConfig config) {
  thread_->configure(config);
}

Result<void> KernelSwitch::configure(std::uint16_t job, AggregationConfig config) {
  return thread_->configure(job, config);
}

std::vector<std::pair<std::string, std::uint64_t>> KernelSwitch::counts() const {
  return thread_->counts();
}

}  // namespace netfold::switching
