#include "switch_bench/worker_seat.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>

#include "link/link.h"
#include "switch/ethernet/headers.h"

namespace netfold::apps {
namespace {

constexpr char kInterface[] = "nf-worker";
constexpr std::size_t kFramesAtOnce = 16;

tl::unexpected<Error> no_seat(const std::string& what) {
  return fail(ErrorCode::kSystem,
              fmt::format("a worker needs an interface of the kernel for its control connection: {}: {}{}", what,
                          std::strerror(errno), geteuid() == 0 ? "" : " (run it as root)"));
}

void set_address(sockaddr& room, std::uint32_t ip) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(ip);
  std::memcpy(&room, &address, sizeof address);
}

// Everything is reached through the interface, and on its link.
bool set_up(int control, std::uint32_t ip) {
  ifreq request{};
  std::memcpy(request.ifr_name, kInterface, sizeof kInterface);
  set_address(request.ifr_addr, ip);
  if (ioctl(control, SIOCSIFADDR, &request) != 0) return false;
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(control, SIOCSIFFLAGS, &request) != 0) return false;
  rtentry route{};
  set_address(route.rt_dst, 0);
  set_address(route.rt_genmask, 0);
  route.rt_flags = RTF_UP;
  char name[sizeof kInterface];
  std::memcpy(name, kInterface, sizeof name);
  route.rt_dev = name;
  return ioctl(control, SIOCADDRT, &route) == 0;
}

}  // namespace

TapWorker::TapWorker(std::uint32_t ip, group::JoinOptions join) : ip_(ip), join_(std::move(join)) {
  join_.keep_going = [this] { return !gives_up_; };
  thread_ = std::thread([this] {
    if (auto opened = open_tap(); !opened) {
      connection_ = tl::unexpected(opened.error());
    } else {
      connection_ = group::join_switch(join_);
    }
    has_ended_.store(true, std::memory_order_release);
  });
}

TapWorker::~TapWorker() {
  gives_up_ = true;
  thread_.join();
}

// On the thread that joins, which so leaves this machine's network. The namespace lives as long as its descriptors.
Result<void> TapWorker::open_tap() {
  const auto address = link::parse_address(join_.switch_address);
  if (!address) return tl::unexpected(address.error());
  switch_ip_ = address->ip.v4();
  if (unshare(CLONE_NEWNET) != 0) return no_seat("no network namespace");
  tap_.emplace(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (tap_->get() < 0) return no_seat("/dev/net/tun (`modprobe tun` makes it)");
  ifreq request{};
  std::memcpy(request.ifr_name, kInterface, sizeof kInterface);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(tap_->get(), TUNSETIFF, &request) != 0) return no_seat("no tap");
  const link::Descriptor control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!set_up(control.get(), ip_)) return no_seat("its address");
  if (ioctl(control.get(), SIOCGIFHWADDR, &request) != 0) return no_seat("its MAC address");
  mac_ = switching::MacAddress::read(reinterpret_cast<const std::byte*>(request.ifr_hwaddr.sa_data));
  is_open_.store(true, std::memory_order_release);
  return {};
}

void TapWorker::to_kernel(std::span<const std::byte> frame) {
  if (frame.size() < switching::kEthernetBytes || !is_open_.load(std::memory_order_acquire)) return;
  const auto to = switching::MacAddress::read(frame.data());
  if (to != mac_ && !to.is_group()) return;
  const bool is_ip = switching::read_u16(frame.data() + 2 * switching::MacAddress::kBytes) == switching::kIpv4Type;
  constexpr std::size_t kFromIpAt = switching::kEthernetBytes + 12;
  if (is_ip && frame.size() >= kFromIpAt + 4 && switching::read_u32(frame.data() + kFromIpAt) == switch_ip_) {
    switch_mac_ = switching::MacAddress::read(frame.data() + switching::MacAddress::kBytes);
  }
  [[maybe_unused]] const auto ignored = write(tap_->get(), frame.data(), frame.size());  // TCP and ARP try again
}

void TapWorker::from_kernel(link::Port& port, link::BufferPool& pool) {
  if (!is_open_.load(std::memory_order_acquire)) return;
  for (std::size_t i = 0; i < kFramesAtOnce; ++i) {
    link::OutgoingFrame frame{pool.allocate(), {}};
    if (frame.head.buffer == nullptr) return;
    const auto size_bytes = read(tap_->get(), frame.head.bytes, frame.head.size_bytes);
    const bool is_there = size_bytes >= static_cast<ssize_t>(switching::kEthernetBytes);
    // ARP and IPv4; a kernel sends other frames to a new network, which are not needed there.
    const std::uint16_t type = is_there ? switching::read_u16(frame.head.bytes + 2 * switching::MacAddress::kBytes) : 0;
    frame.head.size_bytes = is_there ? static_cast<std::uint32_t>(size_bytes) : 0;
    const bool is_wanted = type == switching::kIpv4Type || type == switching::kArpType;
    if (!is_wanted || port.send({&frame, 1}) == 0) pool.release(frame);
    if (!is_there) return;
  }
}

Result<group::ControlConnection*> TapWorker::joined() {
  if (!connection_) return tl::unexpected(connection_.error());
  return connection_->get();
}

void TapWorker::leave() {
  if (!has_ended() || !connection_) return;
  thread_.join();
  has_ended_ = false;
  thread_ = std::thread([this] {
    group::leave_switch(**connection_);
    has_ended_.store(true, std::memory_order_release);
  });
}

}  // namespace netfold::apps
