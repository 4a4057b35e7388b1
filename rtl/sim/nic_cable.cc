#include "nic_cable.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "link/fault_injector.h"
#include "link/packet/packet_link.h"
#include "link/udp.h"

namespace netfold::rtl {
namespace {

constexpr std::uint16_t kLinkEtherType = 0x88b5;  // link_pkg.sv
constexpr std::size_t kFramesAtOnce = 64;
constexpr unsigned kPortTries = 100;

// The same bytes, with the first in the highest bits or in the lowest.
std::uint64_t turned(std::uint64_t mac) {
  return __builtin_bswap64(mac) >> 16;
}

Result<std::unique_ptr<link::Link>> open_datagrams(const std::string& ip) {
  const auto where = link::parse_address(ip + ":0");
  if (!where) return tl::unexpected(where.error());
  if (!where->ip.is_v4() || where->ip.is_any()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not an IPv4 address of this machine, which a simulated NIC needs", ip));
  }
  std::minstd_rand random(std::random_device{}());
  for (unsigned i = 0;; ++i) {
    const auto port = static_cast<std::uint16_t>(kCablePortMin + random() % (0x10000 - kCablePortMin));
    auto opened = link::open_udp({.bind = {where->ip, port}});
    if (opened || i == kPortTries) return opened;
  }
}

}  // namespace

std::uint64_t mac_of(link::Address address) {
  const unsigned port = address.port - kCablePortMin;  // 14 bits: 6 of the first byte, and the second one
  return turned(std::uint64_t{(port >> 8) << 2 | 0b10} << 40 | std::uint64_t{port & 0xff} << 32 | address.ip.v4());
}

link::Address address_of_mac(std::uint64_t mac) {
  const std::uint64_t bits = turned(mac);
  const unsigned port = static_cast<unsigned>(bits >> 42) << 8 | (static_cast<unsigned>(bits >> 32) & 0xff);
  return {IpAddress(static_cast<std::uint32_t>(bits)), static_cast<std::uint16_t>(kCablePortMin + port)};
}

Result<Cable> Cable::plug_in(const CableOptions& options) {
  const auto faults = link::parse_faults(options.faults);
  if (!faults) return tl::unexpected(faults.error());
  std::unique_ptr<link::Link> link;
  std::uint64_t mac = 0;
  const bool is_udp = options.interface.empty();
  if (is_udp) {
    auto opened = open_datagrams(options.ip);
    if (!opened) return tl::unexpected(opened.error());
    link = std::move(*opened);
    mac = mac_of(link->local_address());
  } else {
    auto opened = link::open_packet_link({.interface = options.interface, .ether_types = {kLinkEtherType}});
    if (!opened) return tl::unexpected(opened.error());
    link = std::move(opened->link);
    mac = turned(opened->mac);
  }
  if (faults->any()) link = link::inject_faults(std::move(link), *faults, &now);
  return Cable(std::move(link), mac, is_udp);
}

void Cable::send(std::span<const Frame> frames) {
  std::vector<link::Outgoing> batch;
  for (const Frame& frame : frames) {
    std::uint64_t to = 0;
    std::memcpy(&to, frame.data(), 6);
    batch.push_back({is_udp_ ? address_of_mac(to) : link::Address{}, frame, {}, {}});
  }
  if (!batch.empty()) link_->send(batch);
}

std::vector<Frame> Cable::receive() {
  std::vector<Frame> frames;
  for (const auto& each : link_->receive(kFramesAtOnce)) frames.emplace_back(each.bytes.begin(), each.bytes.end());
  return frames;
}

}  // namespace netfold::rtl
