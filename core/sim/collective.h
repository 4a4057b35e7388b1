// A collective as a workload: the schedules of all ranks (core/schedule), put together. When a transfer may start is
// a parameter, because it matters more than anything else that a simulator could leave out:
//   kLockStep    when everybody has ended the step before
//   kOwnReceive  when the sender's receives of the steps before have ended (it need not have sent everything)
//   kRendezvous  when both partners have ended the step before: what this project's runtime does where partners swap
//   kPieces      when the elements to send are there: transfers are cut into pieces, and each piece goes as soon as the
//                pieces that it was folded or stored from are in. What the runtime does elsewhere
#pragma once

#include <string>

#include "base/result.h"
#include "schedule/schedule.h"
#include "sim/workload.h"

namespace netfold::sim {

enum class Start : std::uint8_t { kLockStep, kOwnReceive, kRendezvous, kPieces };

// Also "runtime": what the runtime does with that algorithm.
Result<Start> start_named(std::string_view name, std::string_view algorithm);
const char* name_of(Start start);

struct Timing {
  Start start = Start::kLockStep;
  double element_bits = 32;         // on the wire, headers and all
  double step_latency_s = 0;        // before each transfer: the time that software and NICs need for a message
  std::size_t piece_count = 16384;  // kPieces: elements
};

using Schedules = schedule::ByRank;

// kInvalidArgument naming the rank, its step and its peer where a send has no receive, a receive no send, or both do
// not agree on the count.
Result<Workload> workload_of(int world, const Schedules& schedules, const Timing& timing);

}  // namespace netfold::sim
