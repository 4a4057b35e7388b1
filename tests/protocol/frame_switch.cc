#include "protocol/frame_switch.h"

#include <algorithm>

namespace netfold::tests {
namespace {

constexpr switching::MacAddress kSwitchMac{0x0200'0000'0000};
constexpr std::uint32_t kSwitchIp = FrameSwitch::kIp, kWorkersIp = 0;  // memory links know only ports
constexpr std::uint16_t kJobsMax = 8;
constexpr std::size_t kBufferBytes = 4096;

}  // namespace

FrameSwitch::FrameSwitch(link::MemoryNetwork& network, std::uint16_t first_port, const switching::Admission& admission,
                         switching::DataPlane::OnMismatch on_mismatch)
    : first_port_(first_port),
      below_(admission.tree.contributors),
      switch_(kPorts,
              {.threads = admission.lease.shards,
               .netfold = switching::NetfoldOptions{.ip = kSwitchIp,
                                                    .first_port = first_port,
                                                    .jobs_max = kJobsMax,
                                                    .on_mismatch = std::move(on_mismatch)}},
              kBufferBytes) {
  for (std::uint16_t shard = 0; shard < admission.lease.shards; ++shard) {
    links_.push_back(network.open(static_cast<std::uint16_t>(first_port + shard)));
    jobs_.push_back(std::make_unique<switching::FrameJob>(admission, shard));
    switch_.thread(shard).netfold->place(admission.lease.job, jobs_.back().get(), switch_.pool());
  }
}

switching::MacAddress FrameSwitch::mac_of(std::uint16_t port) const {
  for (const switching::Contributor& each : below_) {
    if (std::ranges::find(each.udp_ports, port) != each.udp_ports.end()) port = each.udp_ports.front();
  }
  return {0x0200'0100'0000u + port};
}

void FrameSwitch::pump(Nanoseconds now) {
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
    switching::write_udp_headers({kSwitchMac, mac_of(datagram.from.port), kSwitchIp, kWorkersIp,
                                  link.local_address().port, datagram.from.port, datagram.bytes.size()},
                                 frame.data());
    frame.insert(frame.end(), datagram.bytes.begin(), datagram.bytes.end());
    port(datagram.from.port % kPorts).arrive(frame);
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
      if (parsed.to != mac_of(parsed.udp.to)) continue;
      const link::Outgoing datagram{{0, parsed.udp.to}, parsed.payload(), {}, {}};
      links_[static_cast<std::size_t>(parsed.udp.from - first_port_)]->send({&datagram, 1});
    }
  }
}

}  // namespace netfold::tests
