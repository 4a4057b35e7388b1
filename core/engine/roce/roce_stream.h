// A worker's all-reduces over a message channel: tensors in, messages out, sums into tensors. It starts no thread and
// reads no clock: RoceClient drives it with real time, the seeded simulations with virtual time.
//
// Message m + 4 is posted when message m's sum is in its tensor and the right neighbour has acknowledged it: then every
// worker's four newest messages are all that the switch need keep (frames/roce_job.h).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/all_reduce.h"
#include "engine/roce/message_channel.h"
#include "engine/roce/message_layout.h"
#include "engine/rooms.h"

namespace netfold::engine {

struct RoceJobOptions {
  std::uint16_t job = 1, epoch = 1;
  std::uint16_t rank = 0, world = 1;
  numbers::BfpShape bfp = {};
};

class RoceStream {
 public:
  using Ticket = std::uint64_t;

  RoceStream(RoceJobOptions job, MessageChannel& channel) : job_(job), channel_(channel) {}

  void submit(Ticket ticket, const AllReduce& request, Nanoseconds now);

  // To be called after channel.pump(): stores what has arrived and posts what may go. True if it posted anything, so
  // that the channel should be pumped again.
  bool step(Nanoseconds now);
  bool is_idle() const { return operations_.empty(); }
  bool is_acknowledged() const { return channel_.acknowledged() == posted_; }

  std::vector<Ticket> take_finished() { return std::exchange(finished_, {}); }
  // Puts every unfinished tensor back as it was and returns their tickets, oldest first.
  std::vector<Ticket> abandon();

  // Why there is no progress, once there was none for `timeout`: names the rank that is missing, if the switch did.
  std::optional<Error> overdue(Nanoseconds now, Nanoseconds timeout) const;
  // Workers that disagree about a message can never finish it.
  const std::optional<Error>& failure() const { return failure_; }
  Nanoseconds last_progress() const { return last_progress_; }
  std::uint64_t reduced_elements() const { return reduced_elements_; }

 private:
  struct Operation {
    Ticket ticket;
    AllReduce request;
    MessageLayout layout;
    std::uint64_t first, messages;  // of the stream
    std::uint64_t stored = 0;
    Room saved;

    std::size_t offset(std::uint64_t message) const { return (message - first) * layout.elements_a_message(); }
    std::size_t elements(std::uint64_t message) const;
    std::size_t offset_bytes(std::uint64_t message) const;
  };

  void store(const MessageChannel::Arrived& arrived, Nanoseconds now);
  bool post(Nanoseconds now);
  wire::roce::AggregationHeader header_of(const Operation& operation, std::uint64_t message) const;
  Operation* operation_of(std::uint64_t message);
  void listen_to_switch();

  RoceJobOptions job_;
  MessageChannel& channel_;
  std::deque<Operation> operations_;                  // unfinished
  std::uint64_t posted_ = 0, arrived_ = 0, end_ = 0;  // messages
  std::vector<Ticket> finished_;
  Rooms rooms_;
  Nanoseconds last_progress_ = 0;
  std::optional<std::uint16_t> missing_rank_;
  std::optional<Error> failure_;
  std::uint64_t reduced_elements_ = 0;
};

}  // namespace netfold::engine
