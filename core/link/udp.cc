#include "link/udp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "link/socket_address.h"

namespace netfold::link {
namespace {

constexpr std::size_t kMessagesAtOnce = 16;  // per system call
constexpr std::size_t kReceiveBuffers = 16;
constexpr std::size_t kDatagramBytesMax = 65535;
constexpr std::size_t kSegmentsLimit = 64;  // the kernel's UDP_MAX_SEGMENTS in every version
constexpr std::size_t kPiecesMax = 3;       // head, body, tail of an Outgoing

void set_buffer(int descriptor, int forced, int plain, std::size_t size_bytes) {
  const int size = static_cast<int>(size_bytes);
  // FORCE passes the system's limit and needs CAP_NET_ADMIN; without it the kernel grants up to net.core.[rw]mem_max.
  if (setsockopt(descriptor, SOL_SOCKET, forced, &size, sizeof size) != 0) {
    setsockopt(descriptor, SOL_SOCKET, plain, &size, sizeof size);
  }
}

class Udp final : public Link {
 public:
  Udp(int descriptor, Address local, const UdpOptions& options);
  ~Udp() override { close(descriptor_); }
  Udp(const Udp&) = delete;

  std::size_t send(std::span<const Outgoing> batch) override;
  std::span<const Incoming> receive(std::size_t most) override;
  int descriptor() const override { return descriptor_; }
  Address local_address() const override { return local_; }
  const LinkStats& stats() const override { return stats_; }

 private:
  struct SendMessage {
    SocketAddress to;
    std::array<iovec, kSegmentsLimit * kPiecesMax> pieces;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control;
    std::size_t datagrams;
    std::size_t size_bytes;
  };
  struct ReceiveMessage {
    SocketAddress from;
    iovec piece;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  };

  std::size_t run_length(std::span<const Outgoing> batch) const;
  void fill(std::span<const Outgoing> run, SendMessage& message, msghdr& header);
  bool give_up_segmentation();
  void split(const ReceiveMessage& message, const msghdr& header, std::size_t size_bytes);

  int descriptor_;
  Address local_;
  int family_;
  std::size_t segments_max_;
  LinkStats stats_;
  std::vector<SendMessage> sending_{kMessagesAtOnce};
  std::vector<ReceiveMessage> receiving_{kReceiveBuffers};
  std::vector<std::byte> buffers_ = std::vector<std::byte>(kReceiveBuffers * (kDatagramBytesMax + 1));
  std::vector<Incoming> received_;
};

Udp::Udp(int descriptor, Address local, const UdpOptions& options)
    : descriptor_(descriptor),
      local_(local),
      family_(family_of(options.bind.ip)),
      segments_max_(std::clamp<std::size_t>(options.segments_max, 1, kSegmentsLimit)) {
  for (std::size_t i = 0; i < kReceiveBuffers; ++i) {
    receiving_[i].piece = {buffers_.data() + i * (kDatagramBytesMax + 1), kDatagramBytesMax};
  }
  received_.reserve(kReceiveBuffers * kSegmentsLimit);
  const int probe = 0;
  if (setsockopt(descriptor_, SOL_UDP, UDP_SEGMENT, &probe, sizeof probe) != 0) segments_max_ = 1;
}

// How many datagrams from the front may travel as one: same address, same size, only the last may be shorter.
std::size_t Udp::run_length(std::span<const Outgoing> batch) const {
  const std::size_t segment_bytes = batch[0].size_bytes();
  std::size_t total_bytes = segment_bytes;
  std::size_t length = 1;
  while (length < batch.size() && length < segments_max_) {
    const Outgoing& next = batch[length];
    const std::size_t next_bytes = next.size_bytes();
    if (!(next.to == batch[0].to) || next_bytes > segment_bytes || total_bytes + next_bytes > kSegmentedBytesMax) break;
    total_bytes += next_bytes;
    ++length;
    if (next_bytes < segment_bytes) break;
  }
  return length;
}

void Udp::fill(std::span<const Outgoing> run, SendMessage& message, msghdr& header) {
  message.to = SocketAddress(run[0].to, family_);
  message.datagrams = run.size();
  message.size_bytes = 0;
  std::size_t pieces = 0;
  for (const Outgoing& datagram : run) {
    for (const auto piece : {datagram.head, datagram.body, datagram.tail}) {
      if (piece.empty()) continue;
      message.pieces[pieces++] = {const_cast<std::byte*>(piece.data()), piece.size()};
      message.size_bytes += piece.size();
    }
  }
  header = {};
  header.msg_name = message.to.get();
  header.msg_namelen = message.to.size();
  header.msg_iov = message.pieces.data();
  header.msg_iovlen = pieces;
  if (run.size() == 1) return;
  header.msg_control = message.control.data();
  header.msg_controllen = message.control.size();
  cmsghdr* const control = CMSG_FIRSTHDR(&header);
  control->cmsg_level = SOL_UDP;
  control->cmsg_type = UDP_SEGMENT;
  control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
  const auto segment_bytes = static_cast<std::uint16_t>(run[0].size_bytes());
  std::memcpy(CMSG_DATA(control), &segment_bytes, sizeof segment_bytes);
}

// A device without checksum offload refuses segmented sends (EIO); datagrams one by one still pass.
bool Udp::give_up_segmentation() {
  if (segments_max_ == 1 || (errno != EIO && errno != EINVAL)) return false;
  segments_max_ = 1;
  return true;
}

std::size_t Udp::send(std::span<const Outgoing> batch) {
  std::array<mmsghdr, kMessagesAtOnce> headers;
  std::size_t taken = 0;
  while (taken < batch.size()) {
    std::size_t messages = 0;
    for (std::size_t at = taken; at < batch.size() && messages < kMessagesAtOnce; ++messages) {
      const std::size_t length = run_length(batch.subspan(at));
      fill(batch.subspan(at, length), sending_[messages], headers[messages].msg_hdr);
      at += length;
    }
    const int sent = sendmmsg(descriptor_, headers.data(), static_cast<unsigned>(messages), MSG_DONTWAIT);
    ++stats_.system_calls;
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) break;
      if (give_up_segmentation()) continue;
      // Refused for good (no route, a firewall, too long): the same as lost on the way, but counted.
      stats_.send_errors += sending_[0].datagrams;
      taken += sending_[0].datagrams;
      continue;
    }
    for (int i = 0; i < sent; ++i) {
      stats_.sent_packets += sending_[static_cast<std::size_t>(i)].datagrams;
      stats_.sent_bytes += sending_[static_cast<std::size_t>(i)].size_bytes;
      taken += sending_[static_cast<std::size_t>(i)].datagrams;
    }
  }
  return taken;
}

std::span<const Incoming> Udp::receive(std::size_t most) {
  std::array<mmsghdr, kReceiveBuffers> headers;
  const std::size_t messages = std::min(kReceiveBuffers, std::max<std::size_t>(most / kSegmentsLimit, 1));
  for (std::size_t i = 0; i < messages; ++i) {
    msghdr& header = headers[i].msg_hdr;
    header = {};
    header.msg_name = receiving_[i].from.get();
    header.msg_namelen = SocketAddress::kSizeMax;
    header.msg_iov = &receiving_[i].piece;
    header.msg_iovlen = 1;
    header.msg_control = receiving_[i].control.data();
    header.msg_controllen = receiving_[i].control.size();
  }
  received_.clear();
  const int got = recvmmsg(descriptor_, headers.data(), static_cast<unsigned>(messages), MSG_DONTWAIT, nullptr);
  ++stats_.system_calls;
  for (int i = 0; i < got; ++i) {
    split(receiving_[static_cast<std::size_t>(i)], headers[static_cast<std::size_t>(i)].msg_hdr,
          headers[static_cast<std::size_t>(i)].msg_len);
  }
  return received_;
}

void Udp::split(const ReceiveMessage& message, const msghdr& header, std::size_t size_bytes) {
  std::size_t segment_bytes = size_bytes;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&header), control)) {
    if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
      int value = 0;
      std::memcpy(&value, CMSG_DATA(control), sizeof value);
      if (value > 0) segment_bytes = static_cast<std::size_t>(value);
    }
  }
  const auto* const bytes = static_cast<const std::byte*>(message.piece.iov_base);
  const Address from = message.from.address();
  std::size_t at = 0;
  do {
    const std::size_t length = std::min(segment_bytes, size_bytes - at);
    received_.push_back({from, {bytes + at, length}});
    ++stats_.received_packets;
    stats_.received_bytes += length;
    at += length;
  } while (at < size_bytes);
}

}  // namespace

Result<std::unique_ptr<Link>> open_udp(const UdpOptions& options) {
  const auto opened = open_socket(options.bind.ip, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, options.road);
  if (!opened) return tl::unexpected(opened.error());
  const int descriptor = *opened;
  const SocketAddress wanted(options.bind, family_of(options.bind.ip));
  if (bind(descriptor, wanted.get(), wanted.size()) != 0) {
    Error error = system_error(fmt::format("cannot bind UDP {}", to_string(options.bind)));
    close(descriptor);
    return tl::unexpected(std::move(error));
  }
  // No fragments: losing one loses all. A packet that is too large for a hop is lost, and the search for the MTU finds
  // out (membership/path_search.h). Messages of hops that say so are not believed: anyone can send them.
  const int probe = IP_PMTUDISC_PROBE, dont = 1;
  setsockopt(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
  if (!options.bind.ip.is_v4()) {
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_DONTFRAG, &dont, sizeof dont);
  }
  set_buffer(descriptor, SO_RCVBUFFORCE, SO_RCVBUF, options.buffer_bytes);
  set_buffer(descriptor, SO_SNDBUFFORCE, SO_SNDBUF, options.buffer_bytes);
  const int on = 1;
  if (options.receive_offload) setsockopt(descriptor, SOL_UDP, UDP_GRO, &on, sizeof on);  // absent: one by one
  return std::make_unique<Udp>(descriptor, local_address_of(descriptor), options);
}

}  // namespace netfold::link
