// The dialect of Netfold's own UDP packets (wire/PROTOCOL.md): the frame switch's counterpart of switch_path.h, with
// the same aggregator behind it. Nothing is copied: a contribution stays in the buffer it came in until it is folded,
// and that very buffer, its headers turned round, becomes the head of the answer to its sender. The result is written
// once, into a buffer that all the answers share and that the slot keeps for those who lost theirs.
//
// The switch's address belongs to a host behind one of its ports (the kernel's interface, where control connections
// end): the dialect takes the packets for its UDP ports on their way there, and answers in that host's name. So it
// needs neither ARP nor an address of its own. The same holds for packets addressed to a job's host (dpdk-switch,
// section 4.2.1). What that host asks becomes, in the buffer it came in, the signal that its tensor is folded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data_addresses.h"
#include "engine/data_plane.h"
#include "engine/packet_desk.h"
#include "frames/dialect.h"

namespace netfold::engine {

// A job as one folding thread sees it: also the buffers that its slots hold.
struct FrameJob : ShardJob {
  FrameJob(const Admission& admitted, std::uint16_t shard);

  std::vector<link::Frame> heads;    // places x world: answers to be, in contributions' buffers; null: not here
  std::vector<link::Frame> results;  // by place: the kept result; null: none
  link::Frame signal;                // to the host, when what it waits for is folded; null: it waits for nothing
  std::uint16_t signal_payload_at = 0;
};

class NetfoldDialect final : public frames::Dialect {
 public:
  struct Options {
    const DataAddresses* addresses = nullptr;  // that data packets are for; of all threads
    std::vector<std::uint16_t> ports;          // UDP, one a folding thread
    std::uint16_t thread = 0;  // which of them this is; frames::kNoFolding: only tells packets from others
    std::uint16_t jobs_max = 64;
  };
  NetfoldDialect(Options options, DataPlane::OnMismatch on_mismatch);

  frames::Answer offer(const frames::ParsedFrame& frame, frames::Outbox& outbox) override;
  bool recognises(const frames::ParsedFrame& frame) const override { return thread_for(frame) < options_.ports.size(); }
  std::uint16_t thread_of(const frames::ParsedFrame& frame, std::uint16_t) const override { return thread_for(frame); }
  void drain(frames::Outbox& outbox) override;
  const char* name() const override { return "netfold"; }
  std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

  // Puts `job` (or nothing) in place `id`; what the slots of the one that goes hold is given back. On the pipeline's
  // thread.
  void place(std::uint16_t id, FrameJob* job, link::BufferPool& pool);
  std::uint64_t drops(DropReason reason) const { return desk_.drops(reason); }

  // Buffers that a job holds at most, all threads together.
  static std::size_t buffers_of(const wire::Lease& lease) {
    return std::size_t{lease.slots} * (lease.world + 1u) + lease.shards;
  }

 private:
  class JobOutbox;

  frames::Answer offer_copy(const frames::ParsedFrame& frame, frames::Outbox& outbox);
  std::uint16_t thread_for(const frames::ParsedFrame& frame) const;

  Options options_;
  DataPlane::OnMismatch on_mismatch_;
  PacketDesk desk_;
  std::vector<std::uint16_t> placed_;  // ids of jobs
};

}  // namespace netfold::engine
