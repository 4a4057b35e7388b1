#include "switch/protocols/roce/roce_handler.h"

#include <algorithm>

namespace netfold::switching {
namespace {

namespace roce = wire::roce;

// The most elements that 1024 bytes hold: bfp with a mantissa of two bits takes 3/8 of a byte for each.
constexpr std::size_t kElementsMax = roce::kPathMtu * 8 / 3;
constexpr Nanoseconds kHandover = kSecond;

bool is_newer(std::uint16_t epoch, std::uint16_t than) {
  return static_cast<std::int16_t>(epoch - than) > 0;
}

}  // namespace

RoceHandler::RoceHandler(roce::Version version, const AggregationSettings& settings, RoceOwners& owners,
                         RoceOptions options)
    : version_(version),
      settings_(settings),
      owners_(owners),
      options_(options),
      folder_(kElementsMax, AggregationConfig::kPortsMax) {
  jobs_.reserve(options.jobs_max);
}

HandlerVerdict RoceHandler::offer(const ParsedFrame& frame, Outbox& outbox) {
  if (!recognises(frame)) return HandlerVerdict::kNotMine;
  if (frame.ether_type == roce::kNoticeEtherType) return on_notice(frame, outbox);
  const RoceVerdict verdict = judge(frame, outbox);
  verdicts_[static_cast<std::size_t>(verdict)].add(1);
  switch (verdict) {
    case RoceVerdict::kForwarded: return HandlerVerdict::kNotMine;
    case RoceVerdict::kKept:
    case RoceVerdict::kFolded:
    case RoceVerdict::kAnswered: return HandlerVerdict::kTaken;
    default: return HandlerVerdict::kDropped;
  }
}

std::uint16_t RoceHandler::thread_of(const ParsedFrame& frame, std::uint16_t threads) const {
  if (threads == 1) return 0;
  if (frame.ether_type == roce::kNoticeEtherType) {
    const auto notice = roce::parse_notice(frame.content());
    return notice ? static_cast<std::uint16_t>(notice->job % threads) : kAnyThread;
  }
  roce::Packet packet;
  if (roce::parse(frame.content(), packet, version_) != roce::ParseError::kNone) return kAnyThread;
  const RoceOwners::Connection connection{frame.frame.port, frame.to.number, packet.header.queue_pair};
  switch (packet.header.opcode) {
    case roce::Opcode::kWriteFirst: {
      roce::AggregationHeader header;
      const bool is_ours = roce::parse(packet.payload, header, version_) == roce::AggregationError::kNone;
      if (!is_ours || !roce::icrc_is_right(packet.packet))
        return kAnyThread;  // a damaged one must not change any owner
      const auto owner = static_cast<std::uint16_t>(header.job % threads);
      owners_.set(connection, owner);
      return owner;
    }
    case roce::Opcode::kWriteMiddle:
    case roce::Opcode::kWriteLast:
    case roce::Opcode::kWriteLastImmediate: return owners_.find(connection).value_or(kAnyThread);
    default: return kAnyThread;
  }
}

RoceVerdict RoceHandler::judge(const ParsedFrame& parsed, Outbox& outbox) {
  RoceFrame frame{parsed, {}};
  switch (roce::parse(parsed.content(), frame.packet, version_)) {
    case roce::ParseError::kNone: break;
    case roce::ParseError::kOpcode: return RoceVerdict::kForwarded;
    default: return RoceVerdict::kMalformed;
  }
  switch (frame.packet.header.opcode) {
    case roce::Opcode::kWriteFirst: {
      roce::AggregationHeader header;
      const roce::AggregationError error = roce::parse(frame.packet.payload, header, version_);
      if (error == roce::AggregationError::kForeign) return RoceVerdict::kForwarded;
      if (!roce::icrc_is_right(frame.packet.packet)) return RoceVerdict::kBadIcrc;
      if (error != roce::AggregationError::kNone) return RoceVerdict::kBadHeader;
      return on_first(frame, header, outbox);
    }
    case roce::Opcode::kWriteMiddle:
    case roce::Opcode::kWriteLast:
    case roce::Opcode::kWriteLastImmediate: {
      RoceJob* const job = job_of_connection(frame);
      if (job == nullptr) return is_whole_sum(frame) ? RoceVerdict::kPsn : RoceVerdict::kForwarded;
      if (!roce::icrc_is_right(frame.packet.packet)) return RoceVerdict::kBadIcrc;
      if (!has_room_for(*job, frame)) return RoceVerdict::kNoRoom;
      return job->on_later(frame, folder_, outbox);
    }
    default: return RoceVerdict::kForwarded;
  }
}

RoceVerdict RoceHandler::on_first(const RoceFrame& frame, const roce::AggregationHeader& header, Outbox& outbox) {
  RoceJob* job = job_named(header.job);
  if (job == nullptr || is_newer(header.epoch, job->epoch())) {
    AggregationConfig config = settings_.of(header.job, outbox.ports());
    if (!config.has(frame.frame.frame.port)) return RoceVerdict::kForwarded;
    if (header.workers == config.workers()) config.uplink = link::kNoPort;  // all of them are here
    if (job != nullptr) {
      forget(*job, outbox);
    } else if (jobs_.size() >= options_.jobs_max) {
      return RoceVerdict::kNoJob;
    }
    jobs_.push_back(std::make_unique<RoceJob>(header.job, header.epoch, config, outbox.time()));
    job = jobs_.back().get();
    epochs_.add(1);
  }
  if (!job->takes_from(frame.frame.frame.port)) return RoceVerdict::kForwarded;
  if (header.epoch != job->epoch()) return RoceVerdict::kStaleEpoch;
  if (!has_room_for(*job, frame)) return RoceVerdict::kNoRoom;
  if (is_of_another(*job, frame, outbox.time())) return RoceVerdict::kSpoofed;
  const std::uint64_t restarts = job->restarts();
  const RoceVerdict verdict = job->on_first(frame, header, folder_, outbox);
  restarts_.add(job->restarts() - restarts);
  return verdict;
}

// A sum from above takes no room: it makes some.
bool RoceHandler::has_room_for(const RoceJob& job, const RoceFrame& frame) const {
  return held_frames() < options_.held_frames_max || job.is_uplink(frame.frame.frame.port);
}

// One from the switch above, of a connection whose first packet was lost on its way. Its worker must not get it before
// this leaf has it, for all its ranks: that worker would acknowledge it, and it would not come again.
bool RoceHandler::is_whole_sum(const RoceFrame& frame) const {
  return roce::is_marked_as_sum(frame.packet.header) &&
         std::ranges::any_of(jobs_, [&](const auto& job) { return job->is_uplink(frame.frame.frame.port); });
}

// From the switch above. All other notices are on their way to a worker, and are forwarded.
HandlerVerdict RoceHandler::on_notice(const ParsedFrame& frame, Outbox& outbox) {
  const auto notice = roce::parse_notice(frame.content());
  if (!notice) return HandlerVerdict::kNotMine;
  const RoceJob* const job = job_named(notice->job);
  if (job == nullptr || job->epoch() != notice->epoch || !job->is_uplink(frame.frame.port)) {
    return HandlerVerdict::kNotMine;
  }
  job->pass_on(*notice, outbox);
  outbox.pool().release({&frame.frame.buffer, 1});
  return HandlerVerdict::kTaken;
}

// A connection is one job's. It becomes another's only when the first job has shown no sign of life for a while.
bool RoceHandler::is_of_another(const RoceJob& job, const RoceFrame& frame, Nanoseconds now) {
  const link::PortNumber port = frame.frame.frame.port;
  for (const auto& other : jobs_) {
    if (other.get() == &job || !other->has_connection(port, frame.frame.to.number, frame.packet.header.queue_pair)) {
      continue;
    }
    if (now - other->last_sign() < kHandover) return true;
    other->forget_connection(port, frame.frame.to.number, frame.packet.header.queue_pair);
  }
  return false;
}

RoceJob* RoceHandler::job_of_connection(const RoceFrame& frame) {
  for (const auto& job : jobs_) {
    if (job->has_connection(frame.frame.frame.port, frame.frame.to.number, frame.packet.header.queue_pair)) {
      return job.get();
    }
  }
  return nullptr;
}

RoceJob* RoceHandler::job_named(std::uint16_t number) {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [=](const auto& job) { return job->job() == number; });
  return found == jobs_.end() ? nullptr : found->get();
}

void RoceHandler::forget(RoceJob& gone, Outbox& outbox) {
  gone.release_all(outbox);
  std::erase_if(jobs_, [&](const auto& job) { return job.get() == &gone; });
}

std::size_t RoceHandler::held_frames() const {
  std::size_t frames = 0;
  for (const auto& job : jobs_) frames += job->held_frames();
  return frames;
}

void RoceHandler::on_time(Nanoseconds now, Outbox& outbox) {
  if (now - swept_ < kSweepPeriod) return;
  swept_ = now;
  for (std::size_t i = jobs_.size(); i-- > 0;) {
    aged_.add(jobs_[i]->release_old(now - options_.age_max, outbox));
    if (now - jobs_[i]->last_sign() > options_.idle_max) forget(*jobs_[i], outbox);
  }
}

void RoceHandler::drain(Outbox& outbox) {
  while (!jobs_.empty()) forget(*jobs_.back(), outbox);
}

std::vector<std::pair<std::string, std::uint64_t>> RoceHandler::counts() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (std::size_t i = 0; i < verdicts_.size(); ++i) {
    const auto verdict = static_cast<RoceVerdict>(i);
    all.emplace_back(std::string(is_drop(verdict) ? "drop_" : "") + name_of(verdict), verdicts_[i].get());
  }
  all.emplace_back("aged", aged_.get());
  all.emplace_back("restarted_connections", restarts_.get());
  all.emplace_back("epochs", epochs_.get());
  return all;
}

}  // namespace netfold::switching
