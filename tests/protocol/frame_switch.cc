#include "protocol/frame_switch.h"

namespace netfold::tests {
namespace {

constexpr frames::MacAddress kSwitchMac{0x0200'0000'0000};
constexpr std::uint32_t kSwitchIp = FrameSwitch::kIp, kWorkersIp = 0;  // memory links know ports alone

frames::MacAddress mac_of(link::Address worker) {
  return {0x0200'0100'0000u + worker.port};
}

}  // namespace

FrameSwitch::FrameSwitch(link::MemoryNetwork& network, std::uint16_t first_port, const engine::Admission& admission,
                         engine::DataPlane::OnMismatch on_mismatch)
    : first_port_(first_port) {
  const std::uint16_t shards = admission.lease.shards;
  engine::NetfoldDialect::Options options;
  options.addresses = &data_addresses_;
  std::vector<link::Port*> peers;
  for (link::PortNumber number = 0; number < kPorts; ++number) {
    ports_.push_back(std::make_unique<link::MemoryPort>(pool_, number));
  }
  for (std::uint16_t shard = 0; shard < shards; ++shard) {
    options.ports.push_back(static_cast<std::uint16_t>(first_port + shard));
    threads_.emplace_back().inbox = std::make_unique<link::MemoryHandover>(pool_);
    peers.push_back(threads_.back().inbox.get());
  }
  for (std::uint16_t shard = 0; shard < shards; ++shard) {
    Thread& thread = threads_[shard];
    thread.link = network.open(options.ports[shard]);
    thread.job = std::make_unique<engine::FrameJob>(admission, shard);
    options.thread = shard;
    auto dialect = std::make_unique<engine::NetfoldDialect>(options, on_mismatch);
    thread.dialect = dialect.get();
    thread.dialect->place(admission.lease.job, thread.job.get(), pool_);
    frames::PipelinePorts ports;
    for (const auto& port : ports_) {
      if (ports.all.size() % shards == shard)
        ports.receiving.push_back(static_cast<link::PortNumber>(ports.all.size()));
      ports.all.push_back(port.get());
    }
    ports.peers = peers;
    ports.inbox = thread.inbox.get();
    std::vector<std::unique_ptr<frames::Dialect>> dialects;
    dialects.push_back(std::move(dialect));
    frames::PipelineOptions pipeline;
    pipeline.threads = shards;
    pipeline.thread = shard;
    thread.pipeline =
        std::make_unique<frames::Pipeline>(pool_, std::move(ports), addresses_, std::move(dialects), pipeline);
  }
}

FrameSwitch::~FrameSwitch() {
  for (Thread& thread : threads_) thread.pipeline.reset();
}

void FrameSwitch::pump(Nanoseconds now) {
  for (Thread& thread : threads_) take_datagrams(thread);
  std::size_t moved = 1;
  while (moved > 0) {
    moved = 0;
    for (Thread& thread : threads_) moved += thread.pipeline->pump(now);
  }
  send_frames();
}

std::uint64_t FrameSwitch::drops(engine::DropReason reason) const {
  std::uint64_t sum = 0;
  for (const Thread& thread : threads_) sum += thread.dialect->drops(reason);
  return sum;
}

bool FrameSwitch::every_frame_has_one_fate() const {
  std::uint64_t received = 0, fates = 0, passed_on = 0;
  for (const Thread& thread : threads_) {
    for (link::PortNumber port = 0; port < kPorts; ++port) {
      const frames::PortCounters& it = thread.pipeline->counters(port);
      received += it.received.get();
      passed_on += it.handed_over.get();  // and counted again where they went
      fates += it.taken.get() + it.forwarded.get() + it.flooded.get() + it.filtered.get() + it.dropped.get() +
               it.dropped_handover.get();
      for (std::size_t flaw = 1; flaw < static_cast<std::size_t>(frames::Flaw::kIpHeader); ++flaw) {
        fates += it.flaws[flaw].get();
      }
    }
  }
  return received > 0 && passed_on > 0 && received == fates;
}

void FrameSwitch::take_datagrams(Thread& thread) {
  for (const link::Incoming& datagram : thread.link->receive(SIZE_MAX)) {
    std::vector<std::byte> frame(frames::kUdpFrameBytes);
    frames::write_udp_headers({kSwitchMac, mac_of(datagram.from), kSwitchIp, kWorkersIp,
                               thread.link->local_address().port, datagram.from.port, datagram.bytes.size()},
                              frame.data());
    frame.insert(frame.end(), datagram.bytes.begin(), datagram.bytes.end());
    ports_[datagram.from.port % kPorts]->arrive(frame);
  }
}

void FrameSwitch::send_frames() {
  for (const auto& port : ports_) {
    for (auto& frame : port->fetch()) {
      frames::ParsedFrame parsed;
      const auto size_bytes = static_cast<std::uint32_t>(frame.size());
      if (frames::parse({nullptr, frame.data(), size_bytes, 0, false, false}, {}, parsed) != frames::Flaw::kNone)
        continue;
      if (!parsed.has_udp || parsed.from != kSwitchMac || parsed.ip.from != kSwitchIp) continue;
      if (parsed.to != mac_of({0, parsed.udp.to})) continue;
      const link::Outgoing datagram{{0, parsed.udp.to}, parsed.payload(), {}, {}};
      threads_[static_cast<std::size_t>(parsed.udp.from - first_port_)].link->send({&datagram, 1});
    }
  }
}

}  // namespace netfold::tests
