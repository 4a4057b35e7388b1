#include "protocol/frame_switch.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace netfold::tests {
namespace {

constexpr switching::MacAddress kSwitchMac{0x0200'0000'0000};
constexpr std::uint32_t kSwitchIp = FrameSwitch::kIp, kWorkersIp = 0;  // memory links know only ports
constexpr switching::MacAddress kAboveMac{0x0200'0200'0000};
constexpr std::uint32_t kAboveIp = 0x0a00'0009;
constexpr link::PortNumber kAbovePort = FrameSwitch::kPorts - 1;
constexpr std::uint16_t kJobsMax = 64;
constexpr std::size_t kBufferBytes = 4096;

}  // namespace

FrameSwitch::FrameSwitch(std::vector<std::unique_ptr<link::Link>> links, const switching::Admission& admission,
                         switching::DataPlane::OnMismatch on_mismatch)
    : first_port_(links.front()->local_address().port),
      tree_(admission.tree),
      links_(std::move(links)),
      switch_(kPorts,
              {.threads = admission.lease.shards,
               .netfold = switching::NetfoldOptions{.ip = kSwitchIp,
                                                    .first_port = first_port_,
                                                    .jobs_max = kJobsMax,
                                                    .on_mismatch = std::move(on_mismatch)}},
              kBufferBytes) {
  switching::Admission admitted = admission;
  if (admitted.tree.above) {
    for (link::Address& each : admitted.tree.above->shards) each.ip = kAboveIp;
    switch_.way_up().set_parent(kAboveIp);
  }
  for (std::uint16_t shard = 0; shard < admission.lease.shards; ++shard) {
    jobs_.push_back(std::make_unique<switching::FrameJob>(admitted, shard));
    switch_.thread(shard).netfold->place(admission.lease.job, jobs_.back().get(), switch_.pool());
  }
}

// As the control connection does: a frame from there, and one of the host.
void FrameSwitch::speak_with_above(Nanoseconds now) {
  if (!tree_.above || (spoken_at_ > 0 && now - spoken_at_ < kSecond)) return;
  spoken_at_ = now;
  std::vector<std::byte> frame(switching::kUdpFrameBytes);
  switching::write_udp_headers({kSwitchMac, kAboveMac, kSwitchIp, kAboveIp, 0, 0, 0}, frame.data());
  port(kAbovePort).arrive(frame);
  switching::write_udp_headers({kAboveMac, kSwitchMac, kAboveIp, kSwitchIp, 0, 0, 0}, frame.data());
  port(0).arrive(frame);
}

bool FrameSwitch::is_above(std::uint16_t port) const {
  return tree_.above && std::ranges::any_of(tree_.above->shards, [&](const auto& each) { return each.port == port; });
}

switching::MacAddress FrameSwitch::mac_of(std::uint16_t port) const {
  if (is_above(port)) return kAboveMac;
  for (const switching::Contributor& each : tree_.contributors) {
    if (std::ranges::find(each.udp_ports, port) != each.udp_ports.end()) port = each.udp_ports.front();
  }
  return {0x0200'0100'0000u + port};
}

Nanoseconds FrameSwitch::deadline() const {
  return std::ranges::min(links_ | std::views::transform([](const auto& each) { return each->deadline(); }));
}

std::uint64_t FrameSwitch::moved_packets() const {
  std::uint64_t sum = 0;
  for (const auto& each : links_) sum += each->stats().sent_packets + each->stats().received_packets;
  return sum;
}

void FrameSwitch::pump(Nanoseconds now) {
  speak_with_above(now);
  for (const auto& link : links_) take_datagrams(*link);
  switch_.settle(now);
  send_frames();
}

std::uint64_t FrameSwitch::drops(switching::DropReason reason) const {
  std::uint64_t sum = 0;
  for (std::size_t shard = 0; shard < switch_.threads(); ++shard) sum += switch_.thread(shard).netfold->drops(reason);
  return sum;
}

bool FrameSwitch::every_frame_has_one_fate() const {
  std::uint64_t received = 0, fates = 0, passed_on = 0;
  for (std::size_t shard = 0; shard < switch_.threads(); ++shard) {
    for (link::PortNumber port = 0; port < kPorts; ++port) {
      const switching::PortCounters& it = switch_.pipeline(shard).counters(port);
      received += it.received.get();
      passed_on += it.handed_over.get();  // and counted again where they went
      fates += it.taken.get() + it.forwarded.get() + it.flooded.get() + it.filtered.get() + it.dropped.get() +
               it.dropped_handover.get();
      for (std::size_t flaw = 1; flaw < static_cast<std::size_t>(switching::Flaw::kIpHeader); ++flaw) {
        fates += it.flaws[flaw].get();
      }
    }
  }
  return received > 0 && passed_on > 0 && received == fates;
}

void FrameSwitch::take_datagrams(link::Link& link) {
  for (const link::Incoming& datagram : link.receive(SIZE_MAX)) {
    std::vector<std::byte> frame(switching::kUdpFrameBytes);
    const bool is_from_above = is_above(datagram.from.port);
    const std::uint32_t from = is_from_above ? kAboveIp : kWorkersIp;
    switching::write_udp_headers({kSwitchMac, mac_of(datagram.from.port), kSwitchIp, from, link.local_address().port,
                                  datagram.from.port, datagram.bytes.size()},
                                 frame.data());
    frame.insert(frame.end(), datagram.bytes.begin(), datagram.bytes.end());
    port(is_from_above ? kAbovePort : datagram.from.port % kPorts).arrive(frame);
  }
}

void FrameSwitch::send_frames() {
  for (link::PortNumber number = 0; number < kPorts; ++number) {
    for (auto& frame : port(number).fetch()) {
      switching::ParsedFrame parsed;
      const auto size_bytes = static_cast<std::uint32_t>(frame.size());
      if (switching::parse({nullptr, frame.data(), size_bytes, 0, false, false}, {}, parsed) != switching::Flaw::kNone)
        continue;
      if (!parsed.has_udp || parsed.from != kSwitchMac || parsed.ip.from != kSwitchIp) continue;
      if (parsed.udp.from < first_port_) continue;  // of the host
      if (parsed.to != mac_of(parsed.udp.to)) continue;
      if (parsed.ip.to != (is_above(parsed.udp.to) ? kAboveIp : kWorkersIp)) continue;
      const link::Outgoing datagram{{0, parsed.udp.to}, parsed.payload(), {}, {}};
      links_[static_cast<std::size_t>(parsed.udp.from - first_port_)]->send({&datagram, 1});
    }
  }
}

}  // namespace netfold::tests
