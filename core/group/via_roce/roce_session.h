// A rank's session over RoCE: tensors in, messages out over a channel, sums into tensors. A piece of a request
// (group/request_pieces.h) is a message. Those of a reduce-scatter, an all-gather, a broadcast and a barrier are
// one-way messages (wire/aggregation_header.h).
//
// Message m + 4 is posted when message m's sum is in its tensor and the right neighbour has acknowledged it: then every
// worker's four newest messages are all that the switch need keep (switch/protocols/roce/roce_job.h).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "group/request_pieces.h"
#include "group/session.h"
#include "group/via_roce/message_channel.h"
#include "group/via_roce/message_layout.h"

namespace netfold::group {

struct RoceJobOptions {
  std::uint16_t job = 1, epoch = 1;
  std::uint16_t rank = 0, world = 1;
  numbers::BfpShape bfp = {};
  std::uint32_t message_packets = wire::roce::kMessagePackets;  // of the longest message; the same at all ranks
  bool one_way = false;  // all ranks' endpoints, and the switch, have one-way messages; otherwise all-reduces only
};

class RoceSession final : public Session {
 public:
  // `channel` must outlive the session and be connected before the first submit. `timeout`: for a collective to make
  // progress.
  RoceSession(RoceJobOptions job, MessageChannel& channel, Nanoseconds timeout = 30 * kSecond)
      : job_(job), timeout_(timeout), channel_(channel), version_(channel.card().sending.version) {}

  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override { return std::exchange(finished_, {}); }
  bool is_idle() const override { return operations_.empty(); }
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override;
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  // Lingers: the right neighbour may lack a sum, which only this rank can ask the switch for again, and the left one
  // may wait for an acknowledgement.
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  void set_timeout(Nanoseconds timeout) override { timeout_ = timeout; }
  Nanoseconds deadline() const override;
  void add_polls(std::vector<pollfd>& polls) const override;
  // A neighbour may have lost an answer after this rank's own collective is over.
  int life_line() const override { return channel_.descriptor(); }
  nlohmann::json counters() const override;

 private:
  struct Operation {
    Ticket ticket;
    CollectiveRequest request;
    MessageLayout layout;
    RequestPieces pieces;
    std::uint64_t first;  // message of the stream
    std::uint64_t stored = 0;

    std::uint64_t end() const { return first + pieces.count(); }
    RequestPieces::Piece piece(std::uint64_t message) const { return pieces.at(message - first); }
  };

  // Stores what has arrived and posts what may go. True if it posted anything, so that the channel should be pumped
  // again.
  bool step(Nanoseconds now);
  // Why there is no progress, after a timeout without any: names the rank that is missing, if the switch did.
  std::optional<Error> overdue(Nanoseconds now) const;
  bool is_acknowledged() const { return channel_.acknowledged() == posted_; }
  void store(const MessageChannel::Arrived& arrived, Nanoseconds now);
  bool post(Nanoseconds now);
  wire::roce::AggregationHeader header_of(const Operation& operation, std::uint64_t message) const;
  // False if it is not the message that is due, or what came of it is not as it must be.
  bool take_in(Operation& operation, const wire::roce::AggregationHeader& header, std::span<const std::byte> bytes);
  Operation* operation_of(std::uint64_t message);
  void listen_to_switch();

  RoceJobOptions job_;
  Nanoseconds timeout_;
  MessageChannel& channel_;
  const wire::roce::Version version_;
  std::deque<Operation> operations_;                  // unfinished
  std::uint64_t posted_ = 0, arrived_ = 0, end_ = 0;  // messages
  std::vector<Ticket> finished_;
  ScratchPool buffers_;
  bool has_begun_ = false;  // something was submitted to an idle session since the last pump
  Nanoseconds last_progress_ = 0;
  bool link_is_full_ = false, has_failed_ = false;
  Nanoseconds left_at_ = kNever, settled_at_ = kNever;  // when leaving began, and all was acknowledged
  Nanoseconds next_look_ = kNever;                      // while leaving
  std::optional<std::uint16_t> missing_rank_;
  std::optional<Error> failure_;  // workers that disagree about a message can never finish it
  std::uint64_t reduced_elements_ = 0;
};

}  // namespace netfold::group
