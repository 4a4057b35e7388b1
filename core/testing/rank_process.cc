#include "testing/rank_process.h"

#include <poll.h>

#include <array>
#include <utility>

namespace netfold::testing {
namespace {

constexpr Nanoseconds kLingerMax = 100 * kMillisecond;

}  // namespace

RankProcess::RankProcess(Surroundings& around, Options options, std::function<void()> on_exit)
    : Actor(around.timeline),
      around_(around),
      options_(options),
      started_at_(around.timeline.now()),
      on_exit_(std::move(on_exit)) {
  around_.history.note("{}{} starts", options_.is_intruder ? "an intruder as " : "", History::to_string(options_.rank));
  wake();
}

const char* RankProcess::doing() const {
  constexpr std::array kDoing{"joining", "working", "closing", "leaving", "there"};
  return kDoing[static_cast<std::size_t>(state_)];
}

void RankProcess::on_news() {
  has_news_ = true;
  wake();
}

void RankProcess::run() {
  switch (state_) {
    case State::kJoining: return join();
    case State::kWorking: return work();
    case State::kFailed:
    case State::kLeaving: return leave();
    case State::kGone: return;
  }
}

void RankProcess::fail_to_join(const Error& error) {
  error_ = error;
  report(error, started_at_ - from_seconds(8 * around_.plan.heartbeat_s + plan().timeout_s));
  leave();
}

// --- Working, as the driver does it ---

void RankProcess::begin(std::unique_ptr<group::Session> session, AdmissionsChecker::Life life) {
  life_ = life;
  for (std::size_t t = 0; t < plan().tensors.size(); ++t) {
    tensors_.emplace_back(plan().tensors[t], options_.rank.rank, plan().world, options_.seed, t);
  }
  wanted_ = tensors_.size();
  session_ = std::move(session);
  state_ = State::kWorking;
  acts_at_ = timeline_.now() + around_.draw_time(plan().compute_max);
  has_news_ = true;
  work();
}

void RankProcess::work() {
  const Nanoseconds now = timeline_.now();
  if (now >= acts_at_ && finished_ == wanted_) {
    state_ = State::kLeaving;
    return leave();
  }
  if (rests()) return wake_at(acts_at_);
  if (now >= acts_at_ && submitted_ == finished_) submit_next();
  if (std::exchange(has_news_, false)) {
    const std::array<pollfd, 1> polls{{{-1, POLLIN, POLLIN}}};
    session_->on_wake(polls);
  }
  const auto pumped = session_->pump(now);
  const std::size_t before = finished_;
  for (const group::Ticket ticket : session_->take_finished()) finish(ticket);
  if (!pumped) return fail(pumped.error());
  if (finished_ > before && finished_ == submitted_) {
    const bool is_last = finished_ == wanted_;
    acts_at_ = now + around_.draw_time(is_last ? kLingerMax : plan().compute_max);
  }
  sleep(*pumped);
  if (submitted_ == finished_) wake_at(acts_at_);
  wake_at(session_->deadline());
}

group::CollectiveRequest RankProcess::ask(std::size_t index) {
  return tensors_[index].request();
}

void RankProcess::submit_next() {
  const std::size_t until = std::min(wanted_, submitted_ + plan().in_flight);
  for (; submitted_ < until; ++submitted_) {
    const group::CollectiveRequest request = ask(submitted_);
    auto prepared = session_->prepare(request);
    if (!prepared) {
      return around_.history.violate("liveness", "a right request was refused: " + prepared.error().message);
    }
    tensors_[submitted_].state = Tensor::State::kSubmitted;
    session_->submit(submitted_, request, std::move(*prepared));
  }
}

void RankProcess::finish(group::Ticket ticket) {
  Tensor& tensor = tensors_[ticket];
  if (tensor.state != Tensor::State::kSubmitted) {
    return around_.history.violate(
        "whole_or_untouched", fmt::format("tensor {} of {} finished twice", ticket, History::to_string(options_.rank)));
  }
  tensor.state = Tensor::State::kFinished;
  ++finished_;
  check_bits(ticket);
  around_.tensors.check(options_.rank, ticket, tensor);
}

void RankProcess::check_bits(std::size_t index) {
  if (index != other_than_planned_) {
    return around_.bits.check(life_.number, options_.rank, index, tensors_[index].result());
  }
  // The root of a broadcast hears nothing from the others. All other ranks do; but without elements they may hear from
  // their left neighbour alone, which may have asked for the same.
  const group::CollectiveRequest& planned = plan().tensors[index].request;
  const auto world = static_cast<int>(plan().world);
  const Party left{options_.rank.job, (options_.rank.rank + world - 1) % world};
  const bool left_agrees =
      planned.count == 0 && around_.history.was_in_trouble(left, life_.began, trouble::kDisagreeing);
  if (planned.collective == schedule::Collective::kBroadcast || left_agrees) return;
  around_.history.violate("bits",
                          fmt::format("{} finishes tensor {}, for which it asked something else than the others",
                                      History::to_string(options_.rank), index));
}

void RankProcess::fail(const Error& error) {
  error_ = error;
  for (const group::Ticket ticket : session_->abort(error, timeline_.now())) {
    tensors_[ticket].state = Tensor::State::kFailed;
  }
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].state == Tensor::State::kSubmitted) {
      around_.history.violate("whole_or_untouched",
                              fmt::format("tensor {} of {} never ends", t, History::to_string(options_.rank)));
    }
    around_.tensors.check(options_.rank, t, tensors_[t]);
  }
  report(error, life_.began);
  state_ = State::kFailed;
  acts_at_ = timeline_.now() + around_.draw_time(kLingerMax);  // until the application hears of it and closes
  wake_at(acts_at_);
}

void RankProcess::report(const Error& error, Nanoseconds since) {
  if (options_.is_intruder) {
    if (error.code != ErrorCode::kAuth) around_.culprit.check(options_.rank, error, since);
    return;
  }
  around_.liveness.on_error(options_.rank, error);
  around_.culprit.check(options_.rank, error, since);
  around_.history.begin_trouble(options_.rank, "giving up");
}

// --- Leaving ---

void RankProcess::leave() {
  const Nanoseconds now = timeline_.now();
  if (state_ == State::kFailed && now < acts_at_) return wake_at(acts_at_);
  state_ = State::kLeaving;
  if (const auto again = part(now)) return wake_at(*again);
  exit();
}

std::optional<Nanoseconds> RankProcess::part(Nanoseconds now) {
  if (!session_ || session_->leave(error_, now)) return {};
  return session_->deadline();
}

void RankProcess::exit() {
  around_.history.note("{} ends", History::to_string(options_.rank));
  state_ = State::kGone;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    around_.tensors.check(options_.rank, t, tensors_[t]);
    if (tensors_[t].state == Tensor::State::kFinished) check_bits(t);
  }
  let_go();
  on_exit_();
}

}  // namespace netfold::testing
