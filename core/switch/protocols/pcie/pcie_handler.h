// The handler of PCIe over Ethernet. Every write continues to its host unmodified, because the bridges' own reliability
// needs that, and the switch folds the writes that pass. The sum is delivered to the host as one more write.
//
// Each write names its chunk; a job has kSlots of them at a time, chunk c in slot c mod kSlots. A slot gathers one
// chunk, known by its number, in a copy of each worker's 128 bytes. The sum of the slot's last chunk is kept: a write
// that comes again because its host missed something is answered with the sum as well. A write that cannot be folded
// still reaches the host, which can add it up itself. (A worker runs further ahead than the slots reach, or a frame is
// damaged.) Such writes are counted. Source: dpdk-switch, section 4.2.2 (case 2).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/counter.h"
#include "numbers/fold.h"
#include "switch/ethernet/protocol_handler.h"
#include "wire/pcie.h"

namespace netfold::switching {

struct PcieOptions {
  std::size_t jobs_max = 8;
  std::uint32_t slots = 1024;  // a power of two
  std::uint16_t world_max = 64;
  Nanoseconds age_max = 10 * kSecond;    // a chunk that has waited so long is given up
  Nanoseconds idle_max = 120 * kSecond;  // a job that sends nothing for so long is forgotten
};

// The outcome of a write. All go on to the host.
enum class PcieVerdict : std::uint8_t {
  kKept,
  kFolded,     // the write that completed its chunk
  kAnswered,   // it came again: the kept sum was delivered again
  kDuplicate,  // it came again, and others are missing
  kSum,        // another switch's: passes
  kMalformed,
  kStaleEpoch,
  kMismatch,  // workers disagree about world, format, host or sum address
  kStale,     // the slot has gone on
  kAhead,     // the slot still gathers an earlier chunk
  kNoJob,     // too many jobs, or too many workers in one
  kNoBuffer,  // none for the sum
  kCount,
};
const char* name_of(PcieVerdict verdict);

class PcieHandler final : public ProtocolHandler {
 public:
  explicit PcieHandler(PcieOptions options = {});

  HandlerVerdict offer(const ParsedFrame& frame, Outbox& outbox) override;
  void on_burst(std::span<const link::Frame> frames) override;
  void on_time(Nanoseconds now, Outbox& outbox) override;
  bool recognises(const ParsedFrame& frame) const override { return frame.ether_type == wire::pcie::kEtherType; }
  // Chunks of one host are shared out; every thread has slots of its own for those that are its.
  std::uint16_t thread_of(const ParsedFrame& frame, std::uint16_t threads) const override;
  bool only_reads() const override { return true; }
  void drain(Outbox&) override {
    forget_jobs([](const Job&) { return true; });
  }
  const char* name() const override { return "pcie"; }
  std::vector<std::pair<std::string, std::uint64_t>> counts() const override;
  std::uint64_t count(PcieVerdict verdict) const { return verdicts_[static_cast<std::size_t>(verdict)].get(); }

 private:
  struct Slot {
    std::uint64_t arrived = 0;  // ranks
    std::uint32_t chunk = 0;    // that is gathered, if any rank has arrived
    std::uint32_t sum_of = 0;   // chunk
    std::uint32_t room = 0;     // where its data is gathered, if any rank has arrived
    bool has_sum = false;
    std::uint64_t sum_address = 0;
    Nanoseconds first_at = 0;
  };
  struct Job {
    Job(const wire::pcie::Write& first, MacAddress host, const PcieOptions& options);

    wire::pcie::Pattern pattern;  // of its writes
    MacAddress host;
    std::uint16_t number, epoch, world;
    numbers::Format format;
    std::uint64_t all_ranks;
    std::uint32_t sequence = 0;  // of the sums
    Nanoseconds last_write = 0;
    std::vector<Slot> slots;
    // The writes that are collected now lie in few buffers, those used last, and so in the cache, however many slots
    // there are.
    std::vector<std::byte> data;                               // buffers, as many as slots, x world x 128 bytes
    std::vector<std::uint32_t> free_rooms;                     // a stack
    std::vector<std::byte> sums;                               // slots x 128 bytes
    std::array<std::byte, wire::pcie::kFrameBytes> sum_frame;  // but what differs from sum to sum
  };

  PcieVerdict judge(const ParsedFrame& frame, Outbox& outbox);
  PcieVerdict contribute(Job& job, const wire::pcie::Pattern::Place& write, std::span<const std::byte> data,
                         Outbox& outbox);
  PcieVerdict fold(Job& job, std::uint32_t index, Outbox& outbox);
  bool deliver(Job& job, std::uint32_t index, Outbox& outbox);
  template <class If>
  void forget_jobs(If is_to_go) {
    last_job_ = nullptr;
    std::erase_if(jobs_, [&](const auto& job) { return is_to_go(*job); });
  }
  Job* job_of(const wire::pcie::Write& write, MacAddress host, PcieVerdict& verdict);

  PcieOptions options_;
  std::vector<std::unique_ptr<Job>> jobs_;
  Job* last_job_ = nullptr;  // of the last write: mostly the next one's too
  numbers::Folder folder_;
  std::vector<const std::byte*> fold_inputs_;
  Nanoseconds swept_ = 0;
  std::array<Counter, static_cast<std::size_t>(PcieVerdict::kCount)> verdicts_;
  Counter aged_;
};

}  // namespace netfold::switching
