#include "switch/workers.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "switch/roce_in_frame.h"

namespace netfold::rtl {
namespace {

namespace roce = wire::roce;

constexpr std::size_t kNumberAt = roce::kEthernetBytes;  // of a plain frame: its number

std::uint64_t number_of(const Bytes& frame) {
  std::uint64_t number = 0;
  if (frame.size() >= kNumberAt + sizeof number) std::memcpy(&number, frame.data() + kNumberAt, sizeof number);
  return number;
}

}  // namespace

Workers::Workers(const Job& job, const WorkersOptions& options)
    : job_(job),
      options_(options),
      prng_(options.seed),
      packets_(std::uint64_t{options.messages} * job.packets()),
      workers_(job.world()) {}

bool Workers::may_send(Worker& worker, Ticks now) const {
  if (worker.next == packets_) return false;
  if (worker.next % job_.packets() != 0) return true;
  const std::uint64_t message = worker.next / job_.packets();
  std::uint64_t needed = message < options_.lag ? 0 : message - options_.lag + 1;
  if (options_.is_stepwise) needed = message / options_.lag * options_.lag;
  for (; !worker.hears_at.empty() && worker.hears_at.front() <= now; worker.hears_at.pop_front()) ++worker.known;
  return worker.known >= needed && message < worker.acknowledged + roce::kWindowMessages;
}

// A position whose sum the right neighbour has, and the switch still keeps.
std::optional<std::uint64_t> Workers::repeatable(const Worker& worker, const Worker& right) {
  const std::uint64_t opened = (worker.next + job_.packets() - 1) / job_.packets();
  // It is in the last four messages, but not the oldest: another worker may reuse its column next.
  const std::uint64_t oldest = opened < roce::kWindowMessages ? 0 : opened - roce::kWindowMessages + 1;
  const std::uint64_t from = oldest * job_.packets();
  if (right.received <= from) return std::nullopt;
  const std::uint64_t position = from + prng_.below(right.received - from);
  if (position >= worker.next || worker.repeated.contains(position)) return std::nullopt;
  return position;
}

Bytes Workers::contribution(unsigned rank, std::uint64_t position) const {
  return job_.contribution(rank, static_cast<std::uint32_t>(position / job_.packets()),
                           static_cast<std::uint32_t>(position % job_.packets()));
}

std::optional<Bytes> Workers::next(unsigned rank, Ticks now) {
  using Kind = Sent::Kind;
  Worker& worker = workers_[rank];
  if (options_.acknowledges && worker.acknowledging < worker.received / job_.packets()) {
    worker.sent.push_back({Kind::kOther, 0});
    worker.acknowledging = static_cast<std::uint32_t>(worker.received / job_.packets());
    return job_.acknowledgement(rank, worker.acknowledging - 1);
  }
  if (now < worker.not_before) return std::nullopt;
  const auto comes = [&](std::uint32_t every) { return every != 0 && worker.turns % (every + 1) == every; };
  if (options_.load < 1) {
    const double pause = -std::log(1 - prng_.unit()) * (1 / options_.load - 1);
    worker.not_before = now + static_cast<Ticks>((1 + pause) * static_cast<double>(cable_time(options_.plain_bytes)));
  }
  if (comes(options_.plain_every) && worker.next < packets_) {
    ++worker.turns;
    const std::uint64_t number = ++plain_sent_;
    Bytes frame =
        plain_frame(job_.address((rank + 2) % job_.world()), job_.address(rank), options_.plain_bytes, number);
    std::memcpy(frame.data() + kNumberAt, &number, sizeof number);
    worker.sent.push_back({Kind::kPlain, number});
    return frame;
  }
  if (comes(options_.repeat_every)) {
    ++worker.turns;
    if (const auto position = repeatable(worker, workers_[job_.right_of(rank)])) {
      worker.repeated[*position] = 0;
      worker.sent.push_back({Kind::kRepeat, *position});
      return contribution(rank, *position);
    }
  }
  if (!may_send(worker, now)) return std::nullopt;
  ++worker.turns;
  worker.sent.push_back({Kind::kContribution, worker.next});
  return contribution(rank, worker.next++);
}

void Workers::entered(unsigned rank, const TimedFrame& frame) {
  Worker& worker = workers_[rank];
  if (worker.sent.empty()) return;
  const Sent sent = worker.sent.front();
  worker.sent.pop_front();
  switch (sent.kind) {
    case Sent::Kind::kContribution: {
      Ticks& last = last_in_[sent.position];
      last = std::max(last, frame.first);
      break;
    }
    case Sent::Kind::kRepeat: worker.repeated[sent.position] = frame.first; break;
    case Sent::Kind::kPlain: plain_in_[sent.position] = frame.first; break;
    case Sent::Kind::kOther: break;
  }
}

bool Workers::arrived(unsigned rank, const TimedFrame& frame) {
  const auto found = roce_in(frame.bytes);
  if (!found) {
    const auto sent = plain_in_.find(number_of(frame.bytes));
    if (sent == plain_in_.end()) {
      ++unexpected_;
      return false;
    }
    forwards_.add(frame.first - sent->second);
    plain_in_.erase(sent);
    return false;
  }
  const roce::Header& header = found->packet.header;
  if (header.opcode == roce::Opcode::kAcknowledge) {
    workers_[rank].acknowledged = std::max(workers_[rank].acknowledged, header.messages);
    return false;
  }
  on_sum(rank, (header.psn - job_.psn(job_.left_of(rank), 0, 0)) & roce::kPsnMask, frame);
  return true;
}

void Workers::on_sum(unsigned rank, std::uint64_t position, const TimedFrame& frame) {
  Worker& worker = workers_[rank];
  Worker& left = workers_[job_.left_of(rank)];
  if (position < worker.received) {
    const auto repeated = left.repeated.find(position);
    if (repeated == left.repeated.end()) {
      ++unexpected_;
      return;
    }
    repeats_.add(frame.first - repeated->second);
    left.repeated.erase(repeated);
    return;
  }
  if (position > worker.received) ++reordered_;
  if (position >= packets_ || !worker.ahead.insert(position).second) {
    ++unexpected_;
    return;
  }
  while (worker.ahead.erase(worker.received) != 0) {
    if (++worker.received % job_.packets() == 0) worker.hears_at.push_back(frame.last + options_.host_time);
  }
  if (!options_.acknowledges) left.acknowledged = static_cast<std::uint32_t>(worker.received / job_.packets());
  last_arrival_ = frame.last;
  folds_.add(frame.first - last_in_[position]);
  const auto is_past = [&](const Worker& each) { return each.received > position; };
  if (std::ranges::all_of(workers_, is_past)) last_in_.erase(position);
}

bool Workers::has_sent_all() const {
  return std::ranges::any_of(workers_, [&](const Worker& worker) { return worker.next == packets_; });
}

bool Workers::is_done() const {
  return plain_in_.empty() && std::ranges::all_of(workers_, [&](const Worker& worker) {
           return worker.received == packets_ && worker.acknowledged == options_.messages;
         });
}

std::uint64_t Workers::unanswered() const {
  std::uint64_t frames = 0;
  for (const Worker& worker : workers_) frames += worker.repeated.size();
  return frames;
}

std::string Workers::progress() const {
  std::string text = fmt::format(" {} frames unexpected, {} out of order;", unexpected_, reordered_);
  for (const Worker& worker : workers_) {
    text += fmt::format(" sent {} received {} acknowledged {};", worker.next, worker.received, worker.acknowledged);
  }
  return text;
}

}  // namespace netfold::rtl
