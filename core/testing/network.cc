#include "testing/network.h"

#include <algorithm>
#include <utility>

namespace netfold::testing {
namespace {

constexpr std::size_t kQueueMost = 4096;  // datagrams that wait for their reader
constexpr Nanoseconds kNarrowQueue = 20 * kMillisecond;
constexpr Nanoseconds kRetransmission = 200 * kMillisecond;  // of connections, over a blocked way
constexpr Nanoseconds kConnectAgain = kSecond;               // a connection attempt is repeated
constexpr int kConnectTries = 3;

}  // namespace

class SimulatedLink final : public link::Link {
 public:
  SimulatedLink(Network& network, link::Address local) : network_(network), local_(local) {}
  ~SimulatedLink() override { network_.sockets_.erase({local_.ip, local_.port}); }
  SimulatedLink(const SimulatedLink&) = delete;

  std::size_t send(std::span<const link::Outgoing> batch) override {
    std::size_t taken = batch.size();
    if (taken > 0 && network_.prng_.chance(network_.weather_.full)) taken = network_.prng_.below(taken);
    for (const link::Outgoing& datagram : batch.first(taken)) {
      std::vector<std::byte> bytes;
      bytes.reserve(datagram.size_bytes());
      for (const auto piece : {datagram.head, datagram.body, datagram.tail}) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
      }
      ++stats_.sent_packets;
      stats_.sent_bytes += bytes.size();
      network_.transmit(local_, datagram.to, std::move(bytes));
    }
    return taken;
  }

  std::span<const link::Incoming> receive(std::size_t most) override {
    auto& queue = network_.sockets_.at({local_.ip, local_.port}).queue;
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, queue.size()));
    held_.assign(std::make_move_iterator(queue.begin()), std::make_move_iterator(queue.begin() + count));
    queue.erase(queue.begin(), queue.begin() + count);
    received_.clear();
    for (const auto& datagram : held_) {
      received_.push_back({datagram.from, datagram.bytes});
      ++stats_.received_packets;
      stats_.received_bytes += datagram.bytes.size();
    }
    return received_;
  }

  int descriptor() const override { return -1; }
  link::Address local_address() const override { return local_; }
  const link::LinkStats& stats() const override { return stats_; }

 private:
  Network& network_;
  link::Address local_;
  link::LinkStats stats_;
  std::vector<Network::Datagram> held_;  // what receive() handed out last
  std::vector<link::Incoming> received_;
};

class SimulatedControlLink final : public link::ControlLink {
 public:
  SimulatedControlLink(Network& network, std::shared_ptr<Network::Connection> connection, int end)
      : network_(network), connection_(std::move(connection)), end_(end) {}
  ~SimulatedControlLink() override {
    shut_down_writing();
    own().is_held = false;
    own().on_news = nullptr;
  }
  SimulatedControlLink(const SimulatedControlLink&) = delete;

  Outcome read(const std::function<void(std::string_view)>& on_line) override {
    for (const std::string& bytes : std::exchange(own().arrived, {})) {
      if (!lines_.feed(bytes, on_line)) return {State::kGarbage, "sent an endless line"};
    }
    if (own().has_ended) return {State::kClosed, "closed its connection"};
    return state();
  }
  Outcome write(std::string_view bytes) override {
    if (!bytes.empty() && !own().is_reset) network_.send(connection_, 1 - end_, std::string(bytes), false);
    return state();
  }
  Outcome flush() override { return state(); }
  bool wants_to_write() const override { return false; }
  bool has_unconfirmed() const override {
    const Network::End& peer = connection_->ends[1 - end_];
    return !peer.on_the_way.empty() || (own().is_unconfirmed && !network_.is_open(peer.ip, own().ip));
  }
  Nanoseconds usual_confirmation() const override { return network_.usual_confirmation(); }
  void shut_down_writing() override {
    if (std::exchange(own().has_shut, true)) return;
    network_.send(connection_, 1 - end_, {}, true);
  }
  int descriptor() const override { return -1; }

  void set_on_news(Network::OnNews on_news) { own().on_news = std::move(on_news); }

 private:
  Network::End& own() const { return connection_->ends[end_]; }
  Outcome state() const {
    return own().is_reset ? Outcome{State::kClosed, "lost its connection: Connection reset by peer"} : Outcome{};
  }

  Network& network_;
  std::shared_ptr<Network::Connection> connection_;
  int end_;
  LineBuffer lines_;
};

void on_news_of(link::ControlLink& link, Network::OnNews on_news) {
  static_cast<SimulatedControlLink&>(link).set_on_news(std::move(on_news));
}

bool Network::is_off(IpAddress ip) const {
  const auto found = machines_.find(ip);
  return found != machines_.end() && found->second.is_off;
}

Nanoseconds Network::usual_confirmation() const {
  return std::max(kRetransmission, 2 * weather_.delay_max);
}

Nanoseconds Network::delay() {
  const auto spread = static_cast<std::uint64_t>(weather_.delay_max - weather_.delay_min) + 1;
  return weather_.delay_min + static_cast<Nanoseconds>(prng_.below(spread));
}

void Network::block(IpAddress from, IpAddress to, bool is_blocked) {
  if (is_blocked) {
    blocked_.insert({from, to});
  } else {
    blocked_.erase({from, to});
  }
}

void Network::switch_off(IpAddress ip) {
  machines_[ip].is_off = true;
  for (const auto& weak : connections_) {
    const auto connection = weak.lock();
    if (!connection) continue;
    for (End& end : connection->ends) end.is_dead = end.is_dead || end.ip == ip;
  }
}

void Network::cut_connections(IpAddress ip, std::optional<IpAddress> other, Cut which) {
  for (const auto& weak : connections_) {
    const auto connection = weak.lock();
    if (!connection || (connection->stream ? which == Cut::kLines : which == Cut::kStreams)) continue;
    const auto [one, two] = std::pair(connection->ends[0].ip, connection->ends[1].ip);
    const bool is_meant = other ? std::minmax(one, two) == std::minmax(ip, *other) : one == ip || two == ip;
    if (!is_meant) continue;
    for (int end : {0, 1}) reset(connection, end, delay());
  }
}

std::size_t Network::connections_of(IpAddress ip) const {
  std::size_t count = 0;
  for (const auto& weak : connections_) {
    const auto connection = weak.lock();
    if (!connection) continue;
    for (const End& end : connection->ends) count += end.ip == ip && end.is_held && !end.is_dead;
  }
  return count;
}

// --- Datagrams ---

std::unique_ptr<link::Link> Network::open(link::Address local, OnNews on_news) {
  sockets_[{local.ip, local.port}] = {{}, std::move(on_news)};
  return std::make_unique<SimulatedLink>(*this, local);
}

void Network::transmit(link::Address from, link::Address to, std::vector<std::byte> bytes) {
  if (weather_.forge > 0 && bytes.size() > 20 && prng_.chance(weather_.forge)) {
    std::vector<std::byte> forged = bytes;
    forged[16 + prng_.below(forged.size() - 16)] ^= static_cast<std::byte>(1 + prng_.below(255));
    const link::Address liar{weather_.spoofs ? from.ip : from.ip.v4() + 0x10000, from.port};
    deliver(liar, to, weather_.delay_min / 2, std::move(forged));
  }
  if (prng_.chance(weather_.late)) {
    deliver(from, to, static_cast<Nanoseconds>(prng_.below(static_cast<std::uint64_t>(weather_.late_max))), bytes);
  }
  const double fate = prng_.unit();
  if (fate < weather_.loss) return;
  if (fate < weather_.loss + weather_.duplicate) deliver(from, to, delay(), bytes);
  Nanoseconds after = delay();
  const bool is_held = fate >= weather_.loss + weather_.duplicate && prng_.chance(weather_.hold);
  if (is_held) after += static_cast<Nanoseconds>(prng_.below(static_cast<std::uint64_t>(weather_.hold_max) + 1));
  for (const bool is_from : {true, false}) {
    const auto waits = this->waits(is_from ? from.ip : to.ip, is_from, bytes.size());
    if (!waits) return;
    after += *waits;
  }
  deliver(from, to, after, std::move(bytes));
}

// At a narrow way to or from this machine, its own time included. None: it is lost.
std::optional<Nanoseconds> Network::waits(IpAddress ip, bool is_from, std::size_t size_bytes) {
  const auto found = narrow_.find(ip);
  if (found == narrow_.end()) return 0;
  Nanoseconds& free_at = found->second.free_at[is_from ? 1 : 0];
  const Nanoseconds begins = std::max(free_at, timeline_.now());
  if (begins - timeline_.now() > kNarrowQueue) return std::nullopt;
  free_at = begins + from_seconds(static_cast<double>(size_bytes) / found->second.bytes_per_s);
  return free_at - timeline_.now();
}

void Network::deliver(link::Address from, link::Address to, Nanoseconds after, std::vector<std::byte> bytes) {
  timeline_.after(after, [this, from, to, bytes = std::move(bytes)]() mutable {
    if (is_blocked(from.ip, to.ip) || is_off(to.ip)) return;
    const auto socket = sockets_.find({to.ip, to.port});
    if (socket == sockets_.end() || socket->second.queue.size() >= kQueueMost) return;
    socket->second.queue.push_back({from, std::move(bytes)});
    socket->second.on_news();
  });
}

// --- Connections ---

void Network::connect(IpAddress from, link::Address to, OnConnect on_connect) {
  timeline_.after(delay() + delay(), [this, from, to, on_connect = std::move(on_connect)] {
    if (is_blocked(from, to.ip) || is_blocked(to.ip, from) || is_off(to.ip) || is_off(from)) return;
    const auto listener = listeners_.find({to.ip, to.port});
    if (listener == listeners_.end()) return on_connect(nullptr);
    auto [own, its] = connect_lines(from, to.ip);
    listener->second(std::move(its), from);
    on_connect(std::move(own));
  });
}

std::array<std::unique_ptr<link::ControlLink>, 2> Network::connect_lines(IpAddress ip, IpAddress other) {
  const auto connection = connect_now(ip, other, {});
  return {std::make_unique<SimulatedControlLink>(*this, connection, 0),
          std::make_unique<SimulatedControlLink>(*this, connection, 1)};
}

std::shared_ptr<Network::Connection> Network::connect_now(IpAddress ip, IpAddress other,
                                                          std::optional<StreamShape> stream) {
  auto connection = std::make_shared<Connection>();
  connection->ends[0].ip = ip;
  connection->ends[1].ip = other;
  connection->stream = stream;
  std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
  connections_.push_back(connection);
  return connection;
}

void Network::send(const std::shared_ptr<Connection>& connection, int to, std::string bytes, bool is_end) {
  End& end = connection->ends[to];
  if (connection->ends[1 - to].is_dead) return;
  const Nanoseconds earliest = end.on_the_way.empty() ? 0 : end.on_the_way.back().due;
  end.on_the_way.push_back({std::max(earliest, timeline_.now() + delay()), std::move(bytes), is_end});
  timeline_.at(end.on_the_way.back().due, [this, connection, to] { arrive(connection, to); });
}

void Network::arrive(const std::shared_ptr<Connection>& connection, int to) {
  End& end = connection->ends[to];
  if (end.on_the_way.empty() || end.on_the_way.front().due > timeline_.now()) return;
  const IpAddress from = connection->ends[1 - to].ip;
  if (is_blocked(from, end.ip)) {  // the sender's kernel tries again
    end.on_the_way.front().due = timeline_.now() + kRetransmission;
    for (Segment& segment : end.on_the_way) segment.due = std::max(segment.due, end.on_the_way.front().due);
    timeline_.after(kRetransmission, [this, connection, to] { arrive(connection, to); });
    return;
  }
  connection->ends[1 - to].is_unconfirmed = !is_open(end.ip, from);
  if (end.is_dead && is_off(end.ip)) return end.on_the_way.clear();
  bool has_news = false;
  while (!end.on_the_way.empty() && end.on_the_way.front().due <= timeline_.now()) {
    const Segment segment = std::move(end.on_the_way.front());
    end.on_the_way.erase(end.on_the_way.begin());
    if (end.is_dead || (!end.is_held && !segment.is_end)) {
      reset(connection, 1 - to, delay());
      continue;
    }
    if (segment.is_end) {
      end.has_ended = true;
    } else {
      end.arrived.push_back(segment.bytes);
    }
    has_news = true;
  }
  if (has_news && end.on_news) end.on_news();
}

void Network::reset(const std::shared_ptr<Connection>& connection, int which, Nanoseconds after) {
  timeline_.after(after, [this, connection, which] {
    End& end = connection->ends[which];
    if (end.is_dead || end.is_reset || is_blocked(connection->ends[1 - which].ip, end.ip)) return;
    end.is_reset = true;
    end.on_the_way.clear();
    if (end.on_news) end.on_news();
  });
}

}  // namespace netfold::testing
