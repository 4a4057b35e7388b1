// A tree of switches' control sides and their workers, joined by perfect wires in memory, with time turned by hand.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "membership/join_attempts.h"
#include "switch/switch_control.h"

namespace netfold::switching {

// One end of a wire: bytes that are written here are read there.
class WireEnd final : public link::ControlLink {
 public:
  struct Wire {
    std::string bytes[2];
    bool is_shut[2] = {false, false};
    bool is_cut = false;
  };
  WireEnd(std::shared_ptr<Wire> wire, int side) : wire_(std::move(wire)), side_(side) {}
  ~WireEnd() override { wire_->is_shut[side_] = true; }
  WireEnd(const WireEnd&) = delete;

  Outcome read(const std::function<void(std::string_view)>& on_line) override {
    if (wire_->is_cut) return {State::kClosed, "lost its connection"};
    std::string& bytes = wire_->bytes[1 - side_];
    for (std::size_t end = bytes.find('\n'); end != std::string::npos; end = bytes.find('\n')) {
      const std::string line = bytes.substr(0, end);
      bytes.erase(0, end + 1);
      on_line(line);
    }
    return wire_->is_shut[1 - side_] ? Outcome{State::kClosed, "closed its connection"} : Outcome{};
  }
  Outcome write(std::string_view bytes) override {
    if (wire_->is_cut) return {State::kClosed, "lost its connection"};
    wire_->bytes[side_] += bytes;
    return {};
  }
  Outcome flush() override { return write(""); }
  bool wants_to_write() const override { return false; }
  bool has_unconfirmed() const override { return false; }
  Nanoseconds usual_confirmation() const override { return 0; }
  void shut_down_writing() override { wire_->is_shut[side_] = true; }
  int descriptor() const override { return -1; }
  const std::shared_ptr<Wire>& wire() const { return wire_; }

 private:
  std::shared_ptr<Wire> wire_;
  int side_;
};

// Switches are numbered; number n is at 10.0.n.1:7171.
class TreeConversation {
 public:
  struct Options {
    std::optional<std::size_t> parent = {};  // its number; of one that is not there: an error
    std::string secret = "", parent_secret = "";
    bool require_auth = false;
    std::uint16_t shards = 1;
    std::size_t memory_max_bytes = std::size_t{1} << 30;
    std::uint32_t mtu = 1500;  // of the way up
  };

  static std::string address(std::size_t number) { return "10.0." + std::to_string(number) + ".1:7171"; }

  std::size_t add_switch(const Options& options) {
    switches_.push_back(std::make_unique<Box>());
    Box& box = *switches_.back();
    const std::size_t number = switches_.size() - 1;
    for (std::uint16_t shard = 0; shard < options.shards; ++shard) {
      box.data.ports.push_back(static_cast<std::uint16_t>(9000 + shard));
    }
    SwitchRules rules;
    rules.secret = control::Secret::from(options.secret);
    rules.tagged = options.require_auth;
    rules.udp_ports = box.data.ports;
    rules.memory_max_bytes = options.memory_max_bytes;
    rules.memory_bytes = &DataPlane::memory_bytes;
    rules.id[0] = static_cast<std::byte>(number + 1);
    rules.port = 7171;
    rules.random = [this](std::span<std::byte> bytes) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(prng_.next());
    };
    SwitchControlOptions control;
    control.traffic_of = [&box](const std::string&) { return box.traffic; };
    if (options.parent) {
      rules.parent = address(*options.parent);
      control.uplink.parent = rules.parent;
      control.uplink.address = ip_of(*options.parent);
      control.uplink.secret = options.parent_secret.empty() ? options.secret : options.parent_secret;
      control.uplink.require_auth = options.require_auth;
      control.uplink.mtu = [mtu = options.mtu] { return mtu; };
      control.uplink.draw_nonce = [this] { return nonce(); };
    }
    box.control = std::make_unique<SwitchControl>(std::move(rules), box.data, std::move(control));
    return number;
  }

  struct WorkerOptions {
    std::uint16_t world = 4;
    std::string job = "job", secret = "";
    double timeout_s = 30;
    std::uint32_t mtu = 1500, window = 0;
    bool require_auth = false;
    numbers::BfpShape bfp = {};
  };
  // A worker that joins from now on; its number is its place in the list.
  std::size_t add_worker(std::size_t at, std::uint16_t rank, const WorkerOptions& options) {
    workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_.back();
    worker.at = at;
    worker.options.switch_address = address(at);
    worker.options.job = options.job;
    worker.options.world = options.world;
    worker.options.rank = rank;
    worker.options.secret = options.secret;
    worker.options.require_auth = options.require_auth;
    worker.options.udp_port = static_cast<std::uint16_t>(6000 + rank);
    worker.options.mtu = options.mtu;
    worker.options.window = options.window;
    worker.options.bfp = options.bfp;
    worker.options.timeout_s = options.timeout_s;
    worker.attempts = std::make_unique<membership::JoinAttempts>(
        worker.options, ip_of(at), [this] { return nonce(); }, now_);
    settle();
    return workers_.size() - 1;
  }
  std::size_t add_worker(std::size_t at, std::uint16_t rank) { return add_worker(at, rank, {}); }

  bool is_admitted(std::size_t worker) const { return workers_[worker]->connection && !workers_[worker]->error; }
  const std::optional<Error>& error(std::size_t worker) const { return workers_[worker]->error; }
  const membership::ControlConnection& connection(std::size_t worker) const { return *workers_[worker]->connection; }
  std::size_t workers() const { return workers_.size(); }
  // The job has received and sent so many bytes more at this switch.
  void carry(std::size_t number, std::uint16_t job, std::uint64_t bytes) {
    JobCounters& counters = switches_[number]->data.counted[job];
    counters.received_bytes += bytes;
    counters.sent_bytes += bytes;
  }
  void come_last(std::size_t number, std::uint16_t job, std::size_t place, std::uint64_t chunks) {
    auto& ranks = switches_[number]->data.counted[job].ranks;
    ranks.resize(std::max(ranks.size(), place + 1));
    ranks[place].came_last += chunks;
  }
  // Its interface, which leads to all workers, has received and sent so many bytes more, of all programs together.
  void pass_interface(std::size_t number, std::uint64_t bytes) {
    switches_[number]->traffic.received_bytes += bytes;
    switches_[number]->traffic.sent_bytes += bytes;
  }
  std::optional<control::LinkShare> take_link_share(std::size_t worker) {
    return workers_[worker]->connection->take_link_share();
  }
  bool take_is_late(std::size_t worker) { return workers_[worker]->connection->take_is_late(); }
  SwitchControl& at(std::size_t number) { return *switches_[number]->control; }
  const std::vector<Admission>& admissions(std::size_t number) const { return switches_[number]->data.admissions; }
  std::size_t running(std::size_t number) const { return switches_[number]->data.running; }

  // The process is gone, without a word.
  void kill_switch(std::size_t number) {
    for (const auto& wire : switches_[number]->wires) wire->is_cut = true;
    switches_[number]->is_dead = true;
    settle();
  }
  void kill_worker(std::size_t number) {
    workers_[number]->wire->is_cut = true;
    workers_[number]->is_dead = true;
    settle();
  }
  void leave(std::size_t number) {
    workers_[number]->connection->leave(std::nullopt, now_);
    workers_[number]->is_dead = true;
    settle();
  }
  void stop_switch(std::size_t number) {
    switches_[number]->control->stop();
    switches_[number]->is_stopping = true;
    settle();
  }

  void pass(Nanoseconds duration) {
    const Nanoseconds end = now_ + duration;
    while (now_ < end) {
      Nanoseconds next = end;
      for (const auto& box : switches_) {
        if (!box->is_dead) next = std::min(next, box->control->deadline());
      }
      for (const auto& worker : workers_) {
        if (worker->is_dead || worker->error) continue;
        next = std::min(next, worker->attempts ? worker->attempts->deadline() : worker->connection->deadline());
      }
      now_ = std::max(next, now_ + kMillisecond);
      settle();
    }
  }

 private:
  struct NoPackets final : DataPlane {
    const std::vector<std::uint16_t>& udp_ports() const override { return ports; }
    void admit(Admission admission) override {
      admissions.push_back(std::move(admission));
      ++running;
    }
    void evict(std::uint16_t) override { --running; }
    std::vector<std::uint64_t> drops() const override { return {}; }
    JobCounters counters(std::uint16_t job) const override {
      const auto found = counted.find(job);
      return found == counted.end() ? JobCounters() : found->second;
    }
    link::LinkStats link_stats() const override {
      link::LinkStats sum;
      for (const auto& [job, counters] : counted) {
        sum.received_bytes += counters.received_bytes;
        sum.sent_bytes += counters.sent_bytes;
      }
      return sum;
    }

    std::vector<std::uint16_t> ports;
    std::vector<Admission> admissions;
    std::size_t running = 0;
    std::map<std::uint16_t, JobCounters> counted;
  };
  struct Box {
    NoPackets data;
    link::InterfaceTraffic traffic;
    std::unique_ptr<SwitchControl> control;
    std::vector<std::shared_ptr<WireEnd::Wire>> wires;
    bool is_dead = false, is_stopping = false;
  };
  struct Worker {
    membership::JoinOptions options;
    std::size_t at = 0;
    std::unique_ptr<membership::JoinAttempts> attempts;
    std::unique_ptr<membership::ControlConnection> connection;
    std::shared_ptr<WireEnd::Wire> wire;
    std::optional<Error> error;
    bool is_dead = false;
  };

  static link::Address ip_of(std::size_t number) {
    return {0x0a000001u + (static_cast<std::uint32_t>(number) << 8), 7171};
  }
  control::Nonce nonce() {
    control::Nonce drawn;
    for (std::byte& b : drawn) b = static_cast<std::byte>(prng_.next());
    return drawn;
  }

  // Null if no switch listens there.
  std::unique_ptr<WireEnd> connect(link::Address to, const IpAddress& from_ip) {
    const std::size_t number = (to.ip.v4() >> 8) & 255;
    if (number >= switches_.size() || switches_[number]->is_dead || switches_[number]->is_stopping) return nullptr;
    auto wire = std::make_shared<WireEnd::Wire>();
    switches_[number]->wires.push_back(wire);
    switches_[number]->control->accept(std::make_unique<WireEnd>(wire, 1), from_ip, now_, {}, "eth0");
    return std::make_unique<WireEnd>(wire, 0);
  }

  // Everything that is said now, and what follows from it.
  void settle() {
    for (int round = 0; round < 60; ++round) {
      for (std::size_t number = 0; number < switches_.size(); ++number) turn(number);
      for (const auto& worker : workers_) turn(*worker);
    }
  }

  void turn(std::size_t number) {
    Box& box = *switches_[number];
    if (box.is_dead) return;
    std::vector<ConnectionId> ids;
    for (const auto& [id, peer] : box.control->peers()) ids.push_back(id);
    for (const ConnectionId id : ids) box.control->serve(id, now_);
    if (!box.is_stopping) box.control->on_time(now_);
    box.control->settle(now_);
    for (const JobKey key : box.control->uplinks().begin_attempts(now_)) {
      auto end = connect(box.control->uplinks().options().address, ip_of(number).ip);
      if (!end) {
        box.control->uplinks().on_unreachable(key, "connection refused", now_);
        continue;
      }
      box.wires.push_back(end->wire());
      box.control->uplinks().on_connected(key, std::move(end), now_);
    }
  }

  void turn(Worker& worker) {
    if (worker.is_dead || worker.error) return;
    if (worker.attempts) {
      if (worker.attempts->begin_attempt(now_)) {
        auto end = connect(ip_of(worker.at), 0x0a010000u + worker.options.rank);
        if (end) {
          worker.wire = end->wire();
          worker.attempts->on_connected(std::move(end), now_);
        } else {
          worker.attempts->on_unreachable("connection refused", now_);
        }
      }
      auto joined = worker.attempts->pump(now_);
      if (!joined) {
        worker.error = joined.error();
        if (auto connection = worker.attempts->take_connection()) connection->leave(worker.error, now_);
      } else if (*joined) {
        worker.connection = std::move(*joined);
        worker.attempts.reset();
      }
      return;
    }
    if (const auto alive = worker.connection->pump(now_); !alive) worker.error = alive.error();
  }

  Prng prng_{11};
  Nanoseconds now_ = 1000 * kSecond;
  std::vector<std::unique_ptr<Box>> switches_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace netfold::switching
