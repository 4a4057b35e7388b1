// A schedule says who sends which elements to whom at which step, and whether they are folded or stored there. It is
// data: a pure function of (collective, algorithm, world, rank, count). The runtime executes it, the simulator times
// it, the hardware's tests compare against it, and it can be printed, drawn and exported.
//
// Semantics. A rank sends in a step what its buffer holds when the step begins. When the step ends, it folds or stores
// what it has received. Two ranks exchange in the order in which their steps name each other; a step waits for nothing
// but its own transfers. In one step no element is received twice. In a reduce-scatter or an all-gather no transfer has
// elements of two ranks' parts: parts need not lie side by side in memory, and the blocks of bfp begin anew in each.
//
// A new algorithm is one file with one pure function, and one line in the table of schedule.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace netfold::schedule {

enum class Action : std::uint8_t {
  kSend,
  kFold,   // receive and add
  kStore,  // receive and keep
};

constexpr int kSwitch = -1;  // the peer of in-network folding

// Algorithms that are chosen by their names.
constexpr const char *kDirect = "direct", *kRing = "ring";

struct Transfer {
  Action action;
  int peer;
  std::size_t offset, count;  // elements; a count of 0 is a signal without data (barrier)

  bool operator==(const Transfer&) const = default;
};

using Step = std::vector<Transfer>;
using Steps = std::vector<Step>;  // of one rank

enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kReduce,
  kAllToAll,  // this and the next two: exchange.h
  kGather,
  kScatter,
  kSend,  // this and the next have no schedule: two ranks exchange a message
  kReceive,
};

// Ranks' memory has no buffer in common (exchange.h).
constexpr bool is_exchange(Collective collective) {
  return collective == Collective::kAllToAll || collective == Collective::kGather || collective == Collective::kScatter;
}
constexpr bool is_message(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kReceive;
}

// Elements [offset, offset + count) of a buffer.
struct Segment {
  std::size_t offset, count;

  bool operator==(const Segment&) const = default;
};

// Part `index` of `whole` cut into `parts` as equal as can be: the first ones are longer by one. This is also what
// rank `index` owns in a reduce-scatter or an all-gather. Cuts fall on multiples of `align`, if `whole` starts at one.
Segment part_of(Segment whole, int parts, int index, std::size_t align = 1);

// One of algorithms(), with its parameters.
struct Algorithm {
  std::string name = kRing;
  int sub_nodes = 0, switches = 0;  // hdrm: a BiGraph of `switches` with `sub_nodes` each
  int group = 0;                    // hierarchical: ranks of one machine, neighbours in rank order
  std::string between = kRing;      // hierarchical: the algorithm between machines

  bool operator==(const Algorithm&) const = default;
};

struct Request {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = {};
  int world = 1;
  int rank = 0;
  std::size_t count = 0;  // elements of the whole buffer
  std::size_t align = 1;  // segments are cut at multiples of it, so that bfp blocks stay whole
  int root = 0;           // broadcast, reduce
  // hdrm: the rank at each physical position, of which there are sub_nodes times switches. If there are more ranks, as
  // many entries more: the rank that hands its elements over to that position, or -1. Empty: ranks in physical order.
  std::vector<int> order = {};
};

// kInvalidArgument if the algorithm is unknown, or cannot serve this request; the message names what can.
Result<Steps> make(const Request& request);

// The schedules of all ranks, whatever `request.rank` is: what they have in common (hdrm's mapping) is made once.
using ByRank = std::function<Result<Steps>(int rank)>;
Result<ByRank> make_all(const Request& request);

struct AlgorithmInfo {
  const char* name;
  const char* what;  // one line for people, with its source
};
std::span<const AlgorithmInfo> algorithms();

// Whether every step of it is a swap between two partners, others in the next step.
bool swaps_halves(std::string_view algorithm);

// Whether a rank folds at once what all ranks have of its segment, in rank order: then sums have the bits of the
// in-network fold, in every format.
bool folds_in_rank_order(std::string_view algorithm);

// Whether its all-reduces always have the bits of the in-network fold in this world. `rounds`: whether the format that
// travels is narrower than what is folded. Then partial sums, which most algorithms send, are rounded on the way, and a
// switch rounds once.
bool sums_in_rank_order(std::string_view algorithm, int world, bool rounds);

// The algorithm for a tensor of this size when nothing was measured. Among ranks that share memory: direct, at any
// size. Else below 32 KiB recursive-doubling (log n steps, and latency is all that counts); up to 1 MiB, where n is a
// power of two, halving-doubling (2 log n steps of few bytes; for other n some ranks would hand over their whole tensor
// first); above, or for other n, the ring (a rank sends 2(n-1)/n of the tensor, whatever n is).
const char* usual(std::size_t size_bytes, int world, bool share_memory);
// The same, or direct where it would sum in another order (sums_in_rank_order).
const char* usual_in_rank_order(std::size_t size_bytes, int world, bool share_memory, bool rounds);

const char* name_of(Action action);
const char* name_of(Collective collective);
Result<Collective> collective_named(std::string_view name);

}  // namespace netfold::schedule
