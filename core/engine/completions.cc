#include "engine/completions.h"

#include <chrono>

namespace netfold::engine {

void Completions::add(const std::vector<Ticket>& tickets, const std::optional<Error>& error) {
  if (tickets.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const Ticket ticket : tickets) {
    completions_[ticket] = error;
    order_.push_back(ticket);
  }
  added_.notify_all();
}

void Completions::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  added_.notify_all();
}

std::optional<Completion> Completions::wait(Ticket ticket, Nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return completions_.contains(ticket); };
  if (!added_.wait_for(lock, std::chrono::nanoseconds(timeout), is_there)) return std::nullopt;
  std::erase(order_, ticket);
  return take(ticket);
}

std::optional<Completion> Completions::next(Nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return !order_.empty() || is_closed_; };
  if (!added_.wait_for(lock, std::chrono::nanoseconds(timeout), is_over)) return std::nullopt;
  if (order_.empty()) return std::nullopt;
  const Ticket ticket = order_.front();
  order_.pop_front();
  return take(ticket);
}

Completion Completions::take(Ticket ticket) {
  Completion completion{ticket, std::move(completions_[ticket])};
  completions_.erase(ticket);
  return completion;
}

}  // namespace netfold::engine
