#include "link/packet/packet_socket.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/core.h>

#include <cerrno>
#include <cstring>

namespace netfold::link {
namespace {

constexpr std::size_t kFrameRoom = 9216;
constexpr std::size_t kTagBytes = 4, kAddressesBytes = 12;

// A program for the kernel: frames of the wanted types pass, and datagrams to the wanted UDP port. It tests one after
// the other; the last two instructions reject and accept.
void filter(int descriptor, const std::vector<std::uint16_t>& ether_types, std::uint16_t udp_port) {
  constexpr std::uint32_t kIpAt = 14, kFragmentAt = kIpAt + 6, kProtocolAt = kIpAt + 9, kUdpToAt = kIpAt + 2;
  constexpr std::uint32_t kIsFragment = 0x3fff;
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kAddressesBytes)};
  const std::size_t udp_instructions = udp_port == 0 ? 0 : 8;
  for (std::size_t i = 0; i < ether_types.size(); ++i) {
    const auto to_accept = static_cast<std::uint8_t>(ether_types.size() - i + udp_instructions);
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ether_types[i], to_accept, 0));
  }
  if (udp_port != 0) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 7));
    program.push_back(BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kProtocolAt));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 5));
    program.push_back(BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kFragmentAt));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kIsFragment, 3, 0));
    program.push_back(BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, kIpAt));  // the length of the IPv4 header
    program.push_back(BPF_STMT(BPF_LD | BPF_H | BPF_IND, kUdpToAt));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, udp_port, 1, 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0xffffffff));
  const sock_fprog code{static_cast<unsigned short>(program.size()), program.data()};
  setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &code, sizeof code);
}

void set_buffers(int descriptor, std::size_t size_bytes) {
  const int size = static_cast<int>(size_bytes);
  for (const auto& [forced, plain] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (setsockopt(descriptor, SOL_SOCKET, forced, &size, sizeof size) != 0) {
      setsockopt(descriptor, SOL_SOCKET, plain, &size, sizeof size);
    }
  }
}

// The kernel takes a VLAN tag out of a frame and says beside it what it was.
std::uint32_t vlan_tag(const msghdr& header) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&header), part)) {
    if (part->cmsg_level != SOL_PACKET || part->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata beside;
    std::memcpy(&beside, CMSG_DATA(part), sizeof beside);
    if ((beside.tp_status & TP_STATUS_VLAN_VALID) == 0) return 0;
    const bool has_type = (beside.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    return static_cast<std::uint32_t>(has_type ? beside.tp_vlan_tpid : ETH_P_8021Q) << 16 | beside.tp_vlan_tci;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<PacketSocket>> PacketSocket::open(const PacketSocketOptions& options) {
  const int descriptor = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    Error error = system_error("no packet socket");
    error.message += " (run as root, or grant CAP_NET_RAW)";
    return tl::unexpected(error);
  }
  ifreq request{};
  if (options.interface.size() >= sizeof request.ifr_name) {
    close(descriptor);
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not the name of an interface", options.interface));
  }
  std::memcpy(request.ifr_name, options.interface.data(), options.interface.size());
  if (ioctl(descriptor, SIOCGIFHWADDR, &request) != 0) {
    const Error error = system_error(fmt::format("interface {}", options.interface));
    close(descriptor);
    return tl::unexpected(error);
  }
  std::uint64_t mac = 0;
  for (int i = 0; i < 6; ++i) mac = mac << 8 | static_cast<std::uint8_t>(request.ifr_hwaddr.sa_data[i]);

  const int on = 1;
  setsockopt(descriptor, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
  setsockopt(descriptor, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on);
  set_buffers(descriptor, options.buffer_bytes);
  if (!options.ether_types.empty()) filter(descriptor, options.ether_types, options.udp_port);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(options.interface.c_str()));
  packet_mreq membership{address.sll_ifindex, PACKET_MR_PROMISC, 0, {}};
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      (options.is_promiscuous &&
       setsockopt(descriptor, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)) {
    const Error error = system_error(fmt::format("packet socket at {}", options.interface));
    close(descriptor);
    return tl::unexpected(error);
  }
  return std::unique_ptr<PacketSocket>(new PacketSocket(descriptor, mac, options.interface));
}

PacketSocket::PacketSocket(int descriptor, std::uint64_t mac, std::string interface)
    : descriptor_(descriptor),
      mac_(mac),
      interface_(std::move(interface)),
      room_(kFramesAtOnce * (kFrameRoom + kTagBytes)),
      headers_(kFramesAtOnce),
      pieces_(kFramesAtOnce),
      controls_(kFramesAtOnce) {
  frames_.reserve(kFramesAtOnce);
}

PacketSocket::~PacketSocket() {
  close(descriptor_);
}

bool has_link(int socket, const std::string& interface) {
  ifreq request{};
  std::memcpy(request.ifr_name, interface.data(), std::min(interface.size(), sizeof request.ifr_name - 1));
  return ioctl(socket, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) != 0;
}

bool PacketSocket::is_up() const {
  return has_link(descriptor_, interface_);
}

std::span<const std::span<const std::byte>> PacketSocket::receive() {
  for (std::size_t i = 0; i < kFramesAtOnce; ++i) {
    pieces_[i] = {room_.data() + i * (kFrameRoom + kTagBytes) + kTagBytes, kFrameRoom};
    headers_[i] = {};
    headers_[i].msg_hdr.msg_iov = &pieces_[i];
    headers_[i].msg_hdr.msg_iovlen = 1;
    headers_[i].msg_hdr.msg_control = controls_[i].data();
    headers_[i].msg_hdr.msg_controllen = controls_[i].size();
  }
  frames_.clear();
  const int count = recvmmsg(descriptor_, headers_.data(), kFramesAtOnce, MSG_DONTWAIT, nullptr);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    auto* frame = static_cast<std::byte*>(pieces_[at].iov_base);
    std::size_t size_bytes = headers_[at].msg_len;
    if (const std::uint32_t tag = vlan_tag(headers_[at].msg_hdr); tag != 0 && size_bytes > kAddressesBytes) {
      frame -= kTagBytes;
      std::memmove(frame, frame + kTagBytes, kAddressesBytes);
      const std::uint32_t in_order = htonl(tag);
      std::memcpy(frame + kAddressesBytes, &in_order, kTagBytes);
      size_bytes += kTagBytes;
    }
    frames_.emplace_back(frame, size_bytes);
  }
  return frames_;
}

std::size_t PacketSocket::send(std::span<const std::span<const iovec>> frames, std::uint64_t& refused) {
  std::size_t done = 0;
  while (done < frames.size()) {
    const std::size_t most = std::min(kFramesAtOnce, frames.size() - done);
    for (std::size_t i = 0; i < most; ++i) {
      headers_[i] = {};
      headers_[i].msg_hdr.msg_iov = const_cast<iovec*>(frames[done + i].data());
      headers_[i].msg_hdr.msg_iovlen = frames[done + i].size();
    }
    const int taken = sendmmsg(descriptor_, headers_.data(), static_cast<unsigned>(most), MSG_DONTWAIT);
    if (taken > 0) {
      done += static_cast<std::size_t>(taken);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR) {
      return done;
    } else {
      ++refused;
      ++done;
    }
  }
  return done;
}

}  // namespace netfold::link
