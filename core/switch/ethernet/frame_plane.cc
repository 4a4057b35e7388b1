#include "switch/ethernet/frame_plane.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/thread.h"
#include "switch/ethernet/frame_thread.h"
#include "switch/job_shards.h"
#include "switch/log_throttle.h"

namespace netfold::switching {
namespace {

constexpr Nanoseconds kLinkWatch = kSecond;

constexpr std::pair<const char*, Counter PortCounters::*> kPortCounters[] = {
    {"taken", &PortCounters::taken},
    {"forwarded", &PortCounters::forwarded},
    {"flooded", &PortCounters::flooded},
    {"filtered", &PortCounters::filtered},
    {"handed_over", &PortCounters::handed_over},
    {"dropped_by_protocol", &PortCounters::dropped},
    {"dropped_handover_full", &PortCounters::dropped_handover},
    {"unread_handover_full", &PortCounters::unread_handover},
};

// A protocol handler has one instance per thread: counters of the same name are summed.
void add_handlers(const Pipeline& pipeline, std::vector<NamedCounters>& sums) {
  for (const auto& handler : pipeline.handlers()) {
    auto counts = handler->counts();
    const auto found =
        std::find_if(sums.begin(), sums.end(), [&](const NamedCounters& it) { return it.name == handler->name(); });
    if (found == sums.end()) {
      sums.push_back({handler->name(), std::move(counts)});
    } else {
      for (std::size_t i = 0; i < counts.size(); ++i) found->counters[i].second += counts[i].second;
    }
  }
}

class DevicePlane final : public FramePlane {
 public:
  DevicePlane(FramePlaneOptions options, std::unique_ptr<link::FrameDevices> devices)
      : options_(std::move(options)),
        log_(options_.log),
        devices_(std::move(devices)),
        switch_(options_.ethernet),
        jobs_(options_.ethernet.threads,
              [this](std::uint16_t thread, std::uint16_t job, FrameJob* part) { threads_[thread]->place(job, part); }) {
    const std::uint16_t threads = threads_of(options_, devices_->ports());
    for (std::uint16_t thread = 0; thread < threads; ++thread) start_thread(thread);
    watcher_ = std::thread([this] { watch(); });
  }

  ~DevicePlane() override {
    {
      const std::lock_guard lock(watch_mutex_);
      stopping_ = true;
    }
    watch_wakeup_.notify_all();
    watcher_.join();
    threads_.clear();
  }

  const std::vector<std::uint16_t>& udp_ports() const override { return switch_.udp_ports(); }

  bool folds_on_the_way() const override { return true; }
  void set_parent(std::uint32_t ip) override { switch_.way_up().set_parent(ip); }
  void admit(Admission admission) override {
    switch_.data_addresses().set(admission.lease.job, admission.host ? admission.host->ip.v4() : 0);
    jobs_.admit(admission);
  }
  void evict(std::uint16_t job) override {
    switch_.data_addresses().set(job, 0);
    jobs_.evict(job);
  }
  JobCounters counters(std::uint16_t job) const override { return jobs_.counters(job); }

  std::vector<std::uint64_t> drops() const override {
    return sum_of_drops(threads_,
                        [](const FrameThread& thread, DropReason reason) { return thread.handler().drops(reason); });
  }

  link::LinkStats link_stats() const override {
    link::LinkStats sum;
    for (link::PortNumber number = 0; number < devices_->ports(); ++number) {
      const link::PortStats stats = devices_->port(number, 0).stats();
      sum.sent_packets += stats.sent_frames;
      sum.sent_bytes += stats.sent_bytes;
      sum.received_packets += stats.received_frames;
      sum.received_bytes += stats.received_bytes;
      sum.send_errors += stats.receive_errors + stats.missed_frames;
    }
    return sum;
  }

  std::vector<ThreadUse> threads() const override {
    std::vector<ThreadUse> all;
    for (const auto& thread : threads_) all.push_back(thread->use());
    return all;
  }

  FrameStats frame_stats() const override;

  Result<void> configure(const AggregationConfigUpdate& change) override {
    if (change.job) {
      AggregationConfig config = switch_.jobs_settings().of(*change.job, devices_->ports());
      if (change.ports) config.ports = static_cast<std::uint32_t>(*change.ports);
      if (change.adds_floats) config.is_float = *change.adds_floats;
      if (change.uplink) config.uplink = *change.uplink;
      return switch_.jobs_settings().set(*change.job, config);
    }
    if (change.ports) switch_.settings().folding_ports.store(*change.ports, std::memory_order_relaxed);
    if (change.adds_floats) switch_.settings().adds_floats.store(*change.adds_floats, std::memory_order_relaxed);
    if (change.uplink) switch_.settings().uplink.store(*change.uplink, std::memory_order_relaxed);
    return {};
  }

 private:
  void start_thread(std::uint16_t thread);
  std::vector<link::PortNumber> receiving(std::uint16_t thread) const;

  void watch() {
    set_up_thread("nf-links", kAnyCore);
    FrameStats before;
    std::unique_lock lock(watch_mutex_);
    while (!stopping_) {
      devices_->watch_links();
      if (options_.log) {
        FrameStats stats = frame_stats();
        tell(before, stats);
        before = std::move(stats);
      }
      watch_wakeup_.wait_for(lock, std::chrono::nanoseconds(kLinkWatch), [this] { return stopping_; });
    }
  }

  void tell(const FrameStats& before, const FrameStats& after);

  FramePlaneOptions options_;
  LogThrottle log_;
  std::unique_ptr<link::FrameDevices> devices_;
  EthernetSwitch switch_;
  JobShards<FrameJob> jobs_;
  std::vector<std::unique_ptr<FrameThread>> threads_;  // those that fold, then those of the ports
  std::mutex watch_mutex_;
  std::condition_variable watch_wakeup_;
  bool stopping_ = false;
  std::thread watcher_;
};

void DevicePlane::start_thread(std::uint16_t thread) {
  const std::uint16_t folding = options_.ethernet.threads;
  const bool folds = thread < folding;
  PipelinePorts ports;
  for (link::PortNumber number = 0; number < devices_->ports(); ++number) {
    ports.all.push_back(&devices_->port(number, thread));
  }
  ports.receiving = receiving(thread);
  for (std::uint16_t peer = 0; peer < folding; ++peer) ports.peers.push_back(&devices_->inbox(peer));
  if (folds) ports.inbox = ports.peers[thread];

  const int core = thread < options_.cores.size() ? options_.cores[thread] : kAnyCore;
  const std::string name = folds ? fmt::format("nf-fold-{}", thread) : fmt::format("nf-port-{}", thread - folding);
  threads_.push_back(std::make_unique<FrameThread>(
      *devices_, switch_.make_thread(thread, devices_->pool(), std::move(ports)), name, core, options_.always_polls));
}

// The ports that a thread receives from.
std::vector<link::PortNumber> DevicePlane::receiving(std::uint16_t thread) const {
  if (options_.layout == ThreadLayout::kPerPort) {
    if (thread < options_.ethernet.threads) return {};
    return {static_cast<link::PortNumber>(thread - options_.ethernet.threads)};
  }
  std::vector<link::PortNumber> mine;
  for (link::PortNumber number = 0; number < devices_->ports(); ++number) {
    const std::uint16_t queues = devices_->receive_queues(number);
    if (queues >= options_.ethernet.threads || number % options_.ethernet.threads == thread) mine.push_back(number);
  }
  return mine;
}

FrameStats DevicePlane::frame_stats() const {
  FrameStats all;
  const Registers registers = registers_of(switch_.settings(), devices_->ports());
  all.agg_mode = registers.agg_mode;
  all.agg_port_cfg = registers.agg_port_cfg;
  for (link::PortNumber number = 0; number < devices_->ports(); ++number) {
    const link::Port& port = devices_->port(number, 0);
    const link::PortStats stats = port.stats();
    std::vector<std::pair<std::string, std::uint64_t>> counters{{"up", port.is_up() ? 1 : 0},
                                                                {"folds", switch_.settings().folds(number) ? 1 : 0},
                                                                {"uplink", number == switch_.settings().uplink ? 1 : 0},
                                                                {"received_frames", stats.received_frames},
                                                                {"received_bytes", stats.received_bytes},
                                                                {"sent_frames", stats.sent_frames},
                                                                {"sent_bytes", stats.sent_bytes},
                                                                {"missed_frames", stats.missed_frames},
                                                                {"receive_errors", stats.receive_errors}};
    const auto sum = [&](std::string name, const auto& counter_of) {
      std::uint64_t total = 0;
      for (const auto& thread : threads_) total += counter_of(thread->counters(number)).get();
      counters.emplace_back(std::move(name), total);
    };
    for (const auto& [name, counter] : kPortCounters) {
      sum(name, [&](const PortCounters& from) -> const Counter& { return from.*counter; });
    }
    for (std::size_t flaw = 1; flaw < static_cast<std::size_t>(Flaw::kCount); ++flaw) {
      sum(fmt::format("flaw_{}", name_of(static_cast<Flaw>(flaw))),
          [&](const PortCounters& from) -> const Counter& { return from.flaws[flaw]; });
    }
    std::uint64_t full = 0;
    for (const auto& thread : threads_) full += thread->dropped(number);
    counters.emplace_back("dropped_port_full", full);
    all.ports.push_back({port.name(), std::move(counters)});
  }
  for (const auto& thread : threads_) add_handlers(thread->pipeline(), all.protocols);
  const Nanoseconds at = now();
  all.addresses = {"addresses",
                   {{"known", switch_.addresses().entries(at).size()},
                    {"capacity", switch_.addresses().capacity()},
                    {"moved", switch_.addresses().moved()},
                    {"pushed_out", switch_.addresses().pushed_out()}}};
  return all;
}

// Ports that went down or came up, and what was dropped since the last look, by reason: a line a port, throttled.
void DevicePlane::tell(const FrameStats& before, const FrameStats& after) {
  const auto tell_of_port = [&, at = now()](std::string text) {
    log_.line({LogLevel::kWarning, std::move(text), LogSubject::kJob}, at);
  };
  for (std::size_t number = 0; number < after.ports.size() && before.ports.size() == after.ports.size(); ++number) {
    const auto& was = before.ports[number].counters;
    const auto& is = after.ports[number].counters;
    std::string dropped;
    for (std::size_t i = 0; i < is.size(); ++i) {
      const std::string& name = is[i].first;
      if (is[i].second == was[i].second) continue;
      if (name == "up") {
        tell_of_port(fmt::format("port {} ({}) {}", number, after.ports[number].name,
                                 is[i].second != 0 ? "is up" : "went down: what must come through it waits"));
      } else if (name.rfind("flaw_", 0) == 0 || name.rfind("dropped_", 0) == 0 || name.rfind("unread_", 0) == 0 ||
                 name == "missed_frames") {
        dropped += fmt::format("{}{} {}", dropped.empty() ? "" : ", ", name, is[i].second - was[i].second);
      }
    }
    if (dropped.empty()) continue;
    tell_of_port(fmt::format("port {} ({}): {}", number, after.ports[number].name, dropped));
  }
}

}  // namespace

std::uint16_t threads_of(const FramePlaneOptions& options, std::size_t ports) {
  return static_cast<std::uint16_t>(options.ethernet.threads + (options.layout == ThreadLayout::kPerPort ? ports : 0));
}

std::uint16_t receivers_of(const FramePlaneOptions& options) {
  return options.layout == ThreadLayout::kPerPort ? 1 : options.ethernet.threads;
}

Result<std::unique_ptr<FramePlane>> start_frame_plane(FramePlaneOptions options,
                                                      std::unique_ptr<link::FrameDevices> devices,
                                                      DataPlane::OnMismatch on_mismatch) {
  auto& ethernet = options.ethernet;
  if (!ethernet.netfold) return fail(ErrorCode::kInvalidArgument, "the data plane needs Netfold's own protocol");
  if (!std::has_single_bit(ethernet.threads)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} folding threads: their number must be a power of two (1, 2, 4, ...)", ethernet.threads));
  }
  if (devices->ports() == 0 || devices->ports() > 64) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} ports: a switch has 1 to 64", devices->ports()));
  }
  ethernet.netfold->on_mismatch = std::move(on_mismatch);
  return std::make_unique<DevicePlane>(std::move(options), std::move(devices));
}

std::size_t frame_memory_bytes(const wire::Lease& lease, std::size_t room_bytes) {
  return NetfoldHandler::buffers_of(lease) * room_bytes +
         lease.shards * Aggregator::memory_bytes(lease, Payloads::kLent);
}

}  // namespace netfold::switching
