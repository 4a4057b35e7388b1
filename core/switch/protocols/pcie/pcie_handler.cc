#include "switch/protocols/pcie/pcie_handler.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <numeric>

#include "base/memory_units.h"
#include "base/names.h"
#include "wire/bytes.h"
#include "wire/roce_notice.h"

namespace netfold::switching {
namespace {

namespace pcie = wire::pcie;

constexpr std::size_t kChunkAt = 14;  // in the cover; wire/pcie.h

}  // namespace

const char* name_of(PcieVerdict verdict) {
  constexpr const char* kNames[]{"kept",  "folded",   "answered", "duplicate", "sum",  "malformed",
                                 "epoch", "mismatch", "stale",    "ahead",     "jobs", "buffers"};
  return name_in(kNames, verdict);
}

PcieHandler::Job::Job(const pcie::Write& first, MacAddress its_host, const PcieOptions& options)
    : pattern(first),
      host(its_host),
      number(first.job),
      epoch(first.epoch),
      world(first.world),
      format(first.format),
      all_ranks(~std::uint64_t{0} >> (64 - first.world)),
      slots(options.slots),
      data(std::size_t{options.slots} * first.world * pcie::kDataBytes),
      free_rooms(options.slots),
      sums(std::size_t{options.slots} * pcie::kDataBytes) {
  std::iota(free_rooms.rbegin(), free_rooms.rend(), 0u);
  host.write(sum_frame.data());
  MacAddress{wire::roce::kSwitchAddress}.write(sum_frame.data() + MacAddress::kBytes);
  write_u16(sum_frame.data() + 2 * MacAddress::kBytes, pcie::kEtherType);
  pcie::Write sum;
  sum.kind = pcie::Kind::kSum;
  sum.format = format;
  sum.job = number;
  sum.epoch = epoch;
  sum.rank = pcie::kSwitchRank;
  sum.world = world;
  pcie::emit(sum, std::span(sum_frame).subspan(pcie::kEthernetBytes));
}

PcieHandler::PcieHandler(PcieOptions options)
    : options_(options), folder_(pcie::kElements, options.world_max), fold_inputs_(options.world_max) {
  assert(std::has_single_bit(options.slots) && options.world_max <= 64);
}

std::uint16_t PcieHandler::thread_of(const ParsedFrame& frame, std::uint16_t threads) const {
  const auto content = frame.content();
  if (content.size() < pcie::kPacketBytes) return 0;
  return static_cast<std::uint16_t>(wire::get_big<std::uint32_t>(content, kChunkAt) % threads);
}

HandlerVerdict PcieHandler::offer(const ParsedFrame& frame, Outbox& outbox) {
  if (frame.ether_type != pcie::kEtherType || !outbox.settings().folds(frame.frame.port))
    return HandlerVerdict::kNotMine;
  const PcieVerdict verdict = judge(frame, outbox);
  verdicts_[static_cast<std::size_t>(verdict)].add(1);
  return HandlerVerdict::kForward;
}

// The pipeline itself reads but a frame's first line.
void PcieHandler::on_burst(std::span<const link::Frame> frames) {
  for (const link::Frame& frame : frames) {
    if (frame.size_bytes != pcie::kFrameBytes) continue;
    for (std::size_t line = kCacheLineBytes; line < pcie::kFrameBytes; line += kCacheLineBytes) {
      __builtin_prefetch(frame.bytes + line);
    }
  }
}

PcieVerdict PcieHandler::judge(const ParsedFrame& frame, Outbox& outbox) {
  pcie::Pattern::Place place;
  if (last_job_ != nullptr && last_job_->host == frame.to && last_job_->pattern.fits(frame.content(), place)) {
    last_job_->last_write = outbox.time();
    return contribute(*last_job_, place, pcie::data_of(frame.content()), outbox);
  }
  pcie::Write write;
  std::span<const std::byte> data;
  if (pcie::parse(frame.content(), write, data) != pcie::ParseError::kNone) return PcieVerdict::kMalformed;
  if (write.kind == pcie::Kind::kSum) return PcieVerdict::kSum;
  PcieVerdict refusal = PcieVerdict::kNoJob;
  Job* const job = job_of(write, frame.to, refusal);
  if (job == nullptr) return refusal;
  last_job_ = job;
  job->last_write = outbox.time();
  return contribute(*job, {write.rank, write.chunk, write.sum_address}, data, outbox);
}

PcieHandler::Job* PcieHandler::job_of(const pcie::Write& write, MacAddress host, PcieVerdict& refusal) {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job->number == write.job; });
  if (found != jobs_.end()) {
    Job& job = **found;
    if (job.epoch == write.epoch) {
      const bool agrees = job.world == write.world && job.format == write.format && job.host == host;
      if (!agrees) refusal = PcieVerdict::kMismatch;
      return agrees ? &job : nullptr;
    }
    if (static_cast<std::int16_t>(write.epoch - job.epoch) < 0) {
      refusal = PcieVerdict::kStaleEpoch;
      return nullptr;
    }
    forget_jobs([&](const Job& gone) { return &gone == &job; });
  }
  if (jobs_.size() >= options_.jobs_max || write.world > options_.world_max) return nullptr;
  jobs_.push_back(std::make_unique<Job>(write, host, options_));
  return jobs_.back().get();
}

PcieVerdict PcieHandler::contribute(Job& job, const pcie::Pattern::Place& write, std::span<const std::byte> data,
                                    Outbox& outbox) {
  const std::uint32_t index = write.chunk & (options_.slots - 1);
  Slot& slot = job.slots[index];
  if (slot.has_sum && distance(write.chunk, slot.sum_of) <= 0) {
    if (write.chunk != slot.sum_of) return PcieVerdict::kStale;
    return deliver(job, index, outbox) ? PcieVerdict::kAnswered : PcieVerdict::kNoBuffer;
  }
  if (slot.arrived != 0 && slot.chunk != write.chunk) {
    return distance(write.chunk, slot.chunk) < 0 ? PcieVerdict::kStale : PcieVerdict::kAhead;
  }
  const std::uint64_t rank = std::uint64_t{1} << write.rank;
  if ((slot.arrived & rank) != 0) return PcieVerdict::kDuplicate;
  if (slot.arrived == 0) {
    slot.chunk = write.chunk;
    slot.first_at = outbox.time();
    slot.sum_address = write.sum_address;
    slot.room = job.free_rooms.back();
    job.free_rooms.pop_back();
  } else if (slot.sum_address != write.sum_address) {
    return PcieVerdict::kMismatch;
  }
  const std::size_t at = (std::size_t{slot.room} * job.world + write.rank) * pcie::kDataBytes;
  std::memcpy(job.data.data() + at, data.data(), pcie::kDataBytes);
  slot.arrived |= rank;
  return slot.arrived == job.all_ranks ? fold(job, index, outbox) : PcieVerdict::kKept;
}

PcieVerdict PcieHandler::fold(Job& job, std::uint32_t index, Outbox& outbox) {
  Slot& slot = job.slots[index];
  const std::byte* const gathered = job.data.data() + std::size_t{slot.room} * job.world * pcie::kDataBytes;
  for (std::size_t each = 0; each < job.world; ++each) fold_inputs_[each] = gathered + each * pcie::kDataBytes;
  folder_.fold({job.format}, std::span(fold_inputs_).first(job.world), pcie::kElements,
               job.sums.data() + index * pcie::kDataBytes);
  job.free_rooms.push_back(slot.room);
  slot.arrived = 0;
  slot.has_sum = true;
  slot.sum_of = slot.chunk;
  return deliver(job, index, outbox) ? PcieVerdict::kFolded : PcieVerdict::kNoBuffer;
}

bool PcieHandler::deliver(Job& job, std::uint32_t index, Outbox& outbox) {
  link::Frame frame = outbox.pool().allocate();
  if (frame.buffer == nullptr) return false;  // a write that comes again will ask for it
  const Slot& slot = job.slots[index];
  constexpr std::size_t kDataAt = pcie::kEthernetBytes + pcie::kCoverBytes + pcie::kHeaderBytes;
  constexpr std::size_t kDataEnd = kDataAt + pcie::kDataBytes;
  std::memcpy(frame.bytes, job.sum_frame.data(), kDataAt);
  std::memcpy(frame.bytes + kDataAt, job.sums.data() + index * pcie::kDataBytes, pcie::kDataBytes);
  std::memcpy(frame.bytes + kDataEnd, job.sum_frame.data() + kDataEnd, pcie::kFrameBytes - kDataEnd);
  pcie::readdress({frame.bytes + pcie::kEthernetBytes, pcie::kPacketBytes}, job.sequence++, slot.sum_of,
                  slot.sum_address);
  frame.size_bytes = pcie::kFrameBytes;
  frame.port = link::kNoPort;
  outbox.forward(job.host, frame);
  return true;
}

void PcieHandler::on_time(Nanoseconds now, Outbox&) {
  if (now - swept_ < kSweepPeriod) return;
  swept_ = now;
  forget_jobs([&](const Job& job) { return now - job.last_write > options_.idle_max; });
  for (const auto& job : jobs_) {
    for (Slot& slot : job->slots) {
      if (slot.arrived == 0 || now - slot.first_at < options_.age_max) continue;
      slot.arrived = 0;
      job->free_rooms.push_back(slot.room);
      aged_.add(1);
    }
  }
}

std::vector<std::pair<std::string, std::uint64_t>> PcieHandler::counts() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (std::size_t i = 0; i < verdicts_.size(); ++i) {
    const auto verdict = static_cast<PcieVerdict>(i);
    const bool is_unfolded = verdict >= PcieVerdict::kMalformed;
    all.emplace_back(std::string(is_unfolded ? "drop_" : "") + name_of(verdict), verdicts_[i].get());
  }
  all.emplace_back("aged", aged_.get());
  return all;
}

}  // namespace netfold::switching
