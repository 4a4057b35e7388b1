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
constexpr std::size_t kTaggedChunkMax = kChunkMin;  // more does not go under one tag
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

// Of `left` bytes those that belong to a piece of this size.
std::size_t take(std::size_t& left, std::size_t size) {
  const std::size_t taken = std::min(left, size);
  left -= taken;
  return taken;
}

msghdr message_of(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  return message;
}

}  // namespace

Stripes::Stripes(std::vector<link::Descriptor> sockets, std::unique_ptr<link::Tags> tags, std::string peer,
                 Nanoseconds timeout)
    : peer_(std::move(peer)), timeout_(timeout), tags_(std::move(tags)), last_move_(now()) {
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

void Stripes::begin(Connection& connection, const ChunkHeader& chunk) {
  connection.chunk = chunk;
  connection.chunk_moved = connection.tag_moved = 0;
  connection.has_chunk = true;
  ++connection.chunks;
  of(chunk.message).dealt += chunk.bytes;
}

void Stripes::end_chunk(Connection& connection) {
  Request& request = of(connection.chunk.message);
  request.moved += connection.chunk.bytes;
  request.has_moved = true;
  connection.has_chunk = false;
}

std::array<iovec, 2> Stripes::rest_of_chunk(Connection& connection) {
  const auto bytes = bytes_of(connection.chunk).subspan(connection.chunk_moved);
  const auto tag = std::span(connection.tag).subspan(connection.tag_moved);
  return {iovec{bytes.data(), bytes.size()}, iovec{tag.data(), tags_ ? tag.size() : 0}};
}

Stripes::TaggedHeader Stripes::tagged_header(const Connection& connection) const {
  TaggedHeader covered;
  write_header(covered, connection.chunk);
  const auto index = static_cast<std::uint64_t>(&connection - connections_.data());
  wire::put_big(std::span<std::byte>(covered), ChunkHeader::kBytes, index);
  wire::put_big(std::span<std::byte>(covered), ChunkHeader::kBytes + sizeof index, connection.chunks);
  return covered;
}

Sender::Sender(std::vector<link::Descriptor> sockets, std::unique_ptr<link::Tags> tags, std::string peer,
               Nanoseconds timeout)
    : Stripes(std::move(sockets), std::move(tags), std::move(peer), timeout) {
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
  const std::size_t most = tags() != nullptr ? kTaggedChunkMax : kChunkMax;
  const std::size_t usual = std::clamp(request.bytes / connections().size(), kChunkMin, most);
  const std::size_t bytes = std::min(request.bytes - request.dealt, usual);
  begin(connection, {dealing_, request.bytes, request.dealt, static_cast<std::uint32_t>(bytes)});
  write_header(connection.header, connection.chunk);
  connection.header_moved = 0;
  if (tags() != nullptr) connection.tag = tags()->of(tagged_header(connection), bytes_of(connection.chunk));
  if (request.dealt == request.bytes) ++dealing_;
  return true;
}

Result<bool> Sender::send_to(Connection& connection) {
  const auto header = std::span(connection.header).subspan(connection.header_moved);
  const auto [bytes, tag] = rest_of_chunk(connection);
  std::array<iovec, 3> pieces{iovec{header.data(), header.size()}, bytes, tag};
  const msghdr message = message_of(pieces);
  const ssize_t sent = sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && link::may_try_again()) return false;
  if (sent < 0) return lost(fmt::format("has closed its connection: {}", std::strerror(errno)));
  auto left = static_cast<std::size_t>(sent);
  connection.header_moved += take(left, header.size());
  connection.chunk_moved += take(left, bytes.iov_len);
  connection.tag_moved += take(left, tag.iov_len);
  if (static_cast<std::size_t>(sent) == header.size() + bytes.iov_len + tag.iov_len) end_chunk(connection);
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

// Reads what is left of a chunk and its tag, and the next header behind them, by one call.
Result<bool> Receiver::receive_from(Connection& connection) {
  if (!connection.has_chunk && connection.header_moved == ChunkHeader::kBytes) {
    if (const auto accepted = accept_chunk(connection); !accepted || !*accepted) return accepted;
  }
  const auto header = std::span(connection.header).subspan(connection.header_moved);
  const auto [bytes, tag] = connection.has_chunk ? rest_of_chunk(connection) : std::array<iovec, 2>{};
  std::array<iovec, 3> pieces{bytes, tag, iovec{header.data(), header.size()}};
  msghdr message = message_of(pieces);
  const ssize_t got = recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
  if (got < 0 && link::may_try_again()) return false;
  if (got < 0) return lost(fmt::format("has closed its connection: {}", std::strerror(errno)));
  if (got == 0) {
    if (connection.has_chunk || connection.header_moved > 0) return lost("has closed its connection within a message");
    connection.is_open = false;
    return false;
  }
  auto left = static_cast<std::size_t>(got);
  connection.chunk_moved += take(left, bytes.iov_len);
  connection.tag_moved += take(left, tag.iov_len);
  connection.header_moved += left;
  if (!connection.has_chunk || static_cast<std::size_t>(got) < bytes.iov_len + tag.iov_len) return true;
  if (tags() != nullptr && !tags()->is_right(tagged_header(connection), bytes_of(connection.chunk), connection.tag)) {
    return lost("sent bytes with a wrong tag");
  }
  end_chunk(connection);
  return true;
}

// False while no buffer is posted for the message.
Result<bool> Receiver::accept_chunk(Connection& connection) {
  const auto chunk = read_header(connection.header);
  if (!chunk) return lost("does not speak as this plugin: use the same version on all ranks");
  if (chunk->message >= posted()) return false;
  Request& request = of(chunk->message);
  if (!request.is_sized && chunk->message_bytes > request.bytes) {
    return fail(ErrorCode::kMismatch, fmt::format("a message of {} bytes came for a buffer of {} bytes",
                                                  chunk->message_bytes, request.bytes));
  }
  if (!request.is_sized) request.bytes = chunk->message_bytes;
  request.is_sized = true;
  if (chunk->message + kRequestsMax < posted() || chunk->message_bytes != request.bytes ||
      chunk->offset > request.bytes || chunk->bytes > request.bytes - chunk->offset ||
      chunk->bytes > request.bytes - request.dealt || (tags() != nullptr && chunk->bytes > kTaggedChunkMax)) {
    return lost("has sent a chunk that belongs nowhere");
  }
  begin(connection, *chunk);
  connection.header_moved = 0;
  if (chunk->bytes == 0 && tags() == nullptr) end_chunk(connection);
  return true;
}

}  // namespace netfold::nccl
