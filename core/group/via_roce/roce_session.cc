#include "group/via_roce/roce_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace netfold::group {
namespace {

namespace roce = wire::roce;

constexpr Nanoseconds kLinger = 50 * kMillisecond, kLeaveMost = 2 * kSecond;  // bounded: the neighbours may be gone

}  // namespace

std::size_t RoceSession::Operation::elements(std::uint64_t message) const {
  return std::min(layout.elements_a_message(), request.count - offset(message));
}

std::size_t RoceSession::Operation::offset_bytes(std::uint64_t message) const {
  return offset(message) * numbers::size_bytes(request.type);
}

Result<std::unique_ptr<Prepared>> RoceSession::prepare(const CollectiveRequest& request) {
  if (const auto valid = check_all_reduce(request); !valid) return tl::unexpected(valid.error());
  if (request.is_encoded) return fail(ErrorCode::kInvalidArgument, "RoCE takes no encoded elements");
  return nullptr;
}

void RoceSession::submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared>) {
  const MessageLayout layout({request.format, job_.bfp}, job_.message_packets);
  const std::uint64_t messages = layout.messages(request.count);
  if (messages == 0) {
    finished_.push_back(ticket);
    return;
  }
  has_begun_ = has_begun_ || is_idle();
  operations_.push_back({ticket, request, layout, end_, messages});
  if (request.is_in_place()) {
    operations_.back().undo.start(request.out, request.count * numbers::size_bytes(request.type), buffers_);
  }
  end_ += messages;
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
    if (message >= operation.first && message < operation.first + operation.messages) return &operation;
  }
  return nullptr;
}

roce::AggregationHeader RoceSession::header_of(const Operation& operation, std::uint64_t message) const {
  roce::AggregationHeader header;
  header.format = operation.request.format;
  if (message + 1 == operation.first + operation.messages) header.flags = roce::kEndsTensor;
  header.job = job_.job;
  header.epoch = job_.epoch;
  header.rank = job_.rank;
  if (version_ == roce::Version::kV2) header.workers = static_cast<std::uint8_t>(job_.world);
  if (header.format == numbers::Format::kBfp) {
    header.block = job_.bfp.block;
    header.mantissa = job_.bfp.mantissa;
  }
  header.message = static_cast<std::uint32_t>(message);
  header.length_bytes = operation.layout.length_bytes(operation.elements(message));
  return header;
}

bool RoceSession::post(Nanoseconds now) {
  const Operation& operation = *operation_of(posted_);
  const roce::AggregationHeader header = header_of(operation, posted_);
  const auto number = static_cast<std::uint32_t>(posted_);
  const std::span<std::byte> room = channel_.room(number);
  const auto head = roce::emit(header);
  std::memcpy(room.data(), head.data(), head.size());
  const auto* const in = static_cast<const std::byte*>(operation.request.in) + operation.offset_bytes(posted_);
  operation.layout.fill(operation.request.type, in, operation.elements(posted_), room);
  channel_.post(number, roce::kAggregationBytes + header.length_bytes, now);
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
                                 "the same all-reduces, in the same order",
                                 job_.rank, arrived.number, arrived_)};
    return;
  }
  roce::AggregationHeader expected = header_of(*operation, arrived_);
  expected.rank = header.rank;
  expected.flags |= roce::kSummed;
  auto* const out = static_cast<std::byte*>(operation->request.out) + operation->offset_bytes(arrived_);
  const std::size_t elements = operation->elements(arrived_);
  operation->undo.save(operation->offset_bytes(arrived_), elements * numbers::size_bytes(operation->request.type));
  if (!(header == expected) || !operation->layout.read(arrived.bytes, operation->request.type, elements, out,
                                                       operation->request.average ? job_.world : 1)) {
    failure_ = Error{ErrorCode::kMismatch,
                     fmt::format("rank {} got {} where it expected {}: all ranks must submit the same all-reduces, in "
                                 "the same order, with the same counts and formats",
                                 job_.rank, to_string(header), to_string(expected)),
                     header.rank};
    return;
  }
  ++operation->stored;
  ++arrived_;
  last_progress_ = now;
  missing_rank_.reset();
  if (operation->stored < operation->messages) return;
  finished_.push_back(operation->ticket);
  reduced_elements_ += operation->request.count;
  operation->undo.finish(buffers_);
  operations_.pop_front();
}

std::vector<Ticket> RoceSession::abort(const Error&, Nanoseconds) {
  std::vector<Ticket> tickets;
  for (Operation& operation : operations_) {
    operation.undo.put_back();
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
                   fmt::format("rank {} and rank {} submit different all-reduces (message {}): all ranks must submit "
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
  if (channel_.counters().value("writes_not_summed", std::uint64_t{0}) > 0) {
    return Error{ErrorCode::kSwitchFailed,
                 fmt::format("rank {} got its left neighbour's elements for {:g} s, and no sum: the switch does not "
                             "fold at the ports of all {} workers",
                             job_.rank, waited_s, job_.world)};
  }
  return Error{ErrorCode::kSwitchFailed,
               fmt::format("no sum came to rank {} for {:g} s, and the switch said nothing: check that it runs, that "
                           "its ports of all {} workers fold, and that RoCE frames pass both ways",
                           job_.rank, waited_s, job_.world)};
}

}  // namespace netfold::group
