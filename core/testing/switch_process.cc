#include "testing/switch_process.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "switch/job_shards.h"
#include "switch/switch_path.h"

namespace netfold::testing {
namespace {

constexpr std::uint16_t kFirstPort = 20000;
constexpr std::uint16_t kJobsMax = 16;
constexpr std::uint64_t kEpochsOfALife = 1000;

}  // namespace

// The packet paths, with nothing of a thread around them.
class SwitchProcess::DataPlane final : public switching::DataPlane {
 public:
  DataPlane(Surroundings& around, AdmissionsChecker& admissions, IpAddress ip, const std::function<void()>& on_news,
            const OnMismatch& on_mismatch)
      : admissions_(admissions),
        jobs_(around.plan.shards, [this](std::uint16_t shard, std::uint16_t job, switching::ShardJob* part) {
          paths_[shard]->place(job, part);
        }) {
    for (std::uint16_t shard = 0; shard < around.plan.shards; ++shard) {
      ports_.push_back(static_cast<std::uint16_t>(kFirstPort + shard));
      paths_.push_back(std::make_unique<switching::SwitchPath>(around.network.open({ip, ports_.back()}, on_news),
                                                               kJobsMax, on_mismatch));
    }
  }

  const std::vector<std::uint16_t>& udp_ports() const override { return ports_; }
  void admit(switching::Admission admission) override {
    admissions_.on_admit(admission.lease);
    jobs_.admit(admission);
  }
  void evict(std::uint16_t job) override {
    admissions_.on_evict(job);
    jobs_.evict(job);
  }
  std::vector<std::uint64_t> drops() const override {
    return switching::sum_of_drops(paths_,
                                   [](const auto& path, switching::DropReason reason) { return path.drops(reason); });
  }
  switching::JobCounters counters(std::uint16_t job) const override { return jobs_.counters(job); }
  link::LinkStats link_stats() const override { return {}; }

  void pump(Nanoseconds now) {
    for (const auto& path : paths_) path->pump(now);
  }
  bool has_backlog() const {
    return std::any_of(paths_.begin(), paths_.end(), [](const auto& path) { return path->has_backlog(); });
  }

 private:
  AdmissionsChecker& admissions_;
  switching::JobShards<switching::ShardJob> jobs_;
  std::vector<std::unique_ptr<switching::SwitchPath>> paths_;
  std::vector<std::uint16_t> ports_;
};

SwitchProcess::SwitchProcess(Surroundings& around, std::uint64_t life, const link::Address& address)
    : Actor(around.timeline),
      around_(around),
      address_(address),
      own_admissions_(around.history),
      data_plane_(std::make_unique<DataPlane>(
          around, address == kSwitchAddress ? around.admissions : own_admissions_, address.ip, [this] { wake(); },
          [this](std::uint16_t job, std::uint16_t epoch, int rank, std::string what) {
            mismatches_.push_back({job, epoch, rank, std::move(what)});
          })),
      control_(rules(life), *data_plane_, {64, [&around](const switching::LogLine& line, Nanoseconds) {
                                             around.history.note("the switch: {}", line.text);
                                           }}) {
  (address == kSwitchAddress ? around.admissions : own_admissions_).on_switch_start();
  around_.network.listen(
      address_, [this](std::unique_ptr<link::ControlLink> link, IpAddress ip) { accept(std::move(link), ip); });
}

SwitchProcess::~SwitchProcess() {
  around_.network.stop_listening(address_);
}

std::uint64_t SwitchProcess::folded_chunks() const {
  std::uint64_t chunks = 0;
  for (std::uint16_t job = 0; job < kJobsMax; ++job) chunks += data_plane_->counters(job).folded_chunks;
  return chunks;
}

switching::SwitchRules SwitchProcess::rules(std::uint64_t life) {
  const Plan& plan = around_.plan;
  switching::SwitchRules rules;
  rules.secret = control::Secret::from(plan.secret);
  rules.tagged = plan.require_auth;
  rules.jobs_max = kJobsMax;
  rules.heartbeat = from_seconds(plan.heartbeat_s);
  rules.udp_ports = data_plane_->udp_ports();
  // Drawn at random by the server; here two lives of the switch never draw the same, which would be a matter of luck.
  rules.first_epoch = static_cast<std::uint16_t>(plan.seed * 7919 + life * kEpochsOfALife);
  rules.memory_bytes = &switching::DataPlane::memory_bytes;
  rules.random = [this](std::span<std::byte> bytes) {
    for (std::byte& b : bytes)
      b = around_.plan.repeats_salts ? std::byte{7} : static_cast<std::byte>(around_.prng.next());
  };
  return rules;
}

void SwitchProcess::accept(std::unique_ptr<link::ControlLink> link, IpAddress ip) {
  on_news_of(*link, [this, key = link.get()] {
    news_.insert(key);
    wake();
  });
  accepted_.emplace_back(std::move(link), ip);
  wake();
}

void SwitchProcess::stop() {
  is_stopping_ = true;
  around_.network.stop_listening(address_);
  wake();
}

// The order is the server's.
void SwitchProcess::run() {
  const Nanoseconds now = timeline_.now();
  data_plane_->pump(now);
  std::vector<switching::ConnectionId> ready;
  for (const auto& [id, peer] : control_.peers()) {
    if (news_.erase(peer.link.get()) > 0) ready.push_back(id);
  }
  for (const auto id : ready) control_.serve(id, now);
  for (const auto& it : std::exchange(mismatches_, {})) control_.on_mismatch(it.job, it.epoch, it.rank, it.what);
  if (is_stopping_ && !has_stopped_) {
    has_stopped_ = true;
    control_.stop();
  } else if (!is_stopping_) {
    for (auto& [link, ip] : std::exchange(accepted_, {})) control_.accept(std::move(link), ip, now);
    control_.on_time(now);
  }
  control_.settle(now);
  std::set<const void*> unread;  // of connections that were accepted just now
  for (const auto& [id, peer] : control_.peers()) {
    if (news_.contains(peer.link.get())) unread.insert(peer.link.get());
  }
  news_ = std::move(unread);
  if (!news_.empty()) wake();
  if (data_plane_->has_backlog()) wake_at(now + kFullPause);
  wake_at(control_.deadline());
}

}  // namespace netfold::testing
