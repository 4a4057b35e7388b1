// The switch's data path of one shard: packets of a link in, verdicts counted, results and notices out. No thread and
// no clock: a Shard drives it with a thread and a socket, the simulations of tests/protocol in virtual time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "link/link.h"
#include "switch/aggregation/packet_filter.h"

namespace netfold::switching {

class SwitchPath {
 public:
  SwitchPath(std::unique_ptr<link::Link> link, std::uint16_t jobs_max, DataPlane::OnMismatch on_mismatch);

  // Handles what has come, up to a batch, and sends what follows from it. True if something had come: there may be
  // more. `now` goes into echoes, so it must not be that of an earlier batch.
  bool pump(Nanoseconds now);
  // Puts `job` (or nothing) in place `id`.
  void place(std::uint16_t id, ShardJob* job);

  bool has_backlog() const { return !backlog_.empty(); }  // the link is full: poll it for writing
  const link::Link& link() const { return *link_; }
  std::uint64_t drops(DropReason reason) const { return filter_.drops(reason); }
  link::LinkStats link_stats() const;  // a snapshot, from any thread

 private:
  class JobOutbox;
  struct Notice {
    link::Address to;
    std::array<std::byte, wire::kHeaderBytes + wire::kTagBytes> bytes;
    std::size_t size_bytes;
  };

  void handle(const link::Incoming& datagram, Nanoseconds now);
  void queue(ShardJob& job, link::Address worker, std::span<const std::byte> packet);
  void queue_notice(link::Address to, std::span<const std::byte> packet);
  void flush();
  void send_notices();
  void send_backlog();
  void publish_stats();

  std::unique_ptr<link::Link> link_;
  DataPlane::OnMismatch on_mismatch_;
  PacketFilter filter_;
  std::vector<ShardJob*> busy_;          // jobs with results in this batch
  std::vector<Notice> notices_;          // of this batch
  std::vector<link::Outgoing> sending_;  // notices, as the link wants them
  std::vector<link::Outgoing> backlog_;  // results not taken by the link yet
  std::array<Counter, 6> link_stats_;    // LinkStats, field by field
};

}  // namespace netfold::switching
