// The memory that a worker and its agent share: the queues of requests and answers, and the undo log.
//
// A request is an address and a count; the agent reads and writes the worker's memory by itself. It all-reduces a
// tensor part by part. The memory that another collective writes is one part. Before it overwrites a part in the
// worker's memory, it puts what is there into slots of the undo log and marks them. A request is done when its answer
// is in the queue. Until then the worker can put every marked slot back, also after the agent has died. So a tensor is
// written whole or as it was, even if the agent is killed in the middle of writing.
//
// A worker that gives up says so, and then waits while the agent writes. The agent says that it writes before it looks
// whether the worker has given up. So at least one of the two sees the other: no write comes after the worker has put
// its memory back.
//
// The agent makes both pieces of memory. The worker cannot shrink them, and maps the undo log only for reading.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "group/collective_request.h"
#include "group/via_agent/ring.h"
#include "group/via_peers/plans.h"

namespace netfold::group {

constexpr std::uint32_t kChannelVersion = 4;  // of all that worker and agent say to each other

struct Request {
  std::uint64_t ticket = 0;
  std::uint64_t in = 0, out = 0;  // addresses in the worker
  std::uint64_t count = 0;        // elements, as CollectiveRequest says
  std::int32_t root = 0, sub_nodes = 0, switches = 0, group = 0;
  std::uint8_t collective = 0, type = 0, format = 0, block = 0, mantissa = 0, average = 0;
  std::uint8_t unused[2] = {};
  char algorithm[32] = {}, between[32] = {};  // end with a zero

  static Request of(std::uint64_t ticket, const CollectiveRequest& what);
};

// A request that was checked. The addresses are the worker's: nothing but WorkerMemory may touch them.
struct Order {
  std::uint64_t ticket;
  std::uint64_t in, out;
  CollectiveRequest what;  // without addresses

  std::size_t element_bytes() const { return numbers::size_bytes(what.type); }
};
// kInvalidArgument names what is wrong with it, for this rank of so many.
Result<Order> check(const Request& request, int world, int rank);

struct Answer {
  std::uint64_t ticket;  // done, well
};

// Why nothing will be done any more.
class Failure {
 public:
  void set(const Error& error);  // once, by the agent
  std::optional<Error> get() const;

 private:
  static constexpr std::size_t kMessageBytes = 2000;
  std::atomic<std::uint32_t> is_set_;
  std::int32_t code_, rank_;
  char message_[kMessageBytes];
};

struct Channel {
  Ring<Request, 1024> requests;
  Ring<Answer, 1024> answers;
  alignas(64) std::atomic<Nanoseconds> alive_at;  // when the agent last looked
  alignas(64) std::atomic<std::uint32_t> worker_gave_up;
  std::atomic<std::uint32_t> agent_writes;
  Failure failure;
};

using RequestWriter = RingWriter<Request, 1024>;
using RequestReader = RingReader<Request, 1024>;
using AnswerWriter = RingWriter<Answer, 1024>;
using AnswerReader = RingReader<Answer, 1024>;

// The undo log is a row of slots. Overwritten bytes follow a slot's header, in as many slots as they need.
constexpr std::size_t kPartElements = kSliceElements;  // parts run the schedule as slices do: the same bits
constexpr std::size_t kSlotHeaderBytes = 4096;
constexpr std::size_t kSlotDataBytes = kPartElements * 4;  // a part of an all-reduce at most
constexpr std::size_t kSlotBytes = kSlotHeaderBytes + kSlotDataBytes;

struct SlotHeader {
  std::atomic<std::uint64_t> ticket;  // of the request that overwrote it, or is about to; 0: of none
  std::uint64_t address, size_bytes;  // where it belongs in the worker
};

}  // namespace netfold::group
