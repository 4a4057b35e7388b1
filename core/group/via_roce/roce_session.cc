#include "group/via_roce/roce_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace netfold::group {
namespace {

namespace roce = wire::roce;

constexpr Nanoseconds kLinger = 50 * kMillisecond, kLeaveMost = 2 * kSecond;  // bounded: the neighbours may be gone

constexpr const char* kTakesOneWay =
    "; a switch without one-way messages, such as an older one, drops them: leave out one-way at all ranks";

roce::Way way_of(schedule::Collective collective) {
  if (collective == schedule::Collective::kAllReduce) return roce::Way::kToAll;
  return RequestPieces::copies(collective) ? roce::Way::kFromGiver : roce::Way::kToOwner;
}

}  // namespace

Result<std::unique_ptr<Prepared>> RoceSession::prepare(const CollectiveRequest& request) {
  const auto valid = job_.one_way ? check_in_network(request, job_.world) : check_all_reduce(request);
  if (!valid) return tl::unexpected(valid.error());
  if (request.is_encoded) return fail(ErrorCode::kInvalidArgument, "RoCE takes no encoded elements");
  return nullptr;
}

void RoceSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared>) {
  const bool copies = RequestPieces::copies(request.collective);
  const MessageLayout layout({copies ? numbers::Format::kNone : request.format, job_.bfp}, job_.message_packets);
  RequestPieces pieces(request, layout.wire(), layout.elements_a_message(), job_.world, job_.rank);
  if (pieces.count() == 0) {
    finished_.push_back(ticket);
    return;
  }
  has_begun_ = has_begun_ || is_idle();
  pieces.start(buffers_);
  operations_.push_back({ticket, request, layout, std::move(pieces), end_});
  end_ = operations_.back().end();
}

Result<bool> RoceSession::pump(Nanoseconds now) {
  if (std::exchange(has_begun_, false)) last_progress_ = now;
  do {
    const auto pumped = channel_.pump(now);
    if (!pumped) return tl::unexpected(pumped.error());
    link_is_full_ = *pumped;
  } while (step(now) && !link_is_full_);
  if (failure_) return tl::unexpected(*failure_);
  if (const auto error = overdue(now)) return tl::unexpected(*error);
  return false;  // what comes next is seen by polling
}

bool RoceSession::step(Nanoseconds now) {
  const std::uint64_t acknowledged = channel_.acknowledged();
  listen_to_switch();
  while (!failure_) {
    const auto arrived = channel_.take();
    if (!arrived) break;
    store(*arrived, now);
  }
  bool has_posted = false;
  while (!failure_ && posted_ < end_ && posted_ < std::min(acknowledged, arrived_) + roce::kWindowMessages) {
    has_posted |= post(now);
  }
  return has_posted;
}

RoceSession::Operation* RoceSession::operation_of(std::uint64_t message) {
  for (Operation& operation : operations_) {
    if (message >= operation.first && message < operation.end()) return &operation;
  }
  return nullptr;
}

roce::AggregationHeader RoceSession::header_of(const Operation& operation, std::uint64_t message) const {
  const RequestPieces::Piece piece = operation.piece(message);
  roce::AggregationHeader header;
  header.format = operation.layout.wire().format;
  if (message + 1 == operation.end()) header.flags = roce::kEndsTensor;
  header.job = job_.job;
  header.epoch = job_.epoch;
  header.rank = job_.rank;
  header.way = way_of(operation.request.collective);
  // A barrier has no giver, and so takes rank 0; a type tells it from a broadcast.
  if (operation.request.collective == schedule::Collective::kBarrier) header.format = numbers::Format::kInt32;
  if (piece.owner != RequestPieces::kNoOwner) header.other = static_cast<std::uint8_t>(piece.owner);
  const bool says_workers = version_ == roce::Version::kV2 && job_.world <= roce::kWorkersMax;
  if (says_workers) header.workers = static_cast<std::uint8_t>(job_.world);
  if (header.format == numbers::Format::kBfp) {
    header.block = job_.bfp.block;
    header.mantissa = job_.bfp.mantissa;
  }
  header.message = static_cast<std::uint32_t>(message);
  header.length_bytes = operation.layout.length_bytes(piece.count);
  return header;
}

bool RoceSession::post(Nanoseconds now) {
  const Operation& operation = *operation_of(posted_);
  const RequestPieces::Piece piece = operation.piece(posted_);
  const roce::AggregationHeader header = header_of(operation, posted_);
  const bool is_full = header.is_full_from(job_.rank);
  const auto number = static_cast<std::uint32_t>(posted_);
  const std::span<std::byte> room = channel_.room(number);
  const auto head = roce::emit(header);
  std::memcpy(room.data(), head.data(), head.size());
  if (is_full) operation.layout.fill(operation.request.type, operation.pieces.source(piece), piece.count, room);
  channel_.post(number, roce::kAggregationBytes + header.length_bytes, !is_full, now);
  ++posted_;
  return true;
}

// Messages of a reliable connection arrive in their order.
void RoceSession::store(const MessageChannel::Arrived& arrived, Nanoseconds now) {
  Operation* const operation = operation_of(arrived_);
  roce::AggregationHeader header;
  const bool is_read = roce::parse(arrived.bytes, header, version_) == roce::AggregationError::kNone;
  if (operation == nullptr || !is_read || arrived.number != static_cast<std::uint32_t>(arrived_)) {
    failure_ = Error{ErrorCode::kMismatch,
                     fmt::format("rank {}'s left neighbour wrote message {} where {} was due: all ranks must submit "
                                 "the same collectives, in the same order",
                                 job_.rank, arrived.number, arrived_)};
    return;
  }
  if (!take_in(*operation, header, arrived.bytes)) {
    failure_ = Error{ErrorCode::kMismatch,
                     fmt::format("rank {} got {} where it expected {}: all ranks must submit the same collectives, in "
                                 "the same order, with the same counts and formats",
                                 job_.rank, to_string(header), to_string(header_of(*operation, arrived_))),
                     header.rank};
    return;
  }
  ++operation->stored;
  ++arrived_;
  last_progress_ = now;
  missing_rank_.reset();
  if (operation->stored < operation->pieces.count()) return;
  finished_.push_back(operation->ticket);
  if (!RequestPieces::copies(operation->request.collective)) reduced_elements_ += operation->request.count;
  operation->pieces.finish(buffers_);
  operations_.pop_front();
}

bool RoceSession::take_in(Operation& operation, const roce::AggregationHeader& header,
                          std::span<const std::byte> bytes) {
  roce::AggregationHeader expected = header_of(operation, arrived_);
  const bool is_full = expected.is_full_to(job_.rank);
  expected.rank = header.rank;
  expected.flags |= roce::kSummed;
  const std::size_t gradient_bytes = is_full ? expected.length_bytes : roce::kShortBytes;
  if (!(header == expected) || bytes.size() != roce::kAggregationBytes + gradient_bytes) return false;
  const RequestPieces::Piece piece = operation.piece(arrived_);
  if (!operation.pieces.receives(piece)) {
    operation.pieces.copy_own(piece);
    return true;
  }
  const std::uint32_t divide_by = operation.request.average ? job_.world : 1;
  return operation.layout.read(bytes, operation.request.type, piece.count, operation.pieces.target(piece), divide_by);
}

std::vector<Ticket> RoceSession::abort(const Error&, Nanoseconds) {
  std::vector<Ticket> tickets;
  for (Operation& operation : operations_) {
    operation.pieces.put_back();
    tickets.push_back(operation.ticket);
  }
  operations_.clear();
  has_failed_ = true;
  return tickets;
}

bool RoceSession::leave(const std::optional<Error>&, Nanoseconds now) {
  if (has_failed_ || !is_idle()) return true;
  if (left_at_ == kNever) left_at_ = now;
  if (now - left_at_ > kLeaveMost) return true;
  const auto pumped = channel_.pump(now);
  if (!pumped) return true;
  link_is_full_ = *pumped;
  step(now);
  if (!is_acknowledged()) {
    settled_at_ = kNever;
  } else if (settled_at_ == kNever) {
    settled_at_ = now;
  }
  next_look_ = now + kMillisecond;
  return settled_at_ != kNever && now - settled_at_ > kLinger;
}

Nanoseconds RoceSession::deadline() const {
  const Nanoseconds deadline = channel_.deadline();
  if (left_at_ != kNever) return std::min(deadline, next_look_);
  return is_idle() ? deadline : std::min(deadline, last_progress_ + timeout_);
}

void RoceSession::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({channel_.descriptor(), static_cast<short>(link_is_full_ ? POLLIN | POLLOUT : POLLIN), 0});
}

nlohmann::json RoceSession::counters() const {
  nlohmann::json counters = channel_.counters();
  counters["reduced_elements"] = reduced_elements_;
  return counters;
}

void RoceSession::listen_to_switch() {
  const auto notice = channel_.take_notice();
  if (!notice || notice->job != job_.job || notice->epoch != job_.epoch) return;
  if (notice->kind == roce::Notice::Kind::kWaiting) missing_rank_ = notice->rank;
  if (is_idle()) return;
  if (notice->kind == roce::Notice::Kind::kWorkers) {
    failure_ =
        Error{ErrorCode::kSwitchFailed,
              fmt::format("the switch folds {} ports for job {}, which has {} ranks: tell the switch which ports "
                          "the job's ranks are at",
                          notice->rank, job_.job, job_.world)};
  }
  if (notice->kind != roce::Notice::Kind::kMismatch) return;
  failure_ = Error{ErrorCode::kMismatch,
                   fmt::format("rank {} and rank {} submit different collectives (message {}): all ranks must submit "
                               "the same ones, in the same order, with the same counts and formats",
                               job_.rank, notice->rank, notice->message),
                   notice->rank};
}

std::optional<Error> RoceSession::overdue(Nanoseconds now) const {
  if (is_idle() || now - last_progress_ < timeout_) return std::nullopt;
  const double waited_s = to_seconds(timeout_);
  if (missing_rank_) return silent_rank(*missing_rank_, job_.rank, timeout_);
  if (arrived_ > channel_.acknowledged()) {
    const auto right = static_cast<std::uint16_t>((job_.rank + 1) % job_.world);
    return Error{
        ErrorCode::kTimeout,
        fmt::format("rank {}, which this rank ({}) writes to, acknowledged nothing for {:g} s: look there for a "
                    "crash or a hang, or raise the timeout of the group",
                    right, job_.rank, waited_s),
        right};
  }
  const bool is_one_way = operations_.front().request.collective != schedule::Collective::kAllReduce;
  const char* const hint = is_one_way ? kTakesOneWay : "";
  if (channel_.counters().value("writes_not_summed", std::uint64_t{0}) > 0) {
    return Error{ErrorCode::kSwitchFailed,
                 fmt::format("rank {} got its left neighbour's elements for {:g} s, and no sum: the switch does not "
                             "fold at the ports of all {} workers{}",
                             job_.rank, waited_s, job_.world, hint)};
  }
  return Error{ErrorCode::kSwitchFailed,
               fmt::format("no sum came to rank {} for {:g} s, and the switch said nothing: check that it runs, that "
                           "its ports of all {} workers fold, and that RoCE frames pass both ways{}",
                           job_.rank, waited_s, job_.world, hint)};
}

}  // namespace netfold::group
