#include "engine/kernel_switch.h"

#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "engine/thread_setup.h"
#include "engine/wakeup.h"
#include "frames/pcie_dialect.h"
#include "frames/pipeline.h"
#include "frames/roce_dialect.h"
#include "link/packet/packet_port.h"

namespace netfold::engine {
namespace {

constexpr Nanoseconds kRest = kMillisecond;  // the dialects are told the time so often

}  // namespace

class KernelSwitch::Thread {
 public:
  Thread(std::vector<std::unique_ptr<link::PacketSocket>> sockets, frames::AggregationConfig config) {
    settings.folding_ports = config.ports;
    settings.adds_floats = config.is_float;
    frames::PipelinePorts all;
    for (auto& socket : sockets) {
      const auto number = static_cast<link::PortNumber>(ports_.size());
      ports_.push_back(std::make_unique<link::PacketPort>(pool_, number, std::move(socket)));
      polled_.push_back({ports_.back()->descriptor(), POLLIN, 0});
      all.all.push_back(ports_.back().get());
      all.receiving.push_back(number);
    }
    polled_.push_back({wakeup_.descriptor(), POLLIN, 0});
    std::vector<std::unique_ptr<frames::Dialect>> dialects;
    dialects.push_back(std::make_unique<frames::RoceDialect>(by_job));
    dialects.push_back(std::make_unique<frames::PcieDialect>());
    pipeline_ = std::make_unique<frames::Pipeline>(pool_, std::move(all), addresses_, std::move(dialects));
    pipeline_->outbox().set_settings(settings);
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
      const frames::PortCounters& counters = pipeline_->counters(port);
      for (const auto& [name, counter] :
           {std::pair{"received", &counters.received}, std::pair{"taken", &counters.taken},
            std::pair{"forwarded", &counters.forwarded}, std::pair{"flooded", &counters.flooded},
            std::pair{"filtered", &counters.filtered}, std::pair{"dropped", &counters.dropped}}) {
        all.emplace_back(fmt::format("port{}_{}", port, name), counter->get());
      }
    }
    for (const auto& dialect : pipeline_->dialects()) {
      for (const auto& [name, count] : dialect->counts()) {
        all.emplace_back(fmt::format("{}_{}", dialect->name(), name), count);
      }
    }
    return all;
  }

  frames::Settings settings;
  frames::AggregationSettings by_job{settings};

 private:
  void run() {
    set_up_thread("nf-frames", kAnyCore);
    while (!is_stopping_.load(std::memory_order_relaxed)) {
      if (pipeline_->pump(now()) == 0) wait_for(polled_, now() + kRest);
    }
  }

  link::MemoryPool pool_;
  frames::MacTable addresses_;
  std::vector<std::unique_ptr<link::PacketPort>> ports_;
  std::vector<pollfd> polled_;
  Wakeup wakeup_;
  std::unique_ptr<frames::Pipeline> pipeline_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

Result<std::unique_ptr<KernelSwitch>> KernelSwitch::open(const std::vector<std::string>& interfaces,
                                                         frames::AggregationConfig config) {
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

void KernelSwitch::configure(frames::AggregationConfig config) {
  thread_->settings.folding_ports = config.ports;
  thread_->settings.adds_floats = config.is_float;
}

Result<void> KernelSwitch::configure(std::uint16_t job, frames::AggregationConfig config) {
  return thread_->by_job.set(job, config);
}

std::vector<std::pair<std::string, std::uint64_t>> KernelSwitch::counts() const {
  return thread_->counts();
}

}  // namespace netfold::engine
