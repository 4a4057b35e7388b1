// One job of RoCE workers at the switch, in one epoch: which packet belongs in which of the 512 buffers, which of them
// are here, the sums that are kept, and who is missing. A pure state machine.
//
// Words. A worker sends *messages*, numbered from 0 in each epoch, each at most 128 packets; message m lies in column
// m mod 4, its packet i in *place* 128 (m mod 4) + i. Every port finds the place by the PSNs of its own connection
// (switch/aggregation/psn_window.h). A place *gathers* one message's packet at a time, known by the message's number,
// and keeps the sum of the one before; so what is late, doubled or from a former life never reaches a sum.
//
// The frames themselves wait in the places. When the last has come they are folded in rank order, every frame's payload
// is overwritten with the sum, and each goes on to where its worker sent it. A frame that comes again for a place whose
// sum is kept becomes its answer in the same way. So the worker at the other end of the connection gets the sum under
// the headers it expects, and acknowledges it to the sender: reliability stays with the connection (PROTOCOL.md).
// Source: allreduce-switch, section IV-C and IV-D; connections in a ring, NetReduce as told there.
//
// Of a one-way message (wire/aggregation_header.h) every worker sends every packet too, and gets every packet: those
// without gradients are short. So places, PSNs, acknowledgements and repetitions are the same. Only three things
// differ: which frames must be short, whether the place keeps a sum or the giver's bytes, and which frames leave short.
// A frame goes to its worker's right neighbour, whose rank says whether it gets the bytes.
//
// In a tree a switch is a *leaf*: it has some of the workers, with ranks that follow each other, and the switch above
// adds up what the leaves send. Of the leaf's frames one goes to a worker that is elsewhere: that of its last rank. It
// goes up with the sum of the leaf's workers, as the frame of one worker, whose rank is the leaf's number. So the
// switch above needs to know nothing. The frame that comes down has the whole sum, and is for the leaf's first rank.
// The others wait for it here, and get what it brings. A connection is from worker to worker as before, and so is
// reliability: a frame of the last rank that comes again goes up again (roce_job_tree.cc).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "numbers/fold.h"
#include "switch/aggregation/psn_window.h"
#include "switch/ethernet/aggregation_config.h"
#include "switch/ethernet/headers.h"
#include "switch/ethernet/outbox.h"
#include "wire/aggregation_header.h"
#include "wire/roce.h"
#include "wire/roce_notice.h"

namespace netfold::switching {

// The outcome of a RoCE frame. The first ones are good; every other one is a drop with that reason.
enum class RoceVerdict : std::uint8_t {
  kForwarded,  // not for folding
  kKept,       // a contribution, waiting for the others
  kFolded,     // the contribution that completed its place
  kAnswered,   // sent again, and answered with the kept sum
  kWaiting,    // sent again; it is here, others are not: outbox has a notice
  kMalformed,  // lengths or versions that contradict each other
  kBadIcrc,
  kBadHeader,       // the aggregation header's fields, or they contradict RETH or the packet's length
  kStaleEpoch,      // the job has a later epoch
  kBadRank,         // not below the number of ports that fold, or another port's, or the port has another; or the
                    // ports that fold are not as many as the job's workers: a notice says so
  kSpoofed,         // addresses differ from those the connection began with
  kMessageOrder,    // a message that is not the next, nor one of the last four
  kMismatch,        // workers disagree about a message's format or length: a notice says so
  kPsn,             // outside the messages that are known
  kBadShape,        // opcode or length are not those of this packet of the message
  kMalformedBlock,  // a bfp exponent that no encoder writes
  kBusy,            // the place still gathers an earlier message
  kStale,           // the place has gone on to a later message
  kNoJob,           // as many jobs as the switch takes are here
  kNoRoom,          // as many frames as the switch holds wait already
  kNotSummed,       // from the switch above, without the marks of a sum
  kCount,
};
const char* name_of(RoceVerdict verdict);
constexpr bool is_drop(RoceVerdict verdict) {
  return verdict > RoceVerdict::kWaiting;
}

// A RoCE frame whose ICRC is right.
struct RoceFrame {
  ParsedFrame frame;
  wire::roce::Packet packet;
};

class RoceJob {
 public:
  RoceJob(std::uint16_t job, std::uint16_t epoch, AggregationConfig config, Nanoseconds now);

  std::uint16_t epoch() const { return epoch_; }
  const AggregationConfig& config() const { return config_; }
  std::uint16_t job() const { return job_; }
  // Whether a frame is of the connection that this port's worker folds over, or over which whole sums come down.
  bool has_connection(link::PortNumber port, std::uint64_t to, std::uint32_t queue_pair) const;

  void forget_connection(link::PortNumber port, std::uint64_t to, std::uint32_t queue_pair) {
    if (has_connection(port, to, queue_pair)) connection_at(port).is_bound = false;
  }
  bool takes_from(link::PortNumber port) const { return config_.has(port) || is_uplink(port); }
  bool is_uplink(link::PortNumber port) const { return config_.is_leaf() && port == config_.uplink; }
  // A notice of the switch above, to which this leaf is a worker.
  void pass_on(wire::roce::Notice notice, Outbox& outbox) const;

  // A Write First with the job's aggregation header, of this epoch; or any later packet of the port's connection. The
  // frame's reference is the job's if the verdict is kKept or kFolded or kAnswered.
  RoceVerdict on_first(const RoceFrame& frame, const wire::roce::AggregationHeader& header, numbers::Folder& folder,
                       Outbox& outbox);
  RoceVerdict on_later(const RoceFrame& frame, numbers::Folder& folder, Outbox& outbox);

  // Drops contributions that have waited since before `since`; returns how many.
  std::size_t release_old(Nanoseconds since, Outbox& outbox);
  std::size_t release_all(Outbox& outbox) { return release_old(kNever, outbox); }
  std::size_t held_frames() const { return held_; }
  // When a frame last showed that the job goes on. Only a Write First names its job. A later packet counts once the job
  // has a sum, so that all its workers are here: before that, the packet may be another job's over the same connection.
  Nanoseconds last_sign() const { return last_sign_; }
  std::uint64_t restarts() const { return restarts_; }  // of connections, within this epoch

 private:
  static constexpr std::uint16_t kNoOne = 0xffff;

  struct Connection {  // of a port's worker
    bool is_bound = false;
    std::uint64_t to = 0, from = 0;
    wire::roce::Gid gid_to{}, gid_from{};
    std::uint32_t queue_pair = 0;
    std::uint16_t rank = 0;
    Nanoseconds heard = 0;
    std::uint32_t next_message = 0;
    PsnWindow window;
    std::array<wire::roce::AggregationHeader, PsnWindow::kColumns> headers;  // of the messages in the columns
  };
  struct Column {  // what the workers agree on
    bool is_used = false;
    wire::roce::AggregationHeader header;
    std::uint32_t folded_packets = 0;
  };
  struct Place {
    std::uint32_t arrived = 0;  // ports
    std::uint32_t message = 0;  // that is gathered, if any port has arrived
    Nanoseconds first_at = 0;
    bool has_sum = false;
    std::uint32_t sum_of = 0;     // message
    std::uint32_t sum_check = 0;  // CRC-32 of the kept sum
    bool has_part = false;        // in a leaf: the sum of its workers, which goes up
    std::uint32_t part_of = 0;    // message

    bool waits_above() const { return arrived != 0 && has_part && part_of == message; }
  };
  struct Held {
    link::Frame frame;
    std::uint16_t content_at = 0, elements_at = 0;
    std::uint32_t packet_bytes = 0;
    MacAddress to;
  };

  RoceVerdict check(const RoceFrame& frame, const wire::roce::AggregationHeader& header, Outbox& outbox) const;
  RoceVerdict bind(Connection& connection, const RoceFrame& frame, const wire::roce::AggregationHeader& header);
  RoceVerdict agree(Connection& connection, const RoceFrame& frame, const wire::roce::AggregationHeader& header,
                    Outbox& outbox);
  bool is_here(std::uint16_t rank, std::uint8_t workers);
  RoceVerdict bind_addresses(Connection& connection, const RoceFrame& frame);
  RoceVerdict go_on(Connection& connection, const RoceFrame& frame, const wire::roce::AggregationHeader& header);
  RoceVerdict on_first_from_above(const RoceFrame& frame, const wire::roce::AggregationHeader& header, Outbox& outbox);
  bool is_from_the_left(const wire::roce::AggregationHeader& header) const;
  RoceVerdict take_whole_sum(const RoceFrame& frame, std::uint32_t place, Outbox& outbox);
  void send_in_tree(MacAddress to, link::Frame frame, std::uint32_t rank, Outbox& outbox) const;
  void send_up(const Held& held, const wire::roce::AggregationHeader& header, std::uint32_t index, Outbox& outbox);
  static bool is_packet_of(const wire::roce::AggregationHeader& header, std::uint32_t packet, std::size_t payload_bytes,
                           const RoceFrame& frame);
  static bool is_ahead(const Connection& connection, std::uint32_t psn);
  RoceVerdict contribute(const RoceFrame& frame, Connection& connection, std::uint32_t place, numbers::Folder& folder,
                         Outbox& outbox);
  void complete(const wire::roce::AggregationHeader& header, std::uint32_t index, numbers::Folder& folder,
                Outbox& outbox);
  void complete_part(const wire::roce::AggregationHeader& header, std::uint32_t index, numbers::Folder& folder,
                     Outbox& outbox);
  void add_up(const wire::roce::AggregationHeader& header, std::uint32_t index, std::byte* sum,
              numbers::Folder& folder);
  void keep_sum(const wire::roce::AggregationHeader& header, std::uint32_t index);
  void send_to_all(const wire::roce::AggregationHeader& header, std::uint32_t index, Outbox& outbox);
  void send_sum(const Held& held, const wire::roce::AggregationHeader& header, std::uint32_t index, Outbox& outbox);
  void notify(const RoceFrame& frame, wire::roce::Notice::Kind kind, std::uint16_t rank, std::uint32_t packet,
              std::uint32_t message, Outbox& outbox) const;
  static void send_notice(const wire::roce::Notice& notice, link::PortNumber port, std::uint64_t to, Outbox& outbox);
  std::uint16_t longest_silent(const Place& place) const;
  numbers::WireFormat format_of(const wire::roce::AggregationHeader& header) const;
  Held hold(const RoceFrame& frame, std::uint32_t packet) const;
  std::uint32_t right_of(link::PortNumber port) const {  // the rank that a port's worker writes to
    const std::uint32_t next = connections_[port].rank + 1u;
    return next == port_of_rank_.size() ? 0 : next;
  }
  std::uint16_t ranks_here() const { return static_cast<std::uint16_t>(port_of_rank_.size()); }
  std::uint16_t first_rank() const { return static_cast<std::uint16_t>(leaf_ == kNoOne ? 0 : leaf_ * ranks_here()); }
  // The ports whose frames of a place are here. In a leaf that of the last rank has gone up.
  std::uint32_t held_ports(std::uint32_t index) const {
    const Place& place = places_[index];
    return place.waits_above() ? place.arrived & ~(1u << port_of_rank_.back()) : place.arrived;
  }
  // Its frames go to a worker that is elsewhere.
  bool is_last(link::PortNumber port) const { return config_.is_leaf() && port_of_rank_.back() == port; }
  const Connection& connection_at(link::PortNumber port) const { return is_uplink(port) ? above_ : connections_[port]; }
  Connection& connection_at(link::PortNumber port) { return is_uplink(port) ? above_ : connections_[port]; }
  Held& held_at(std::uint32_t place, link::PortNumber port) { return frames_[place * ports_ + port]; }
  std::byte* sum_at(std::uint32_t place) { return sums_.data() + std::size_t{place} * wire::roce::kPathMtu; }
  std::byte* part_at(std::uint32_t place) { return parts_.data() + std::size_t{place} * wire::roce::kPathMtu; }

  std::uint16_t job_, epoch_;
  AggregationConfig config_;
  std::uint32_t ports_;                      // the highest that folds, plus 1
  std::vector<Connection> connections_;      // by port
  Connection above_ = {};                    // of a leaf: over it whole sums come down
  std::vector<std::uint16_t> port_of_rank_;  // from the leaf's first rank on; kNoOne: not heard of yet
  std::uint16_t leaf_;                       // its number in the tree; kNoOne: not known yet
  std::array<Column, PsnWindow::kColumns> columns_;
  std::vector<Place> places_;
  std::vector<Held> frames_;      // places x ports
  std::vector<std::byte> sums_;   // places x 1024
  std::vector<std::byte> parts_;  // the same of a leaf's own sums
  std::vector<const std::byte*> fold_inputs_;
  std::size_t held_ = 0;
  bool has_summed_ = false;
  Nanoseconds last_sign_;
  std::uint64_t restarts_ = 0;
};

}  // namespace netfold::switching
