// The handler of RoCE of one version: a switch has one for each. It folds the writes of RDMA NICs as NetReduce defines
// them, and forwards all other RoCE frames. A job's workers speak one version. Table VI of allreduce-switch says what
// happens to a frame:
//
//   | frame                        | aggregation header | queue pair       | done                                     |
//   |------------------------------|--------------------|------------------|------------------------------------------|
//   | not RoCE of this version     |                    |                  | forwarded                                |
//   | another opcode               |                    |                  | forwarded                                |
//   | Write First                  | matches            |                  | folded; its queue pair is the job's now  |
//   | Write First                  | does not           |                  | forwarded                                |
//   | Write Middle, Last (with Imm)|                    | that of a job    | folded                                   |
//   | Write Middle, Last (with Imm)|                    | another          | forwarded                                |
//
// A leaf of a tree of switches also folds what comes from the switch above (roce_job.h).
//
// Beyond the paper: jobs and epochs are told apart by the header, lost and doubled packets by message number; ICRCs are
// checked; contributions of workers that went away are released after a time, and every drop has a reason.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/counter.h"
#include "switch/ethernet/aggregation_config.h"
#include "switch/ethernet/protocol_handler.h"
#include "switch/protocols/roce/roce_job.h"
#include "switch/protocols/roce/roce_owners.h"

namespace netfold::switching {

struct RoceOptions {
  std::size_t jobs_max = 16;
  std::size_t held_frames_max = 16384;   // contributions that wait, of all jobs; the pool must hold more
  Nanoseconds age_max = 10 * kSecond;    // a contribution that has waited so long is released
  Nanoseconds idle_max = 120 * kSecond;  // a job that sends nothing for so long is forgotten
};

class RoceHandler final : public ProtocolHandler {
 public:
  // `settings` and `owners`, which the handlers of all threads share, outlive the handler.
  RoceHandler(wire::roce::Version version, const AggregationSettings& settings, RoceOwners& owners,
              RoceOptions options = {});

  HandlerVerdict offer(const ParsedFrame& frame, Outbox& outbox) override;
  void on_time(Nanoseconds now, Outbox& outbox) override;
  bool recognises(const ParsedFrame& frame) const override {
    if (frame.ether_type == wire::roce::kNoticeEtherType) return true;
    if (version_ == wire::roce::Version::kV1) return frame.ether_type == kRoceType;
    return frame.has_udp && frame.udp.to == wire::roce::kUdpPort;
  }
  // Jobs are distributed over threads by their numbers. The thread that received a frame of no job keeps it.
  std::uint16_t thread_of(const ParsedFrame& frame, std::uint16_t threads) const override;
  void drain(Outbox& outbox) override;
  const char* name() const override { return version_ == wire::roce::Version::kV1 ? "roce_v1" : "roce_v2"; }
  std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

  std::uint64_t count(RoceVerdict verdict) const { return verdicts_[static_cast<std::size_t>(verdict)].get(); }
  std::size_t held_frames() const;

 private:
  RoceVerdict judge(const ParsedFrame& frame, Outbox& outbox);
  HandlerVerdict on_notice(const ParsedFrame& frame, Outbox& outbox);
  bool is_whole_sum(const RoceFrame& frame) const;
  bool has_room_for(const RoceJob& job, const RoceFrame& frame) const;
  RoceVerdict on_first(const RoceFrame& frame, const wire::roce::AggregationHeader& header, Outbox& outbox);
  bool is_of_another(const RoceJob& job, const RoceFrame& frame, Nanoseconds now);
  RoceJob* job_of_connection(const RoceFrame& frame);
  RoceJob* job_named(std::uint16_t job);
  void forget(RoceJob& job, Outbox& outbox);

  const wire::roce::Version version_;
  const AggregationSettings& settings_;
  RoceOwners& owners_;
  RoceOptions options_;
  std::vector<std::unique_ptr<RoceJob>> jobs_;
  numbers::Folder folder_;
  Nanoseconds swept_ = 0;
  std::array<Counter, static_cast<std::size_t>(RoceVerdict::kCount)> verdicts_;
  Counter aged_, restarts_, epochs_;
};

}  // namespace netfold::switching
