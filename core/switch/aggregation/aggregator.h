// The switch's slots of one job in one shard: which contribution counts, when a chunk is folded, who is missing.
// A pure state machine: packets in, packets out (through the AggregatorOutput), no clock, no allocation after
// construction.
//
// Each slot expects exactly one chunk at a time, known by number. A contribution of any other chunk can therefore never
// reach a sum, however late, often or out of order it comes (PROTOCOL.md, "What the switch does"). The result of the
// round before stays beside the round that is being gathered, so a worker that lost it can still have it: a slot needs
// two places, but only one of them holds contributions.
//
// All ranks contribute to every chunk, and the chunk is done when all are in, whatever it is of. Two things differ:
// whose packets carry bytes, and which ranks get the outcome (`Receivers`). Only the owner gets a scattered sum, all
// but the owner get its copied bytes, and a barrier has neither. The other ranks are told that the chunk is done.
//
// A switch below another one has no result when all contributions to a chunk are in, but a sum that is to go up: the
// slot is *up* until the result comes down (aggregator_above.cc).
//
// Source: slots and self-clocking, SwitchML as told in docs/reference/bibliography.md; chunk-wise folding by the thread
// that owns the chunk, dpdk-switch section 4.3 (Fig. 9); kept results for retransmission, allreduce-switch section IV.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/zeroed_bytes.h"
#include "numbers/fold.h"
#include "switch/aggregation/tree.h"
#include "wire/lease.h"
#include "wire/packet.h"

namespace netfold::switching {

// The outcome of a packet. The first five are good; every other one is a drop with that reason.
enum class Verdict : std::uint8_t {
  kKept,            // a contribution, waiting for the others
  kFolded,          // the contribution that completed its chunk
  kAnswered,        // a probe, or a host's question that could be answered at once
  kAwaited,         // a host's question, answered when its chunks are folded
  kFromAbove,       // what the switch above said was of use
  kDuplicate,       // this rank's contribution to this chunk is here already, or the chunk is done
  kStaleChunk,      // the slot neither gathers nor keeps this chunk
  kMismatch,        // format, count or terms differ from the first contribution's: outbox.mismatch was called
  kMalformedBlock,  // a bfp exponent that no encoder writes
  kBadLength,       // payload and count disagree, or the payload is longer than the lease allows
  kBadSlot,         // slot and chunk disagree, or the slot is another shard's
  kBadKind,         // a packet that only a switch sends
  kNoRoom,          // the outbox has no memory for the result; the sender's probe will bring the contribution back
};

// The places that get the outcome of a chunk; the others hear that it is done. `owner` is a place, or kSwitchWorker:
// none here.
struct Receivers {
  enum class Who : std::uint8_t { kAll, kOwner, kOthers, kNone };
  Who who = Who::kAll;
  std::uint16_t owner = wire::kSwitchWorker;

  bool have(std::uint16_t place) const {
    switch (who) {
      case Who::kAll: return true;
      case Who::kOwner: return place == owner;
      case Who::kOthers: return place != owner;
      case Who::kNone: break;
    }
    return false;
  }
};

// Where an Aggregator puts what it wants to send.
class AggregatorOutput {
 public:
  virtual ~AggregatorOutput() = default;
  // A whole result packet of place `place`. If payloads are copied it stays valid, though its content moves on, as long
  // as the Aggregator lives; if they are lent it lies in the room that the outbox gave, and the payloads of that place
  // are the lender's again.
  virtual void result_to_all(std::uint32_t place, std::span<const std::byte> packet) = 0;
  // The same to some, and `done`, which stays valid as long, to the others. `packet` is empty if no place gets one.
  virtual void result_to_some(std::uint32_t place, std::span<const std::byte> packet, std::span<const std::byte> done,
                              Receivers receivers) = 0;
  virtual void result_to_one(std::uint16_t worker, std::uint32_t place, std::span<const std::byte> packet) = 0;
  // Where payloads are lent, memory for the next result of `place`, or for its sum on the way up, valid until that is
  // asked for again; null if no memory is free at the moment: then what was given before stays valid.
  virtual std::byte* room_for_result(std::uint32_t /*place*/, std::size_t /*size_bytes*/) { return nullptr; }
  // A short packet (missing, waiting, done), to be copied.
  virtual void notice(std::uint16_t worker, std::span<const std::byte> packet) = 0;
  // The answer to a host's last question, when it can be given; to be copied.
  virtual void complete(std::span<const std::byte> packet) = 0;
  // To the switch above: a sum, which stays valid as results do, or a short packet, to be copied.
  virtual void sum_to_above(std::span<const std::byte> /*packet*/, bool /*is_again*/) {}
  virtual void notice_to_above(std::span<const std::byte> /*packet*/) {}
  // The workers disagree; `rank` differs from `first_rank`.
  virtual void mismatch(std::uint16_t rank, std::string what) = 0;
};

// The place of a kept contribution's payload. It is copied into the slot, or it stays where it is, and its receiver
// keeps it there until the slot's result has left.
enum class Payloads : std::uint8_t { kCopied, kLent };

class Aggregator {
 public:
  // Throws std::bad_alloc.
  Aggregator(const wire::Lease& lease, std::uint16_t shard, Payloads payloads = Payloads::kCopied, Tree tree = {});

  // The packet is of this job and epoch, its worker is a place (below lease.world), or it is a question of the job's
  // host; its tag, if the job has a key, has been checked.
  Verdict on_packet(const wire::Packet& packet, Nanoseconds now, AggregatorOutput& outbox);
  // The same of a packet of the switch above.
  Verdict on_packet_from_above(const wire::Packet& packet, AggregatorOutput& outbox);

  // Places are this shard's slots, counted from 0.
  std::uint32_t place_of(std::uint32_t chunk) const { return lease_.slot_of(chunk) >> shard_bits_; }
  std::size_t places() const { return slots_.size(); }
  const wire::Lease& lease() const { return lease_; }  // with the keys of where the job is
  const Tree& tree() const { return tree_; }

  static std::size_t memory_bytes(const wire::Lease& lease, Payloads payloads = Payloads::kCopied);  // of one shard

 private:
  struct Slot {
    std::uint32_t chunk = 0;      // the chunk that is being gathered
    std::uint16_t arrived = 0;    // how many ranks are in
    bool has_result = false;      // of chunk - slots
    Receivers receivers;          // of that result
    wire::Header first;           // the round's first contribution: all must agree with it
    std::byte* result = nullptr;  // header, payload, tag
    std::uint32_t result_bytes = 0;
    std::uint32_t payload_bytes = 0;  // of the round's contributions
    bool is_up = false;               // all are in, and the sum is at `result`, on its way up
    // While it is up: whose probes are passed on, how many had no answer, and the rank that the answer named.
    std::uint16_t speaker = wire::kSwitchWorker, other_probes = 0, unanswered = 0, missing_above = wire::kSwitchWorker;
  };

  Verdict on_contribution(const wire::Packet& packet, AggregatorOutput& outbox);
  Verdict on_probe(const wire::Header& header, AggregatorOutput& outbox);
  bool tell_if_missing(std::uint16_t worker, std::uint32_t chunk, AggregatorOutput& outbox);
  void tell_missing_after(const wire::Header& probe, AggregatorOutput& outbox);
  Verdict on_await(const wire::Header& header, AggregatorOutput& outbox);
  void look_for_gaps(std::uint16_t worker, std::uint32_t chunk, AggregatorOutput& outbox);
  bool take_room(std::uint32_t index, std::size_t payload_bytes, AggregatorOutput& outbox);
  void complete(std::uint32_t index, AggregatorOutput& outbox);
  void write_copy(std::uint32_t index);
  void publish(std::uint32_t index, std::size_t payload_bytes, AggregatorOutput& outbox);
  void publish_to_some(std::uint32_t index, std::uint32_t chunk, AggregatorOutput& outbox);
  std::uint16_t ask_who_is_missing(std::uint32_t index, AggregatorOutput& outbox);
  void send_notice(wire::Kind kind, std::uint16_t to, std::uint16_t about_rank, std::uint32_t chunk,
                   AggregatorOutput& outbox, std::uint16_t count = 0);

  // Where there is a switch above, or below.
  void send_up(std::uint32_t index, AggregatorOutput& outbox);
  void say_to_above(wire::Kind kind, std::uint32_t chunk, std::uint16_t count, AggregatorOutput& outbox);
  void ask_above(std::uint16_t prober, std::uint16_t count, std::uint32_t index, AggregatorOutput& outbox);
  Verdict on_echo(const wire::Header& header, Nanoseconds now, AggregatorOutput& outbox);
  Verdict on_waiting_below(const wire::Header& header);
  Verdict on_result_from_above(const wire::Packet& packet, AggregatorOutput& outbox);
  Verdict on_done_from_above(const wire::Header& header, AggregatorOutput& outbox);
  Verdict on_missing_from_above(const wire::Header& header, AggregatorOutput& outbox);
  Verdict on_waiting_from_above(const wire::Header& header, AggregatorOutput& outbox);
  Verdict on_echo_from_above(const wire::Header& header, AggregatorOutput& outbox);
  void tell_host(AggregatorOutput& outbox);
  void report_mismatch(const Slot& slot, const wire::Header& header, AggregatorOutput& outbox);

  const std::byte* keep(std::uint32_t index, const wire::Packet& packet);
  bool has_right_length(const wire::Packet& packet) const;
  std::uint16_t place_of_owner(const wire::Header& header) const;
  Receivers receivers_of(const wire::Header& header) const;
  std::size_t result_payload_bytes(const wire::Header& header) const;
  std::size_t folded_payload_bytes(const wire::Header& header) const;
  bool has_arrived(std::uint32_t index, std::uint16_t worker) const;
  std::uint16_t lowest_missing(std::uint32_t index) const;

  wire::Lease lease_;
  std::uint16_t shard_;
  Payloads payloads_are_;
  Tree tree_;
  bool folds_sums_;  // a contributor is a switch: everything is widened as it comes
  struct Named {
    std::uint32_t chunk = 0;
    std::uint16_t rank = wire::kSwitchWorker;
  };
  std::vector<Named> named_;  // by place: the rank that a switch below waits for, as it said last, of any chunk of now
  int shard_bits_;
  std::uint32_t arrival_words_;  // 64-bit words of a slot's arrival bitmap
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> arrivals_;                  // slots x arrival_words_
  std::vector<const std::byte*> inputs_;                 // slots x world: where each payload lies
  ZeroedBytes payloads_;                                 // slots x world x payload stride, where any is copied
  ZeroedBytes results_;                                  // slots x result stride; empty if payloads are lent
  std::vector<std::optional<wire::ShortPacket>> dones_;  // by place: what those hear who get nothing of its result
  std::vector<std::uint32_t> gap_checked_;               // by worker: chunks before this one were looked at for gaps
  std::uint32_t awaited_ = 0;                            // the host waits for the chunks before this one
  std::uint64_t awaited_left_ = 0;                       // how many of them are not folded; 0: it waits for nothing
  numbers::Folder folder_;
};

}  // namespace netfold::switching
