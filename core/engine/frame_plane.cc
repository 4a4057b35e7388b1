#include "engine/frame_plane.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/job_parts.h"
#include "engine/log_throttle.h"
#include "engine/mailbox.h"
#include "engine/netfold_dialect.h"
#include "engine/thread_setup.h"
#include "frames/pipeline.h"

namespace netfold::engine {
namespace {

constexpr unsigned kIdleRoundsBeforeYield = 64, kIdleRoundsBeforeNap = 256;
constexpr Nanoseconds kNap = 50 * kMicrosecond;
constexpr Nanoseconds kLinkWatch = kSecond;

constexpr std::pair<const char*, Counter frames::PortCounters::*> kPortCounters[] = {
    {"taken", &frames::PortCounters::taken},
    {"forwarded", &frames::PortCounters::forwarded},
    {"flooded", &frames::PortCounters::flooded},
    {"filtered", &frames::PortCounters::filtered},
    {"handed_over", &frames::PortCounters::handed_over},
    {"dropped_by_dialect", &frames::PortCounters::dropped},
    {"dropped_handover_full", &frames::PortCounters::dropped_handover},
    {"unread_handover_full", &frames::PortCounters::unread_handover},
};

// A dialect has an instance a thread: counters of the same name are summed.
void add_dialects(const frames::Pipeline& pipeline, std::vector<NamedCounters>& sums) {
  for (const auto& dialect : pipeline.dialects()) {
    auto counts = dialect->counts();
    const auto found =
        std::find_if(sums.begin(), sums.end(), [&](const NamedCounters& it) { return it.name == dialect->name(); });
    if (found == sums.end()) {
      sums.push_back({dialect->name(), std::move(counts)});
    } else {
      for (std::size_t i = 0; i < counts.size(); ++i) found->counters[i].second += counts[i].second;
    }
  }
}

// A thread and its pipeline.
class FrameThread {
 public:
  FrameThread(link::FrameDevices& devices, std::unique_ptr<frames::Pipeline> pipeline, NetfoldDialect& dialect,
              const std::string& name, int core, bool always_polls)
      : devices_(devices), pipeline_(std::move(pipeline)), dialect_(dialect), always_polls_(always_polls) {
    thread_ = std::thread([this, name, core] { run(name, core); });
  }
  ~FrameThread() {
    stopping_ = true;
    thread_.join();
  }
  FrameThread(const FrameThread&) = delete;

  void place(std::uint16_t id, FrameJob* job) {
    mailbox_.run_there([&] { dialect_.place(id, job, devices_.pool()); });
  }

  const frames::Pipeline& pipeline() const { return *pipeline_; }
  const frames::PortCounters& counters(link::PortNumber port) const { return pipeline_->counters(port); }
  std::uint64_t dropped(link::PortNumber port) const { return pipeline_->outbox().dropped(port); }
  const NetfoldDialect& dialect() const { return dialect_; }

 private:
  void run(const std::string& name, int core) {
    set_up_thread(name, core);
    prctl(PR_SET_TIMERSLACK, 1);
    devices_.enter_thread();
    unsigned idle_rounds = 0;
    while (!stopping_.load(std::memory_order_relaxed)) {
      mailbox_.run_posted();
      idle_rounds = pipeline_->pump(now()) > 0 ? 0 : idle_rounds + 1;
      if (idle_rounds > kIdleRoundsBeforeYield && !always_polls_) rest(idle_rounds);
    }
    pipeline_.reset();  // gives its buffers back here, where the pool has a store of this thread
    devices_.leave_thread();
  }

  static void rest(unsigned idle_rounds) {
    if (idle_rounds < kIdleRoundsBeforeNap) {
      sched_yield();
      return;
    }
    const timespec nap{0, kNap};
    nanosleep(&nap, nullptr);
  }

  link::FrameDevices& devices_;
  std::unique_ptr<frames::Pipeline> pipeline_;
  NetfoldDialect& dialect_;
  bool always_polls_;
  Mailbox mailbox_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class FramePlane final : public DataPlane {
 public:
  FramePlane(FramePlaneOptions options, std::unique_ptr<link::FrameDevices> devices, OnMismatch on_mismatch)
      : options_(std::move(options)),
        log_(options_.log),
        devices_(std::move(devices)),
        addresses_(options_.addresses),
        data_addresses_(options_.ip, options_.jobs_max),
        jobs_(options_.threads,
              [this](std::uint16_t thread, std::uint16_t job, FrameJob* part) { threads_[thread]->place(job, part); }) {
    for (std::uint16_t thread = 0; thread < options_.threads; ++thread) {
      udp_ports_.push_back(static_cast<std::uint16_t>(options_.first_port + thread));
    }
    const std::uint16_t threads = threads_of(options_, devices_->ports());
    for (std::uint16_t thread = 0; thread < threads; ++thread) start_thread(thread, on_mismatch);
    watcher_ = std::thread([this] { watch(); });
  }

  ~FramePlane() override {
    {
      const std::lock_guard lock(watch_mutex_);
      stopping_ = true;
    }
    watch_wakeup_.notify_all();
    watcher_.join();
    threads_.clear();
  }

  const std::vector<std::uint16_t>& udp_ports() const override { return udp_ports_; }

  bool folds_on_the_way() const override { return true; }
  void admit(Admission admission) override {
    data_addresses_.set(admission.lease.job, admission.host ? admission.host->ip : 0);
    jobs_.admit(admission);
  }
  void evict(std::uint16_t job) override {
    data_addresses_.set(job, 0);
    jobs_.evict(job);
  }
  JobCounters counters(std::uint16_t job) const override { return jobs_.counters(job); }

  std::vector<std::uint64_t> drops() const override {
    return sum_of_drops(threads_,
                        [](const FrameThread& thread, DropReason reason) { return thread.dialect().drops(reason); });
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

  FrameStats frame_stats() const override;

  Result<void> configure(const FoldingChange& change) override {
    if (change.job) {
      frames::AggregationConfig config = by_job_.of(*change.job, devices_->ports());
      if (change.ports) config.ports = static_cast<std::uint32_t>(*change.ports);
      if (change.adds_floats) config.is_float = *change.adds_floats;
      return by_job_.set(*change.job, config);
    }
    if (change.ports) settings_.folding_ports.store(*change.ports, std::memory_order_relaxed);
    if (change.adds_floats) settings_.adds_floats.store(*change.adds_floats, std::memory_order_relaxed);
    return {};
  }

 private:
  void start_thread(std::uint16_t thread, const OnMismatch& on_mismatch);
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
  frames::MacTable addresses_;
  DataAddresses data_addresses_;
  frames::Settings settings_;
  frames::AggregationSettings by_job_{settings_};  // of RoCE jobs
  frames::RoceOwners roce_owners_;
  std::vector<std::uint16_t> udp_ports_;
  JobParts<FrameJob> jobs_;
  std::vector<std::unique_ptr<FrameThread>> threads_;  // those that fold, then those of the ports
  std::mutex watch_mutex_;
  std::condition_variable watch_wakeup_;
  bool stopping_ = false;
  std::thread watcher_;
};

void FramePlane::start_thread(std::uint16_t thread, const OnMismatch& on_mismatch) {
  const bool folds = thread < options_.threads;
  frames::PipelineOptions pipeline{options_.parse, options_.threads, folds ? thread : frames::kNoFolding};
  frames::PipelinePorts ports;
  for (link::PortNumber number = 0; number < devices_->ports(); ++number) {
    ports.all.push_back(&devices_->port(number, thread));
  }
  ports.receiving = receiving(thread);
  for (std::uint16_t peer = 0; peer < options_.threads; ++peer) ports.peers.push_back(&devices_->inbox(peer));
  if (folds) ports.inbox = ports.peers[thread];

  std::vector<std::unique_ptr<frames::Dialect>> dialects;
  auto own = std::make_unique<NetfoldDialect>(
      NetfoldDialect::Options{&data_addresses_, udp_ports_, pipeline.thread, options_.jobs_max}, on_mismatch);
  NetfoldDialect& dialect = *own;
  dialects.push_back(std::move(own));
  if (options_.roce) {
    frames::RoceOptions roce = *options_.roce;
    roce.owners = &roce_owners_;
    dialects.push_back(std::make_unique<frames::RoceDialect>(by_job_, roce));
  }
  if (options_.pcie) dialects.push_back(std::make_unique<frames::PcieDialect>(*options_.pcie));

  auto made =
      std::make_unique<frames::Pipeline>(devices_->pool(), std::move(ports), addresses_, std::move(dialects), pipeline);
  made->outbox().set_settings(settings_);
  const int core = thread < options_.cores.size() ? options_.cores[thread] : kAnyCore;
  const std::string name =
      folds ? fmt::format("nf-fold-{}", thread) : fmt::format("nf-port-{}", thread - options_.threads);
  threads_.push_back(
      std::make_unique<FrameThread>(*devices_, std::move(made), dialect, name, core, options_.always_polls));
}

// The ports that a thread receives from.
std::vector<link::PortNumber> FramePlane::receiving(std::uint16_t thread) const {
  if (options_.layout == Layout::kPerPort) {
    if (thread < options_.threads) return {};
    return {static_cast<link::PortNumber>(thread - options_.threads)};
  }
  std::vector<link::PortNumber> mine;
  for (link::PortNumber number = 0; number < devices_->ports(); ++number) {
    const std::uint16_t queues = devices_->receive_queues(number);
    if (queues >= options_.threads || number % options_.threads == thread) mine.push_back(number);
  }
  return mine;
}

FrameStats FramePlane::frame_stats() const {
  FrameStats all;
  const frames::Registers registers = frames::registers_of(settings_, devices_->ports());
  all.agg_mode = registers.agg_mode;
  all.agg_port_cfg = registers.agg_port_cfg;
  for (link::PortNumber number = 0; number < devices_->ports(); ++number) {
    const link::Port& port = devices_->port(number, 0);
    const link::PortStats stats = port.stats();
    std::vector<std::pair<std::string, std::uint64_t>> counters{{"up", port.is_up() ? 1 : 0},
                                                                {"folds", settings_.folds(number) ? 1 : 0},
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
      sum(name, [&](const frames::PortCounters& from) -> const Counter& { return from.*counter; });
    }
    for (std::size_t flaw = 1; flaw < static_cast<std::size_t>(frames::Flaw::kCount); ++flaw) {
      sum(fmt::format("flaw_{}", name_of(static_cast<frames::Flaw>(flaw))),
          [&](const frames::PortCounters& from) -> const Counter& { return from.flaws[flaw]; });
    }
    std::uint64_t full = 0;
    for (const auto& thread : threads_) full += thread->dropped(number);
    counters.emplace_back("dropped_port_full", full);
    all.ports.push_back({port.name(), std::move(counters)});
  }
  for (const auto& thread : threads_) add_dialects(thread->pipeline(), all.dialects);
  const Nanoseconds at = now();
  all.addresses = {"addresses",
                   {{"known", addresses_.entries(at).size()},
                    {"capacity", addresses_.capacity()},
                    {"moved", addresses_.moved()},
                    {"pushed_out", addresses_.pushed_out()}}};
  return all;
}

// Ports that went down or came up, and what was dropped since the last look, by reason: a line a port, throttled.
void FramePlane::tell(const FrameStats& before, const FrameStats& after) {
  const Nanoseconds at = now();
  for (std::size_t number = 0; number < after.ports.size() && before.ports.size() == after.ports.size(); ++number) {
    const auto& was = before.ports[number].counters;
    const auto& is = after.ports[number].counters;
    std::string dropped;
    for (std::size_t i = 0; i < is.size(); ++i) {
      const std::string& name = is[i].first;
      if (is[i].second == was[i].second) continue;
      if (name == "up") {
        log_.line(jobs::LogLevel::kWarning,
                  fmt::format("port {} ({}) {}", number, after.ports[number].name,
                              is[i].second != 0 ? "is up" : "went down: what must come through it waits"),
                  at);
      } else if (name.rfind("flaw_", 0) == 0 || name.rfind("dropped_", 0) == 0 || name.rfind("unread_", 0) == 0 ||
                 name == "missed_frames") {
        dropped += fmt::format("{}{} {}", dropped.empty() ? "" : ", ", name, is[i].second - was[i].second);
      }
    }
    if (dropped.empty()) continue;
    log_.line(jobs::LogLevel::kWarning, fmt::format("port {} ({}): {}", number, after.ports[number].name, dropped), at);
  }
}

}  // namespace

std::uint16_t threads_of(const FramePlaneOptions& options, std::size_t ports) {
  return static_cast<std::uint16_t>(options.threads + (options.layout == Layout::kPerPort ? ports : 0));
}

std::uint16_t receivers_of(const FramePlaneOptions& options) {
  return options.layout == Layout::kPerPort ? 1 : options.threads;
}

Result<std::unique_ptr<DataPlane>> start_frame_plane(FramePlaneOptions options,
                                                     std::unique_ptr<link::FrameDevices> devices,
                                                     DataPlane::OnMismatch on_mismatch) {
  if (!std::has_single_bit(options.threads)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} folding threads: their number must be a power of two (1, 2, 4, ...)", options.threads));
  }
  if (devices->ports() == 0 || devices->ports() > 64) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} ports: a switch has 1 to 64", devices->ports()));
  }
  return std::make_unique<FramePlane>(std::move(options), std::move(devices), std::move(on_mismatch));
}

std::size_t frame_memory_bytes(const wire::Lease& lease, std::size_t room_bytes) {
  return NetfoldDialect::buffers_of(lease) * room_bytes +
         lease.shards * fold::Aggregator::memory_bytes(lease, fold::Payloads::kLent);
}

}  // namespace netfold::engine
