#include "stripes.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/bytes.h"

namespace netfold::nccl {
namespace {

constexpr std::size_t kChunkMin = std::size_t{64} << 10, kChunkMax = std::size_t{1} << 20;
// Bytes that a connection may hold unsent. More would only wait there while another connection has room.
constexpr int kUnsentMax = 64 << 10;
constexpr std::uint32_t kChunkMark = 0x6e666368;  // "nfch"
constexpr Nanoseconds kLookPeriod = kSecond, kSilenceMax = 30 * kSecond;
constexpr int kKeepaliveIdleSeconds = 10, kKeepaliveIntervalSeconds = 5, kKeepaliveProbes = 3;

void set_option(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

void write_header(std::span<std::byte> to, const ChunkHeader& chunk) {
  wire::put_big(to, 0, chunk.message);
  wire::put_big(to, 8, chunk.message_bytes);
  wire::put_big(to, 16, chunk.offset);
  wire::put_big(to, 24, chunk.bytes);
  wire::put_big(to, 28, kChunkMark);
}

std::optional<ChunkHeader> read_header(std::span<const std::byte> from) {
  if (wire::get_big<std::uint32_t>(from, 28) != kChunkMark) return std::nullopt;
  return ChunkHeader{wire::get_big<std::uint64_t>(from, 0), wire::get_big<std::uint64_t>(from, 8),
                     wire::get_big<std::uint64_t>(from, 16), wire::get_big<std::uint32_t>(from, 24)};
}

msghdr message_of(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return message;
}

}  // namespace

Stripes::Stripes(std::vector<link::Descriptor> sockets, std::string peer, Nanoseconds timeout)
    : peer_(std::move(peer)), timeout_(timeout), last_move_(now()) {
  for (link::Descriptor& socket : sockets) {
    set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket.get(), SOL_SOCKET, SO_KEEPALIVE, 1);  // a machine that vanished is noticed within 30 s
    set_option(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
    set_option(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
    set_option(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
    connections_.push_back({.socket = std::move(socket)});
  }
}

Request* Stripes::post(void* data, std::size_t bytes) {
  Request& request = of(posted_);
  if (request.is_busy) return nullptr;
  request = {.owner = this, .is_busy = true, .data = static_cast<std::byte*>(data), .bytes = bytes};
  if (std::ranges::count_if(requests_, &Request::is_busy) == 1) last_move_ = now();  // nothing was awaited until now
  ++posted_;
  return &request;
}

Result<bool> Stripes::test(Request& request) {
  if (!failure_ && !request.is_whole()) {
    const auto moved = move();
    if (!moved) {
      failure_ = moved.error();
    } else if (const Nanoseconds time = now(); *moved) {
      last_move_ = time;
    } else if (const auto heard = check_silence(time); !heard) {
      failure_ = heard.error();
    }
  }
  if (request.is_whole()) {
    request.is_busy = false;
    return true;
  }
  if (failure_) return tl::unexpected(*failure_);
  return false;
}

tl::unexpected<Error> Stripes::lost(const std::string& why) const {
  return fail(ErrorCode::kPeerFailed, fmt::format("the rank at {} {}", peer_, why));
}

// A living machine acknowledges probes, however long its rank computes.
Result<void> Stripes::check_silence(Nanoseconds now) {
  if (now < std::max(next_look_, last_move_ + kLookPeriod)) return {};
  next_look_ = now + kLookPeriod;
  if (now - last_move_ > timeout_) {
    return lost(fmt::format("has made no progress for {:.0f} s (NETFOLD_TIMEOUT_S): look whether it hangs",
                            to_seconds(now - last_move_)));
  }
  for (const Connection& each : connections_) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(each.socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
        info.tcpi_last_ack_recv * kMillisecond > kSilenceMax) {
      return lost(
          fmt::format("has not answered for {} s: look whether its machine is up", info.tcpi_last_ack_recv / 1000));
    }
  }
  return {};
}

std::size_t Stripes::pieces_of(Connection& connection, std::byte* data, std::array<iovec, 2>& pieces) {
  pieces[0] = {connection.header.data() + connection.header_moved, connection.header.size() - connection.header_moved};
  pieces[1] = {data + connection.chunk.offset + connection.chunk_moved,
               connection.chunk.bytes - connection.chunk_moved};
  return pieces[0].iov_len + pieces[1].iov_len;
}

Sender::Sender(std::vector<link::Descriptor> sockets, std::string peer, Nanoseconds timeout)
    : Stripes(std::move(sockets), std::move(peer), timeout) {
  for (const Connection& each : connections()) {
    set_option(each.socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentMax);
  }
}

// One call a connection: NCCL's thread has other communicators to look after.
Result<bool> Sender::move() {
  bool has_moved = false;
  for (std::size_t i = 0; i < connections().size(); ++i) {
    Connection& connection = connections()[next_];
    next_ = (next_ + 1) % connections().size();
    if (!connection.has_chunk && !deal(connection)) continue;
    const auto sent = send_to(connection);
    if (!sent) return sent;
    has_moved = has_moved || *sent;
  }
  return has_moved;
}

bool Sender::deal(Connection& connection) {
  if (dealing_ == posted()) return false;
  Request& request = of(dealing_);
  const std::size_t usual = std::clamp(request.bytes / connections().size(), kChunkMin, kChunkMax);
  const std::size_t bytes = std::min(request.bytes - request.dealt, usual);
  connection.chunk = {dealing_, request.bytes, request.dealt, static_cast<std::uint32_t>(bytes)};
  write_header(connection.header, connection.chunk);
  connection.header_moved = connection.chunk_moved = 0;
  connection.has_chunk = true;
  request.dealt += bytes;
  if (request.dealt == request.bytes) ++dealing_;
  return true;
}

Result<bool> Sender::send_to(Connection& connection) {
  Request& request = of(connection.chunk.message);
  std::array<iovec, 2> pieces;
  const std::size_t left = pieces_of(connection, request.data, pieces);
  const msghdr message = message_of(pieces);
  const ssize_t sent = sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && link::may_try_again()) return false;
  if (sent < 0) return lost(fmt::format("has closed its connection: {}", std::strerror(errno)));
  const std::size_t of_header = std::min(static_cast<std::size_t>(sent), pieces[0].iov_len);
  const std::size_t of_chunk = static_cast<std::size_t>(sent) - of_header;
  connection.header_moved += of_header;
  connection.chunk_moved += of_chunk;
  request.moved += of_chunk;
  request.has_begun = request.has_begun || connection.header_moved == ChunkHeader::kBytes;
  connection.has_chunk = static_cast<std::size_t>(sent) < left;
  return sent > 0;
}

Result<bool> Receiver::move() {
  bool has_moved = false, is_open = false;
  for (Connection& each : connections()) {
    if (!each.is_open) continue;
    const auto received = receive_from(each);
    if (!received) return received;
    has_moved = has_moved || *received;
    is_open = is_open || each.is_open;
  }
  if (!is_open) return lost("has closed its connection");
  return has_moved;
}

// Reads what is left of a chunk and the next header behind it, by one call.
Result<bool> Receiver::receive_from(Connection& connection) {
  if (!connection.has_chunk && connection.header_moved == ChunkHeader::kBytes) {
    if (const auto begun = begin_chunk(connection); !begun || !*begun) return begun;
  }
  std::array<iovec, 2> pieces;
  std::size_t of_chunk = 0;
  if (connection.has_chunk) {
    pieces_of(connection, of(connection.chunk.message).data, pieces);
    std::swap(pieces[0], pieces[1]);
    of_chunk = pieces[0].iov_len;
  } else {
    pieces = {iovec{}, iovec{connection.header.data() + connection.header_moved,
                             connection.header.size() - connection.header_moved}};
  }
  msghdr message = message_of(pieces);
  const ssize_t got = recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
  if (got < 0 && link::may_try_again()) return false;
  if (got < 0) return lost(fmt::format("has closed its connection: {}", std::strerror(errno)));
  if (got == 0) {
    if (connection.has_chunk || connection.header_moved > 0) return lost("has closed its connection within a message");
    connection.is_open = false;
    return false;
  }
  const std::size_t chunk_part = std::min(static_cast<std::size_t>(got), of_chunk);
  connection.header_moved += static_cast<std::size_t>(got) - chunk_part;
  if (connection.has_chunk) {
    connection.chunk_moved += chunk_part;
    of(connection.chunk.message).moved += chunk_part;
    connection.has_chunk = chunk_part < of_chunk;
  }
  return true;
}

// False while no buffer is posted for the message.
Result<bool> Receiver::begin_chunk(Connection& connection) {
  const auto chunk = read_header(connection.header);
  if (!chunk) return lost("does not speak as this plugin: use the same version on all ranks");
  if (chunk->message >= posted()) return false;
  Request& request = of(chunk->message);
  if (!request.has_begun && chunk->message_bytes > request.bytes) {
    return fail(ErrorCode::kMismatch, fmt::format("a message of {} bytes came for a buffer of {} bytes",
                                                  chunk->message_bytes, request.bytes));
  }
  if (!request.has_begun) request.bytes = chunk->message_bytes;
  request.has_begun = true;
  if (chunk->message + kRequestsMax < posted() || chunk->message_bytes != request.bytes ||
      chunk->offset > request.bytes || chunk->bytes > request.bytes - chunk->offset ||
      chunk->bytes > request.bytes - request.moved) {
    return lost("has sent a chunk that belongs nowhere");
  }
  connection.chunk = *chunk;
  connection.chunk_moved = connection.header_moved = 0;
  connection.has_chunk = chunk->bytes > 0;
  return true;
}

}  // namespace netfold::nccl
