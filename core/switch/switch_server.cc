#include "switch/switch_server.h"

#include <fmt/core.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "base/thread_clock.h"
#include "base/wakeup.h"
#include "link/interface_traffic.h"
#include "link/tcp/control_socket.h"
#include "link/udp.h"
#include "switch/log_throttle.h"
#include "switch/switch_control.h"
#include "switch/uplink_sockets.h"

namespace netfold::switching {
namespace {

constexpr Nanoseconds kAcceptPause = kSecond / 10;  // after the kernel had no descriptor left
constexpr std::size_t kPathBufferBytes = 1u << 20, kPathProbesAtOnce = 256;
constexpr std::array<std::byte, control::kPathBytesMax> kZeros{};
constexpr const char* kThreadName = "nf-control";
constexpr int kAcceptsMax = 64;            // a round
constexpr std::size_t kServedAtOnce = 64;  // connections, between two looks at what is due

Result<void> check(const SwitchServerOptions& options) {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInvalidArgument, std::move(what)); };
  if (options.require_auth && options.secret.empty()) {
    return wrong("authenticated packets need a secret: give the switch and its workers one");
  }
  if (!(options.heartbeat_s >= control::kHeartbeatSecondsMin && options.heartbeat_s <= control::kHeartbeatSecondsMax)) {
    return wrong(fmt::format("a heartbeat every {} s: it must be {} to {} s", options.heartbeat_s,
                             control::kHeartbeatSecondsMin, control::kHeartbeatSecondsMax));
  }
  if (!options.parent.empty() && options.data.shards > control::kBelowPortsMax) {
    return wrong(
        fmt::format("{} threads below another switch: at most {}", options.data.shards, control::kBelowPortsMax));
  }
  if (options.jobs_max == 0) return wrong("a switch for 0 jobs does nothing: allow at least 1");
  if (options.connections_max == 0) return wrong("a switch for 0 connections does nothing: allow at least 1");
  return {};
}

// A training process may hold the switch: it needs most of its descriptors itself.
std::size_t connections_for(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, wanted);
}

SwitchRules rules_from(const SwitchServerOptions& options, const DataPlane& data_plane, const DataPlaneFactory& factory,
                       std::uint16_t port, std::uint16_t path_port) {
  SwitchRules rules;
  rules.secret = control::Secret::from(options.secret);
  rules.tagged = options.require_auth;
  rules.jobs_max = options.jobs_max;
  rules.memory_max_bytes = options.memory_max_bytes;
  rules.heartbeat = from_seconds(options.heartbeat_s);
  rules.udp_ports = data_plane.udp_ports();
  rules.folds_on_the_way = data_plane.folds_on_the_way();
  rules.first_epoch = static_cast<std::uint16_t>(randombytes_uniform(65536));
  rules.parent = options.parent;
  randombytes_buf(rules.id.data(), rules.id.size());
  rules.port = port;
  rules.path_port = path_port;
  rules.memory_bytes = factory.memory_bytes;
  rules.random = [](std::span<std::byte> bytes) { randombytes_buf(bytes.data(), bytes.size()); };
  return rules;
}

// `address`: of options.parent.
UplinkOptions uplink_from(const SwitchServerOptions& options, link::Address address, bool searches_path) {
  UplinkOptions uplink;
  uplink.parent = options.parent;
  uplink.address = address;
  uplink.secret = options.parent_secret.empty() ? options.secret : options.parent_secret;
  uplink.require_auth = options.require_auth;
  uplink.draw_nonce = [] {
    control::Nonce nonce;
    randombytes_buf(nonce.data(), nonce.size());
    return nonce;
  };
  uplink.mtu = [address] {
    const auto route = link::route_to(address);
    return membership::mtu_to_say(route ? route->mtu : link::Route{}.mtu, address.ip);
  };
  if (searches_path) {
    uplink.path_bytes_max = [address] {
      const auto route = link::route_to(address);
      return std::min(route ? route->mtu : link::Route{}.mtu, control::kPathBytesMax);
    };
  }
  return uplink;
}

}  // namespace

// The control thread and what it owns. The mutex guards what it decides against stats(); only the thread touches
// sockets.
class SwitchServer::Control {
 public:
  Control(SwitchServerOptions options, int listener)
      : options_(std::move(options)),
        listener_(listener),
        address_(link::local_address_of(listener)),
        log_(options_.log),
        uplink_sockets_(options_.bind.ip, options_.data.dscp),
        started_at_(now()) {}

  ~Control() {
    stop(kStopped);
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
    link::Address parent;
    if (!options_.parent.empty()) {
      const auto address = link::parse_address(options_.parent);
      if (!address) return fail(ErrorCode::kInvalidArgument, fmt::format("--parent: {}", address.error().message));
      parent = *address;
      if (parent.ip.is_v4()) data_plane_->set_parent(parent.ip.v4());
    }
    auto rules = rules_from(options_, *data_plane_, factory, address_.port, open_path_link());
    if (const std::size_t least_bytes = smallest_job_bytes(rules); rules.memory_max_bytes < least_bytes) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{} bytes of memory for jobs: a job of two workers needs at "
                                                           "least {} bytes",
                                                           rules.memory_max_bytes, least_bytes));
    }
    control_.emplace(std::move(rules), *data_plane_,
                     SwitchControlOptions{options_.connections_max,
                                          [this](const LogLine& line, Nanoseconds at) { log_.line(line, at); },
                                          uplink_from(options_, parent, path_link_ != nullptr), link::traffic_of});
    for (std::string* const secret : {&options_.secret, &options_.parent_secret}) {  // the rules keep a hash of it
      sodium_memzero(secret->data(), secret->size());
      secret->clear();
    }
    thread_ = std::thread([this] { run(); });
    clock_.emplace(thread_);
    return {};
  }

  void drain(Nanoseconds longest) {
    {
      const std::lock_guard lock(mutex_);
      const Nanoseconds at = now();
      control_->drain(longest < kNever - at ? at + longest : kNever);
    }
    wakeup_.wake();
  }

  void renew_secret(const std::string& secret) {
    {
      const std::lock_guard lock(mutex_);
      control_->renew_secret(*control::Secret::from(secret));
    }
    wakeup_.wake();
  }

  void stop(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (!stopping_) why_ = why;
    }
    stopping_ = true;
    wakeup_.wake();
    if (thread_.joinable()) thread_.join();
  }

  link::Address address() const { return address_; }

  SwitchStats stats() const {
    SwitchStats stats;
    stats.address = link::to_string(address_);
    stats.parent = options_.parent;
    const std::lock_guard lock(mutex_);
    const Nanoseconds at = now();
    stats.uptime_s = to_seconds(at - started_at_);
    stats.udp_ports = data_plane_->udp_ports();
    for (JobSummary& summary : control_->table().jobs()) {
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
    stats.table = control_->table().counters();
    stats.connections = control_->table().connections();
    stats.memory_bytes = control_->table().memory_bytes();
    stats.memory_max_bytes = options_.memory_max_bytes;
    stats.jobs_max = options_.jobs_max;
    stats.is_draining = control_->table().is_draining();
    stats.threads = data_plane_->threads();
    stats.threads.push_back({kThreadName, clock_ ? clock_->seconds() : 0.0, {}});
    return stats;
  }

 private:
  // Opens a socket at the control port's number if that is free, and returns the number. 0: workers do without, since
  // data packets do not pass this machine's sockets, or the socket did not open.
  std::uint16_t open_path_link() {
    if (data_plane_->folds_on_the_way()) return 0;
    link::UdpOptions udp;
    udp.buffer_bytes = kPathBufferBytes;
    udp.road.dscp = options_.data.dscp;
    for (const std::uint16_t port : {address_.port, std::uint16_t{0}}) {
      udp.bind = {address_.ip, port};
      auto opened = link::open_udp(udp);
      if (!opened) continue;
      path_link_ = std::move(*opened);
      return path_link_->local_address().port;
    }
    return 0;
  }

  // Probes of workers go back to them. Those that do not fit into the kernel's queue are lost.
  void answer_path_probes(Nanoseconds at) {
    if (!path_link_) return;
    path_answers_.clear();
    for (const link::Incoming& datagram : path_link_->receive(kPathProbesAtOnce)) {
      if (control_->sends_back(datagram)) {
        path_answers_.push_back({datagram.from, datagram.bytes, {}, {}});
      } else {
        control_->uplinks().on_datagram(datagram.bytes, at);
      }
    }
    path_link_->send(path_answers_);
  }

  // Of this switch, on its way to the switch above.
  void send_path_probes(Nanoseconds at) {
    if (!path_link_) return;
    while (const auto packet = control_->uplinks().next_path_packet(at)) {
      const auto zeros = std::span(kZeros).first(packet->datagram_bytes - packet->head.size());
      const link::Outgoing datagram{packet->to, packet->head, zeros, {}};
      path_link_->send(std::span(&datagram, 1));
    }
  }

  struct Mismatch {
    std::uint16_t job, epoch;
    int rank;
    std::string what;
  };

  void run() {
    set_up_thread(kThreadName, kAnyCore);
    bool told_all = false;
    while (true) {
      wait();
      const std::lock_guard lock(mutex_);
      const Nanoseconds at = now();
      wakeup_.clear();
      serve_ready(at);  // before new connections: a leave comes before the next join
      take_mismatches();
      answer_path_probes(at);
      if (stopping_ && !told_all) {
        told_all = true;
        control_->stop(why_);
      } else if (!stopping_) {
        accept_new(at);
        control_->on_time(at);
      }
      control_->settle(at);
      send_path_probes(at);
      uplink_sockets_.turn(control_->uplinks(), at);
      if (control_->table().is_drained() && options_.on_drained) std::exchange(options_.on_drained, nullptr)();
      if (told_all && control_->is_done()) return;
    }
  }

  // Members first. Many strangers must not delay the heartbeats to the members.
  void serve_ready(Nanoseconds at) {
    std::ranges::stable_partition(ready_, [&](ConnectionId id) { return control_->table().has_joined(id); });
    for (std::size_t served = 0; served < ready_.size(); ++served) {
      control_->serve(ready_[served], at);
      if (stopping_ || served % kServedAtOnce != kServedAtOnce - 1) continue;
      control_->on_time(now());
      control_->settle(now());
    }
  }

  // Sleeps until something is to be done; leaves the connections that are ready in ready_.
  void wait() {
    polled_.assign(1, {wakeup_.descriptor(), POLLIN, 0});
    const bool accepting = !stopping_ && now() >= accept_again_at_;
    polled_.push_back({accepting ? listener_ : -1, POLLIN, 0});
    polled_.push_back({path_link_ ? path_link_->descriptor() : -1, POLLIN, 0});
    const std::size_t first = polled_.size();
    ready_.clear();
    for (const auto& [id, peer] : control_->peers()) {
      ready_.push_back(id);
      polled_.push_back(
          {peer.link->descriptor(), static_cast<short>(POLLIN | (peer.link->wants_to_write() ? POLLOUT : 0)), 0});
    }
    uplink_sockets_.add_polls(control_->uplinks(), polled_);  // behind the others; whatever comes is read every round
    const Nanoseconds deadline = std::min(control_->deadline(), accepting || stopping_ ? kNever : accept_again_at_);
    wait_for(polled_, deadline);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ready_.size(); ++i) {
      if (polled_[first + i].revents != 0) ready_[kept++] = ready_[i];
    }
    ready_.resize(kept);
  }

  void take_mismatches() {
    std::vector<Mismatch> mismatches;
    {
      const std::lock_guard lock(mismatches_mutex_);
      mismatches.swap(mismatches_);
    }
    for (const auto& m : mismatches) control_->on_mismatch(m.job, m.epoch, m.rank, m.what);
  }

  // A machine with several addresses in one network sends datagrams from one of them. A worker that has reached another
  // must know, or it takes them for a stranger's.
  std::optional<IpAddress> source_ip(int descriptor, link::Address peer) const {
    if (!address_.ip.is_any()) return std::nullopt;  // the switch sends from the address that it is bound to
    const auto route = link::route_to(peer);
    if (!route || route->local_ip == link::local_address_of(descriptor).ip) return std::nullopt;
    return route->local_ip;
  }

  void accept_new(Nanoseconds at) {
    if (at < accept_again_at_) return;
    for (int i = 0; i < kAcceptsMax; ++i) {
      link::SocketAddress from;
      socklen_t size = link::SocketAddress::kSizeMax;
      const int descriptor = accept4(listener_, from.get(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (descriptor < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if ((errno == EMFILE || errno == ENFILE) && control_->make_room()) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
          log_.line({LogLevel::kWarning, fmt::format("cannot accept a connection: {}", std::strerror(errno)),
                     LogSubject::kStranger},
                    at);
          accept_again_at_ = at + kAcceptPause;
        }
        return;
      }
      const link::Address peer = from.address();
      const auto source = source_ip(descriptor, peer);
      const std::string interface = link::interface_with(source.value_or(link::local_address_of(descriptor).ip));
      control_->accept(std::make_unique<link::ControlSocket>(descriptor), peer.ip, at, source, interface);
    }
  }

  SwitchServerOptions options_;
  int listener_;
  link::Address address_;
  LogThrottle log_;
  UplinkSockets uplink_sockets_;
  Nanoseconds started_at_;

  Wakeup wakeup_;
  std::mutex mismatches_mutex_;
  std::vector<Mismatch> mismatches_;
  std::atomic<bool> stopping_{false};
  std::string why_;  // it stops

  std::unique_ptr<DataPlane> data_plane_;  // its threads use what is above
  mutable std::mutex mutex_;
  std::optional<SwitchControl> control_;
  Nanoseconds accept_again_at_ = 0;
  std::unique_ptr<link::Link> path_link_;
  std::vector<link::Outgoing> path_answers_;
  std::vector<pollfd> polled_;
  std::vector<ConnectionId> ready_;
  std::thread thread_;
  std::optional<ThreadClock> clock_;
};

SwitchServer::SwitchServer(std::unique_ptr<Control> control) : control_(std::move(control)) {}
SwitchServer::~SwitchServer() = default;

Result<std::unique_ptr<SwitchServer>> SwitchServer::start(SwitchServerOptions options,
                                                          const DataPlaneFactory& factory) {
  if (auto valid = check(options); !valid) return tl::unexpected(valid.error());
  if (sodium_init() < 0) return fail(ErrorCode::kSystem, "libsodium finds no source of randomness on this machine");
  options.data.bind.ip = options.bind.ip;
  options.data.jobs_max = options.jobs_max;
  options.connections_max = connections_for(options.connections_max);
  auto listener = link::listen_at(options.bind, {.dscp = options.data.dscp, .interface = {}});
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
void SwitchServer::drain(Nanoseconds longest) {
  control_->drain(longest);
}
void SwitchServer::renew_secret(const std::string& secret) {
  control_->renew_secret(secret);
}
void SwitchServer::stop(const std::string& why) {
  control_->stop(why);
}

}  // namespace netfold::switching
