#include "link/tcp/control_socket.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "link/socket_address.h"

namespace netfold::link {
namespace {

constexpr std::size_t kReadBytesMax = 65536;                    // a call
constexpr std::size_t kOutputBytesMax = 262144;                 // not yet taken by the kernel
constexpr Nanoseconds kRetransmissionMin = 200 * kMillisecond;  // of Linux
constexpr int kKeepaliveIdleSeconds = 10, kKeepaliveIntervalSeconds = 5, kKeepaliveProbes = 3;

void set_option(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof value);  // all of them are improvements, none is needed
}

std::string text_of(int error) {
  return std::strerror(error);
}

}  // namespace

ControlSocket::ControlSocket(int descriptor) : descriptor_(descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);  // heartbeats find the dead sooner; this is for half-open ones
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
}

ControlSocket::Outcome ControlSocket::read(const std::function<void(std::string_view)>& on_line) {
  std::array<char, 16384> buffer;
  for (std::size_t total = 0; total < kReadBytesMax;) {
    const ssize_t got = recv(descriptor_.get(), buffer.data(), buffer.size(), 0);
    if (got == 0) return {State::kClosed, "closed its connection"};
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && may_try_again()) break;
    if (got < 0) return {State::kClosed, fmt::format("lost its connection: {}", text_of(errno))};
    total += static_cast<std::size_t>(got);
    if (!lines_.feed({buffer.data(), static_cast<std::size_t>(got)}, on_line)) {
      return {State::kGarbage, fmt::format("sent a line of more than {} bytes", kLineBytesMax)};
    }
  }
  return {};
}

ControlSocket::Outcome ControlSocket::write(std::string_view bytes) {
  output_ += bytes;
  return flush();
}

ControlSocket::Outcome ControlSocket::flush() {
  while (!output_.empty()) {
    const ssize_t sent = send(descriptor_.get(), output_.data(), output_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && may_try_again()) break;
    if (sent < 0) {
      const int error = errno;
      output_.clear();
      return {State::kClosed, fmt::format("lost its connection: {}", text_of(error))};
    }
    output_.erase(0, static_cast<std::size_t>(sent));
  }
  if (output_.size() <= kOutputBytesMax) return {};
  output_.clear();
  return {State::kClosed, "does not read what it is sent"};
}

bool ControlSocket::has_unconfirmed() const {
  int bytes = 0;
  return !output_.empty() || (ioctl(descriptor_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0);
}

Nanoseconds ControlSocket::usual_confirmation() const {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(descriptor_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return kRetransmissionMin;
  return std::max(kRetransmissionMin, (info.tcpi_rtt + 4 * Nanoseconds{info.tcpi_rttvar}) * kMicrosecond);
}

void ControlSocket::shut_down_writing() {
  shutdown(descriptor_.get(), SHUT_WR);
}

Result<int> listen_at(link::Address address, const Road& road) {
  const auto opened = open_socket(address.ip, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, road);
  if (!opened) return opened;
  const int descriptor = *opened;
  set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);  // a switch started anew takes its port at once
  const SocketAddress at(address, family_of(address.ip));
  if (bind(descriptor, at.get(), at.size()) == 0 && listen(descriptor, 1024) == 0) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  const char* const advice =
      error == EADDRINUSE      ? "another program, perhaps another switch, has this port: stop it or choose another"
      : error == EADDRNOTAVAIL ? "no interface of this machine has this address: see `ip address`, or bind to ::"
      : error == EACCES        ? "ports below 1024 need root: choose a higher one"
                               : "see whether the address is right";
  return fail(ErrorCode::kSystem,
              fmt::format("cannot listen at {}: {} ({})", link::to_string(address), text_of(error), advice));
}

Result<int> begin_connect(link::Address address, const IpAddress& from_ip, const Road& road) {
  const int family = family_of(address.ip);
  const auto opened = open_socket(address.ip, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, road);
  if (!opened) return opened;
  const int descriptor = *opened;
  const SocketAddress from({from_ip, 0}, family), to(address, family);
  const bool binds = !from_ip.is_any() && from_ip.is_v4() == address.ip.is_v4();
  if ((!binds || bind(descriptor, from.get(), from.size()) == 0) &&
      (connect(descriptor, to.get(), to.size()) == 0 || errno == EINPROGRESS)) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  return fail(ErrorCode::kSwitchFailed, text_of(error));
}

int connect_result(int descriptor) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

Result<Route> route_to(link::Address address, const Road& road) {
  const auto opened = open_socket(address.ip, SOCK_DGRAM | SOCK_CLOEXEC, road);
  if (!opened) return tl::unexpected(opened.error());
  const int descriptor = *opened;
  const SocketAddress to(address, family_of(address.ip));
  if (connect(descriptor, to.get(), to.size()) != 0) {  // sends nothing
    const int error = errno;
    close(descriptor);
    return fail(ErrorCode::kSwitchFailed, fmt::format("this machine has no way to the switch at {}: {}; see `ip route`",
                                                      link::to_string(address), text_of(error)));
  }
  Route route;
  route.local_ip = local_address_of(descriptor).ip;
  int mtu = 0;
  socklen_t size = sizeof mtu;
  const bool is_v4 = address.ip.is_v4();
  if (getsockopt(descriptor, is_v4 ? IPPROTO_IP : IPPROTO_IPV6, is_v4 ? IP_MTU : IPV6_MTU, &mtu, &size) == 0 &&
      mtu > 0) {
    route.mtu = static_cast<std::uint32_t>(mtu);
  }
  close(descriptor);
  return route;
}

}  // namespace netfold::link
