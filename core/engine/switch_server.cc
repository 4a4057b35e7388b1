#include "engine/switch_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/control_socket.h"
#include "engine/log_throttle.h"
#include "engine/thread_setup.h"
#include "engine/wakeup.h"

namespace netfold::engine {
namespace {

constexpr Nanoseconds kLingerMax = 2 * kSecond;     // for a closed peer to take its last line
constexpr Nanoseconds kStopMax = kSecond;           // the same, when the whole switch stops
constexpr Nanoseconds kAcceptPause = kSecond / 10;  // after the kernel had no descriptor left
constexpr int kAcceptsMax = 64;                     // a round

Result<void> check(const SwitchServerOptions& options) {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInvalidArgument, std::move(what)); };
  if (options.require_auth && options.secret.empty()) {
    return wrong("authenticated packets need a secret: give the switch and its workers one");
  }
  if (!(options.heartbeat_s >= jobs::kHeartbeatSecondsMin && options.heartbeat_s <= jobs::kHeartbeatSecondsMax)) {
    return wrong(fmt::format("a heartbeat every {} s: it must be {} to {} s", options.heartbeat_s,
                             jobs::kHeartbeatSecondsMin, jobs::kHeartbeatSecondsMax));
  }
  if (options.jobs_max == 0) return wrong("a switch for 0 jobs does nothing: allow at least 1");
  if (options.connections_max == 0) return wrong("a switch for 0 connections does nothing: allow at least 1");
  return {};
}

jobs::SwitchRules rules_from(const SwitchServerOptions& options, const DataPlane& data_plane,
                             const DataPlaneFactory& factory) {
  jobs::SwitchRules rules;
  rules.secret = jobs::Secret::from(options.secret);
  rules.tagged = options.require_auth;
  rules.jobs_max = options.jobs_max;
  rules.memory_max_bytes = options.memory_max_bytes;
  rules.heartbeat = from_seconds(options.heartbeat_s);
  rules.udp_ports = data_plane.udp_ports();
  rules.folds_on_the_way = data_plane.folds_on_the_way();
  rules.first_epoch = static_cast<std::uint16_t>(randombytes_uniform(65536));
  rules.memory_bytes = factory.memory_bytes;
  rules.random = [](std::span<std::byte> bytes) { randombytes_buf(bytes.data(), bytes.size()); };
  return rules;
}

}  // namespace

// The control thread and what it owns. The mutex guards the table and the packet path's set of jobs against stats();
// sockets belong to the thread alone.
class SwitchServer::Control {
 public:
  Control(SwitchServerOptions options, int listener)
      : options_(std::move(options)),
        listener_(listener),
        address_(local_address_of(listener)),
        log_(options_.log),
        started_at_(now()) {}

  ~Control() {
    stop();
    ::close(listener_);
  }

  Result<void> begin(const DataPlaneFactory& factory) {
    auto data_plane =
        factory.start(options_.data, [this](std::uint16_t job, std::uint16_t epoch, int rank, std::string what) {
          {
            const std::lock_guard lock(mismatches_mutex_);
            mismatches_.push_back({job, epoch, rank, std::move(what)});
          }
          wakeup_.wake();
        });
    if (!data_plane) return tl::unexpected(data_plane.error());
    data_plane_ = std::move(*data_plane);
    table_ = std::make_unique<jobs::JobTable>(rules_from(options_, *data_plane_, factory));
    sodium_memzero(options_.secret.data(), options_.secret.size());  // the table keeps a hash of it
    options_.secret.clear();
    thread_ = std::thread([this] { run(); });
    return {};
  }

  void stop() {
    stopping_ = true;
    wakeup_.wake();
    if (thread_.joinable()) thread_.join();
  }

  link::Address address() const { return address_; }
  Result<void> configure(const FoldingChange& change) { return data_plane_->configure(change); }

  SwitchStats stats() const {
    SwitchStats stats;
    stats.address = link::to_string(address_);
    const std::lock_guard lock(mutex_);
    const Nanoseconds at = now();
    stats.uptime_s = to_seconds(at - started_at_);
    stats.udp_ports = data_plane_->udp_ports();
    for (jobs::JobSummary& summary : table_->jobs()) {
      JobStats job;
      job.age_s = to_seconds(at - summary.since);
      if (summary.running) job.counters = data_plane_->counters(summary.job_id);
      job.summary = std::move(summary);
      stats.jobs.push_back(std::move(job));
    }
    const auto drops = data_plane_->drops();
    for (std::size_t reason = 0; reason < drops.size(); ++reason) {
      stats.drops.emplace_back(name_of(static_cast<DropReason>(reason)), drops[reason]);
    }
    stats.link = data_plane_->link_stats();
    stats.frames = data_plane_->frame_stats();
    stats.table = table_->counters();
    stats.connections = table_->connections();
    stats.memory_bytes = table_->memory_bytes();
    stats.memory_max_bytes = options_.memory_max_bytes;
    stats.jobs_max = options_.jobs_max;
    return stats;
  }

 private:
  struct Peer {
    std::unique_ptr<ControlSocket> socket;
    bool closing = false;  // the table has forgotten it; what it is sent still goes out
    bool shut = false;
    Nanoseconds close_by = kNever;
  };
  struct Mismatch {
    std::uint16_t job, epoch;
    int rank;
    std::string what;
  };

  void run() {
    set_up_thread("nf-control", kAnyCore);
    bool told_all = false;
    while (true) {
      wait();
      const std::lock_guard lock(mutex_);
      const Nanoseconds at = now();
      wakeup_.clear();
      for (const jobs::ConnectionId id : ready_) serve(id, at);  // before new ones: a leave comes before the next join
      take_mismatches();
      if (stopping_ && !told_all) {
        told_all = true;
        table_->on_stop();
      } else if (!stopping_) {
        accept_new(at);
        table_->on_time(at);
      }
      act(at);
      close_done(at);
      if (told_all && peers_.empty()) return;
    }
  }

  // Sleeps until something is to be done; leaves the connections that are ready in ready_.
  void wait() {
    polled_.assign(1, {wakeup_.descriptor(), POLLIN, 0});
    const bool accepting = !stopping_ && now() >= accept_again_at_;
    polled_.push_back({accepting ? listener_ : -1, POLLIN, 0});
    Nanoseconds deadline = stopping_ ? kNever : std::min(table_->deadline(), accepting ? kNever : accept_again_at_);
    ready_.clear();
    for (const auto& [id, peer] : peers_) {
      ready_.push_back(id);
      polled_.push_back(
          {peer.socket->descriptor(), static_cast<short>(POLLIN | (peer.socket->wants_to_write() ? POLLOUT : 0)), 0});
      deadline = std::min(deadline, peer.close_by);
    }
    wait_for(polled_, deadline);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ready_.size(); ++i) {
      if (polled_[i + 2].revents != 0) ready_[kept++] = ready_[i];
    }
    ready_.resize(kept);
  }

  void serve(jobs::ConnectionId id, Nanoseconds at) {
    const auto found = peers_.find(id);
    if (found == peers_.end()) return;
    Peer& peer = found->second;
    const auto got = peer.socket->read([&](std::string_view line) {
      if (!peer.closing) table_->on_line(id, line, at);
    });
    if (got.state == ControlSocket::State::kGarbage) table_->on_violation(id, got.why);
    if (got.state == ControlSocket::State::kClosed) {
      return lose(id, peer, got.why);
    }
    if (const auto sent = peer.socket->flush(); sent.state != ControlSocket::State::kOpen) lose(id, peer, sent.why);
  }

  void lose(jobs::ConnectionId id, Peer& peer, const std::string& why) {
    act(now());  // answers to what came before the end may have closed it in order
    if (!peer.closing) table_->on_close(id, why);
    peer.closing = true;
    peer.close_by = 0;
  }

  void take_mismatches() {
    std::vector<Mismatch> mismatches;
    {
      const std::lock_guard lock(mismatches_mutex_);
      mismatches.swap(mismatches_);
    }
    for (const auto& m : mismatches) table_->on_mismatch(m.job, m.epoch, m.rank, m.what);
  }

  void accept_new(Nanoseconds at) {
    if (at < accept_again_at_) return;
    for (int i = 0; i < kAcceptsMax; ++i) {
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const int descriptor =
          accept4(listener_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (descriptor < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
          log_.line(jobs::LogLevel::kWarning, fmt::format("cannot accept a connection: {}", std::strerror(errno)), at);
          accept_again_at_ = at + kAcceptPause;
        }
        return;
      }
      if (peers_.size() >= options_.connections_max) make_room();
      if (peers_.size() >= options_.connections_max) {
        ControlSocket(descriptor)
            .write(jobs::emit(
                jobs::Refused{fmt::format("the switch has {} connections, as many as it takes", peers_.size()),
                              ErrorCode::kRefused, kNoRank, 0}));
        continue;
      }
      const jobs::ConnectionId id = next_id_++;
      peers_[id].socket = std::make_unique<ControlSocket>(descriptor);
      table_->on_open(id, ntohl(from.sin_addr.s_addr), at);
    }
  }

  // Strangers must not keep workers out: the oldest connection that has not joined goes.
  void make_room() {
    for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
      if (table_->has_joined(peer->first)) continue;
      if (!peer->second.closing) table_->on_close(peer->first, "made room");
      peers_.erase(peer);
      return;
    }
  }

  // Carries out what the table decided, and what it decides when that fails, until it rests.
  void act(Nanoseconds at) {
    for (auto actions = table_->take_actions(); !actions.empty(); actions = table_->take_actions()) {
      for (jobs::Action& action : actions) {
        std::visit([&](auto& what) { carry_out(what, at); }, action);
      }
    }
  }

  void carry_out(const jobs::SendLine& send, Nanoseconds) {
    const auto found = peers_.find(send.connection);
    if (found == peers_.end()) return;
    const auto outcome = found->second.socket->write(send.line);
    if (outcome.state == ControlSocket::State::kOpen) return;
    table_->on_close(send.connection, outcome.why);
    found->second.closing = true;
    found->second.close_by = 0;
  }

  void carry_out(const jobs::CloseConnection& close, Nanoseconds at) {
    const auto found = peers_.find(close.connection);
    if (found == peers_.end()) return;
    found->second.closing = true;
    found->second.close_by = std::min(found->second.close_by, at + (stopping_ ? kStopMax : kLingerMax));
  }

  void carry_out(jobs::AdmitJob& admit, Nanoseconds) {
    Admission admission;
    admission.lease = admit.lease;
    for (const jobs::Endpoint& worker : admit.workers) admission.workers.push_back({worker.ip, worker.port});
    if (admit.host) admission.host = link::Address{admit.host->ip, admit.host->port};
    data_plane_->admit(std::move(admission));
  }

  void carry_out(const jobs::EvictJob& evict, Nanoseconds) { data_plane_->evict(evict.job); }
  void carry_out(const jobs::LogLine& line, Nanoseconds at) { log_.line(line.level, line.text, at); }

  void close_done(Nanoseconds at) {
    for (auto peer = peers_.begin(); peer != peers_.end();) {
      Peer& it = peer->second;
      if (it.closing && !it.shut && !it.socket->wants_to_write()) {
        it.socket->shut_down_writing();
        it.shut = true;
      }
      peer = it.closing && at >= it.close_by ? peers_.erase(peer) : std::next(peer);
    }
  }

  SwitchServerOptions options_;
  int listener_;
  link::Address address_;
  LogThrottle log_;
  Nanoseconds started_at_;

  Wakeup wakeup_;
  std::mutex mismatches_mutex_;
  std::vector<Mismatch> mismatches_;
  std::atomic<bool> stopping_{false};

  std::unique_ptr<DataPlane> data_plane_;  // its threads use what is above
  mutable std::mutex mutex_;
  std::unique_ptr<jobs::JobTable> table_;
  std::map<jobs::ConnectionId, Peer> peers_;
  jobs::ConnectionId next_id_ = 1;
  Nanoseconds accept_again_at_ = 0;
  std::vector<pollfd> polled_;
  std::vector<jobs::ConnectionId> ready_;
  std::thread thread_;
};

SwitchServer::SwitchServer(std::unique_ptr<Control> control) : control_(std::move(control)) {}
SwitchServer::~SwitchServer() = default;

Result<std::unique_ptr<SwitchServer>> SwitchServer::start(SwitchServerOptions options, DataPlaneFactory factory) {
  if (auto valid = check(options); !valid) return tl::unexpected(valid.error());
  if (sodium_init() < 0) return fail(ErrorCode::kSystem, "libsodium finds no source of randomness on this machine");
  options.data.bind.ip = options.bind.ip;
  options.data.jobs_max = options.jobs_max;
  auto listener = listen_at(options.bind);
  if (!listener) return tl::unexpected(listener.error());
  auto control = std::make_unique<Control>(std::move(options), *listener);
  if (auto begun = control->begin(factory); !begun) return tl::unexpected(begun.error());
  return std::unique_ptr<SwitchServer>(new SwitchServer(std::move(control)));
}

link::Address SwitchServer::address() const {
  return control_->address();
}
SwitchStats SwitchServer::stats() const {
  return control_->stats();
}
Result<void> SwitchServer::configure(const FoldingChange& change) {
  return control_->configure(change);
}
void SwitchServer::stop() {
  control_->stop();
}

}  // namespace netfold::engine
