// The handler of Netfold's own UDP packets (wire/PROTOCOL.md): the Ethernet switch's counterpart of switch_path.h, with
// the same aggregator behind it. Nothing is copied: a contribution stays in the buffer it came in until it is folded,
// and that very buffer, its headers turned round, becomes the head of the answer to its sender. The result is written
// once, into a buffer that all the answers share and that the slot keeps for those who lost theirs.
//
// The switch's address belongs to a host behind one of its ports (the kernel's interface, where control connections
// end). The handler takes the packets for its UDP ports on their way there, and answers in that host's name. So it
// needs neither ARP nor an address of its own. The same holds for packets addressed to a job's host (dpdk-switch,
// section 4.2.1). A question of that host becomes, in the buffer that received it, the signal that its tensor is
// folded.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "switch/aggregation/packet_filter.h"
#include "switch/data_plane.h"
#include "switch/ethernet/protocol_handler.h"
#include "switch/protocols/netfold/data_addresses.h"
#include "switch/protocols/netfold/way_up.h"

namespace netfold::switching {

// The headers of a frame, with its addresses and tags: enough to answer its sender later.
struct FrameHead {
  static constexpr std::size_t kBytesMax = kEthernetBytes + kTagsMax * kTagBytes + kIpv4BytesMax + kUdpBytes;

  ParsedFrame frame;  // nothing of its payload
  std::array<std::byte, kBytesMax> bytes;
};

// A job as one folding thread sees it: also the buffers that its slots hold.
struct FrameJob : ShardJob {
  FrameJob(const Admission& admitted, std::uint16_t shard);

  std::vector<link::Frame> heads;    // places x world: answers to be, in contributions' buffers; null: not here
  std::vector<link::Frame> results;  // by place: the kept result; null: none
  // By place: of the frame that came from there last. A switch is asked without having asked; and where a switch is
  // above, what that says goes on to a worker. Empty where neither is.
  std::vector<std::optional<FrameHead>> latest;
  link::Frame signal;  // to the host, when what it waits for is folded; null: it waits for nothing
  std::uint16_t signal_payload_at = 0;
};

class NetfoldHandler final : public ProtocolHandler {
 public:
  struct Options {
    const DataAddresses* addresses = nullptr;  // that data packets are for; of all threads
    std::vector<std::uint16_t> ports;          // UDP, one a folding thread
    std::uint16_t thread = 0;                  // which of them this is; kNoFolding: only tells packets from others
    std::uint16_t jobs_max = 64;
    WayUp* way_up = nullptr;  // of all threads
  };
  NetfoldHandler(Options options, DataPlane::OnMismatch on_mismatch);

  HandlerVerdict offer(const ParsedFrame& frame, Outbox& outbox) override;
  bool recognises(const ParsedFrame& frame) const override { return thread_for(frame) < options_.ports.size(); }
  std::uint16_t thread_of(const ParsedFrame& frame, std::uint16_t) const override { return thread_for(frame); }
  void drain(Outbox& outbox) override;
  const char* name() const override { return "netfold"; }
  std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

  // Puts `job` (or nothing) in place `id`; buffers that the slots of the old one hold are given back. On the pipeline's
  // thread.
  void place(std::uint16_t id, FrameJob* job, link::BufferPool& pool);
  std::uint64_t drops(DropReason reason) const { return filter_.drops(reason); }

  // Buffers that a job holds at most, all threads together.
  static std::size_t buffers_of(const wire::Lease& lease) {
    return std::size_t{lease.slots} * (lease.world + 1u) + lease.shards;
  }

 private:
  class JobOutbox;

  HandlerVerdict take_from_above(FrameJob& job, const ParsedFrame& frame, const wire::Packet& packet, Outbox& outbox);
  HandlerVerdict offer_copy(const ParsedFrame& frame, Outbox& outbox);
  std::uint16_t thread_for(const ParsedFrame& frame) const;

  Options options_;
  DataPlane::OnMismatch on_mismatch_;
  PacketFilter filter_;
  std::vector<std::uint16_t> placed_;  // ids of jobs
};

}  // namespace netfold::switching
