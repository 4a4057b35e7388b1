// Streams of bytes between ranks. As TCP carries them: a buffer at each end, a window between, and pieces of any size.
// Or over shared memory: what is written is there at once, and nobody is told that its writer has died.
#include <algorithm>
#include <cstring>
#include <utility>

#include "testing/network.h"

namespace netfold::testing {
namespace {

constexpr double kSlowPiece = 0.05;  // seconds that a piece takes at most, however slow the stream

}  // namespace

// As link/tcp/tcp_stream.cc over one connection, or link/shm/shm_stream.cc: what they promise, and what their user must
// not rely on.
class SimulatedStream final : public link::StreamLink {
 public:
  SimulatedStream(Network& network, std::shared_ptr<Network::Connection> connection, int end,
                  const Network::OnNews& on_news)
      : network_(network),
        connection_(std::move(connection)),
        end_(end),
        out_(connection_->stream->buffer_bytes),
        in_(connection_->stream->buffer_bytes) {
    // A process polls for what it has asked for, and for room as long as it has something to send.
    own().on_news = [this, on_news] {
      if (is_armed_ || unsent() > 0) on_news();
    };
    own().on_room = [this, on_news] {
      if (unsent() > 0 || (is_armed_for_room_ && has_good_room())) on_news();
    };
  }
  // A kernel that is told to close forgets what it has not sent if its process has not read everything.
  ~SimulatedStream() override {
    own().is_held = false;
    own().on_news = own().on_room = nullptr;
    if (is_memory()) return;
    if (own().arrived.empty()) {
      own().is_closing = true;
      network_.send_queue(connection_, end_);
    } else {
      own().queue.clear();
      network_.reset(connection_, 1 - end_, network_.delay());
    }
  }
  SimulatedStream(const SimulatedStream&) = delete;

  std::span<std::byte> writable() override {
    if (out_end_ == out_.size()) flush();
    std::memmove(out_.data(), out_.data() + out_begin_, unsent());
    out_end_ -= std::exchange(out_begin_, 0);
    const auto free = std::span(out_).subspan(out_end_);
    return is_memory() ? free.first(std::min(free.size(), room())) : free;
  }
  void commit(std::size_t bytes) override {
    out_end_ += bytes;
    committed_ += bytes;
    if (is_memory()) flush();
  }
  void flush() override {
    if (unsent() == 0 || is_broken_) return;
    if (own().is_reset) return lose("Broken pipe");
    const std::size_t count = std::min(unsent(), room());
    own().queue.append(reinterpret_cast<const char*>(out_.data()) + out_begin_, count);
    out_begin_ += count;
    stats_.sent_bytes += count;
    network_.send_queue(connection_, end_);
  }
  bool has_unsent() const override { return unsent() > 0 && !is_broken_; }

  std::span<const std::byte> readable() override {
    if (!ended_) receive_some();
    return std::span(in_).first(in_used_);
  }
  void consume(std::size_t bytes) override {
    in_used_ -= bytes;
    consumed_ += bytes;
    std::memmove(in_.data(), in_.data() + bytes, in_used_);
  }

  bool arm(bool for_data, bool for_room) override {
    is_armed_ = for_data && in_used_ < in_.size() && !ended_;
    is_armed_for_room_ = for_room && is_memory();
    const bool has_news = !own().arrived.empty() || own().has_ended || own().is_reset;
    return (is_armed_ && has_news) || (for_room && (is_memory() ? has_good_room() : unsent() == 0));
  }

  std::uint64_t committed() const override { return committed_; }
  std::uint64_t consumed() const override { return consumed_; }
  const std::optional<std::string>& ended() const override { return ended_; }
  const char* kind() const override { return is_memory() ? "shm" : "tcp"; }
  const link::StreamStats& stats() const override { return stats_; }

 private:
  Network::End& own() const { return connection_->ends[end_]; }
  Network::End& peer() const { return connection_->ends[1 - end_]; }
  std::size_t unsent() const { return out_end_ - out_begin_; }
  bool is_memory() const { return connection_->stream->is_memory; }
  std::size_t room() const { return connection_->stream->window_bytes - own().queue.size() - peer().incoming; }
  bool has_good_room() const { return room() >= connection_->stream->window_bytes / 4; }

  void receive_some() {
    auto& arrived = own().arrived;
    std::size_t taken = 0;
    while (!arrived.empty() && in_used_ < in_.size()) {
      std::string& first = arrived.front();
      const std::size_t count = std::min(first.size(), in_.size() - in_used_);
      std::memcpy(in_.data() + in_used_, first.data(), count);
      in_used_ += count;
      taken += count;
      first.erase(0, count);
      if (first.empty()) arrived.erase(arrived.begin());
    }
    if (taken > 0) {
      own().incoming -= taken;
      stats_.received_bytes += taken;
      network_.timeline_.after(is_memory() ? 0 : network_.delay(), [connection = connection_, to = 1 - end_] {
        if (const auto& on_room = connection->ends[to].on_room) on_room();
      });
    }
    if (!arrived.empty() || taken > 0) return;
    if (own().is_reset) return lose("Connection reset by peer");
    if (own().has_ended) ended_ = "closed its connection";
  }

  void lose(const char* why) {
    is_broken_ = true;
    ended_ = std::string("lost its connection: ") + why;
  }

  Network& network_;
  std::shared_ptr<Network::Connection> connection_;
  int end_;
  std::vector<std::byte> out_, in_;
  std::size_t out_begin_ = 0, out_end_ = 0, in_used_ = 0;  // of out_: what was committed and not taken
  std::uint64_t committed_ = 0, consumed_ = 0;
  bool is_armed_ = false, is_armed_for_room_ = false, is_broken_ = false;
  std::optional<std::string> ended_;
  link::StreamStats stats_;
};

std::array<std::unique_ptr<link::StreamLink>, 2> Network::connect_streams(IpAddress ip, IpAddress other,
                                                                          const StreamShape& shape,
                                                                          const std::array<OnNews, 2>& on_news) {
  const auto connection = connect_now(ip, other, shape);
  return {std::make_unique<SimulatedStream>(*this, connection, 0, on_news[0]),
          std::make_unique<SimulatedStream>(*this, connection, 1, on_news[1])};
}

double Network::speed_of(const Connection& connection) const {
  double speed = connection.stream->bytes_per_s;
  for (const End& end : connection.ends) {
    const auto found = limits_.find(end.ip);
    const double limit = found == limits_.end() ? 0 : found->second;
    if (limit > 0) speed = speed > 0 ? std::min(speed, limit) : limit;
  }
  return speed;
}

// What the sender's kernel does by itself, also after the process is gone.
void Network::send_queue(const std::shared_ptr<Connection>& connection, int from) {
  End &sender = connection->ends[from], &reader = connection->ends[1 - from];
  if (connection->stream->is_memory) {
    if (sender.queue.empty()) return;
    reader.incoming += sender.queue.size();
    reader.arrived.push_back(std::exchange(sender.queue, {}));
    if (reader.on_news) reader.on_news();
    return;
  }
  while (!sender.queue.empty() && !sender.is_sending && !sender.is_dead && !sender.is_reset) {
    const double speed = speed_of(*connection);
    std::size_t count = 1 + prng_.below(std::min(connection->stream->piece_max, sender.queue.size()));
    if (speed > 0) count = std::min(count, 1 + static_cast<std::size_t>(speed * kSlowPiece));
    std::string piece = sender.queue.substr(0, count);
    sender.queue.erase(0, count);
    reader.incoming += count;
    send(connection, 1 - from, std::move(piece), false);
    if (speed == 0) continue;
    sender.is_sending = true;
    timeline_.after(from_seconds(static_cast<double>(count) / speed), [this, connection, from] {
      connection->ends[from].is_sending = false;
      send_queue(connection, from);
    });
  }
  if (!sender.queue.empty() || !sender.is_closing || sender.is_reset || std::exchange(sender.has_shut, true)) return;
  send(connection, 1 - from, {}, true);
}

}  // namespace netfold::testing
