#include "link/tcp/tcp_stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "link/mirrored_memory.h"

namespace netfold::link {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;  // each direction
constexpr std::uint64_t kStripeBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kNoPace = ~std::uint64_t{0}, kPaceMin = 1500;  // bytes/s
constexpr std::size_t kPiecesMax = 8;                                  // stripes that a system call moves
constexpr std::size_t kWorthReading = std::size_t{64}
                                      << 10;  // with less than this at hand the kernel is asked for more

// Positions only grow; a position modulo the size is a place.
struct Buffer {
  std::unique_ptr<MirroredMemory> memory;
  std::uint64_t head = 0, tail = 0;

  std::size_t used() const { return head - tail; }
  std::size_t free() const { return memory->size_bytes() - used(); }
  std::byte* first_used() const { return memory->data() + tail % memory->size_bytes(); }
  std::byte* first_free() const { return memory->data() + head % memory->size_bytes(); }
  std::byte* at(std::uint64_t position) const { return memory->data() + position % memory->size_bytes(); }
};

// One connection's share of the positions of a direction.
class Share {
 public:
  Share(std::size_t index, std::size_t shares)
      : next_(index * kStripeBytes), skip_(shares == 1 ? 0 : (shares - 1) * kStripeBytes) {}

  std::uint64_t next() const { return next_; }  // every byte of ours before it has been moved

  // Ours before `end`, at most kPiecesMax stripes.
  std::span<const iovec> pieces(const Buffer& buffer, std::uint64_t end) {
    std::size_t count = 0;
    for (std::uint64_t from = next_; from < end && count < pieces_.size(); ++count) {
      const std::uint64_t to = skip_ == 0 ? end : std::min(end, from / kStripeBytes * kStripeBytes + kStripeBytes);
      pieces_[count] = {buffer.at(from), to - from};
      from = to % kStripeBytes == 0 ? to + skip_ : to;
    }
    return std::span(pieces_).first(count);
  }

  void advance(std::uint64_t bytes) {
    if (skip_ == 0) {
      next_ += bytes;
      return;
    }
    while (bytes > 0) {
      const std::uint64_t step = std::min(bytes, kStripeBytes - next_ % kStripeBytes);
      bytes -= step;
      next_ += step;
      if (next_ % kStripeBytes == 0) next_ += skip_;
    }
  }

 private:
  std::uint64_t next_;
  std::uint64_t skip_;  // from the end of a stripe to our next one; 0: all is ours
  std::array<iovec, kPiecesMax> pieces_{};
};

struct Connection {
  Descriptor socket;
  Share sends, receives;
  bool is_open = true;  // for reading
};

class TcpStream final : public StreamLink {
 public:
  TcpStream(std::vector<Descriptor> sockets, std::unique_ptr<MirroredMemory> out, std::unique_ptr<MirroredMemory> in)
      : out_{std::move(out)}, in_{std::move(in)} {
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      const Share share(i, sockets.size());
      connections_.push_back({std::move(sockets[i]), share, share});
    }
  }

  std::span<std::byte> writable() override {
    if (out_.free() == 0) send_some();
    return {out_.first_free(), out_.free()};
  }
  void commit(std::size_t bytes) override { out_.head += bytes; }

  std::span<const std::byte> readable() override {
    if (in_.used() < kWorthReading && !ended_) receive_some();
    return {in_.first_used(), in_.used()};
  }
  void consume(std::size_t bytes) override { in_.tail += bytes; }

  void flush() override { send_some(); }
  bool has_unsent() const override { return out_.used() > 0 && !is_broken_; }

  // The descriptors wake the reader. Data that came since readable() was called last shows there too.
  bool arm(bool for_data, bool for_room) override {
    is_armed_for_data_ = for_data && in_.free() > 0 && !ended_;
    return for_room && out_.free() == out_.memory->size_bytes();
  }
  void add_polls(std::vector<pollfd>& polls) const override {
    for (const Connection& each : connections_) {
      const bool may_receive = each.is_open && each.receives.next() < in_.tail + in_.memory->size_bytes();
      const auto events = static_cast<short>((is_armed_for_data_ && may_receive ? POLLIN : 0) |
                                             (each.sends.next() < out_.head && !is_broken_ ? POLLOUT : 0));
      if (events != 0) polls.push_back({each.socket.get(), events, 0});
    }
  }

  // The kernel spreads the packets, so that flows that end at one port do not fill its queue in bursts.
  void pace(double bytes_s) override {
    const double each = bytes_s / static_cast<double>(connections_.size());
    const std::uint64_t rate = each > 0 ? std::max(static_cast<std::uint64_t>(each), kPaceMin) : kNoPace;
    if (rate == pace_) return;
    pace_ = rate;
    for (const Connection& connection : connections_) {
      setsockopt(connection.socket.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    }
  }

  std::uint64_t committed() const override { return out_.head; }
  std::uint64_t consumed() const override { return in_.tail; }
  const std::optional<std::string>& ended() const override { return ended_; }
  const char* kind() const override { return "tcp"; }
  const StreamStats& stats() const override { return stats_; }

 private:
  void send_some() {
    for (Connection& each : connections_) {
      while (each.sends.next() < out_.head && !is_broken_) {
        msghdr message = message_of(each.sends.pieces(out_, out_.head));
        const ssize_t sent = sendmsg(each.socket.get(), &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (sent < 0) return lose(errno);
        each.sends.advance(static_cast<std::uint64_t>(sent));
        stats_.sent_bytes += static_cast<std::size_t>(sent);
      }
    }
    out_.tail = std::min(out_.head, behind(&Connection::sends));
  }

  // One piece from each: what is left over is fetched when this has been worked on, while it is in the cache.
  void receive_some() {
    const std::uint64_t end = in_.tail + in_.memory->size_bytes();
    for (Connection& each : connections_) {
      if (each.is_open && each.receives.next() < end && !is_broken_) receive_from(each, end);
    }
    in_.head = std::min(end, behind(&Connection::receives));
    // A connection that was closed ends the stream once its byte is the next.
    for (const Connection& each : connections_) {
      if (!each.is_open && each.receives.next() == in_.head && !ended_) ended_ = "closed its connection";
    }
  }

  void receive_from(Connection& from, std::uint64_t end) {
    for (;;) {
      msghdr message = message_of(from.receives.pieces(in_, end));
      const ssize_t got = recvmsg(from.socket.get(), &message, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got < 0) return lose(errno);
      from.is_open = got > 0;
      from.receives.advance(static_cast<std::uint64_t>(got));
      stats_.received_bytes += static_cast<std::size_t>(got);
      return;
    }
  }

  static msghdr message_of(std::span<const iovec> pieces) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return message;
  }

  // Up to here every connection has moved its part.
  std::uint64_t behind(Share Connection::*share) const {
    std::uint64_t least = UINT64_MAX;
    for (const Connection& each : connections_) least = std::min(least, (each.*share).next());
    return least;
  }

  void lose(int error) {
    is_broken_ = true;
    ended_ = std::string("lost its connection: ") + std::strerror(error);
  }

  std::vector<Connection> connections_;
  Buffer out_, in_;
  bool is_armed_for_data_ = false, is_broken_ = false;
  std::optional<std::string> ended_;
  std::uint64_t pace_ = kNoPace;
  StreamStats stats_;
};

}  // namespace

Result<std::unique_ptr<StreamLink>> tcp_stream(std::vector<Descriptor> sockets) {
  const int on = 1;
  for (const Descriptor& socket : sockets) {
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  }
  auto out = MirroredMemory::allocate(kBufferBytes), in = MirroredMemory::allocate(kBufferBytes);
  if (out && in) return std::make_unique<TcpStream>(std::move(sockets), std::move(out), std::move(in));
  return fail(ErrorCode::kSystem, std::string("cannot map buffers for a connection: ") + std::strerror(errno));
}

}  // namespace netfold::link
