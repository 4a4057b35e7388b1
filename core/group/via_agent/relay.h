// Carries collectives between a worker's memory and an engine in the agent: takes requests, reads tensors part by part
// ahead of the engine, writes results back as they come, and answers. Reading, folding and writing of different parts
// overlap, because the engine has a thread of its own. Only all-reduces are cut: in other collectives each rank holds
// another piece of the buffer. channel.h says how a tensor stays whole.
//
// It starts no thread and waits for nothing.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "group/group.h"
#include "group/scratch_pool.h"
#include "group/via_agent/channel.h"
#include "group/via_agent/undo_log.h"
#include "group/via_agent/worker_memory.h"

namespace netfold::group {

class Relay {
 public:
  // All of them must outlive the relay; the engine must be closed before it ends.
  Relay(Channel& channel, const WorkerMemory& memory, UndoLog& log, Group& engine, int world, int rank);

  // Does what can be done; true if anything was. An error is final: nothing is written to the worker any more.
  Result<bool> step();
  bool is_idle() const { return jobs_.empty() && done_.empty(); }

  // Whether the worker sleeps and has something to wake up for: asked after step().
  bool worker_must_wake() { return has_answered_ && answers_.reader_sleeps(); }
  // Before sleeping: the worker will ring. False if there is a request already.
  bool may_sleep() { return requests_.may_sleep(); }

 private:
  struct Job {
    Order order;
    std::size_t started = 0;                 // elements
    std::size_t parts = 0;                   // on their way
    bool has_started = false;                // a tensor of no elements is one part of none
    std::vector<UndoLog::Slot*> slots = {};  // of the parts that are done

    bool is_started() const { return has_started && started == order.what.count; }
  };
  struct Part {
    Job* of;
    std::size_t first, count;                 // elements
    std::size_t in_bytes = 0, out_bytes = 0;  // of the worker's memory, by the layout
    std::vector<UndoLog::Slot*> slots = {};   // what `out` holds
    ScratchBuffer in = {}, out = {};

    std::uint64_t in_address() const { return of->order.in + first * of->order.element_bytes(); }
    std::uint64_t out_address() const { return of->order.out + first * of->order.element_bytes(); }
    std::size_t size_bytes() const { return std::max(in_bytes, out_bytes); }
    // The slot that holds all of `in` too: the tensor is folded in place.
    bool is_read_already() const { return in_address() == out_address() && in_bytes == out_bytes && slots.size() == 1; }
  };

  Result<bool> take_requests();
  Result<bool> start_parts();
  Part next_part(Job& job) const;
  Result<void> start_part(Job& job);
  Result<void> save(Part& part);
  Result<const std::byte*> input_of(Part& part);
  Result<bool> finish_parts();
  Result<void> finish(Part& part);
  Result<void> write(Part& part);
  bool answer();

  RequestReader requests_;
  AnswerWriter answers_;
  const std::atomic<std::uint32_t>& worker_gave_up_;
  std::atomic<std::uint32_t>& agent_writes_;
  const WorkerMemory& memory_;
  UndoLog& log_;
  Group& engine_;
  const int world_, rank_;

  std::deque<std::unique_ptr<Job>> jobs_;  // oldest first; done ones are taken out
  std::deque<std::unique_ptr<Job>> done_;  // and not answered
  std::map<Group::Ticket, Part> parts_;    // that the engine has
  std::size_t bytes_in_flight_ = 0;
  bool has_answered_ = false;
  ScratchPool buffers_;
};

}  // namespace netfold::group
