#include "group/completions.h"

#include <chrono>

namespace netfold::group {
namespace {

// To ask without waiting must not cost a visit to the kernel's timers: threads that drive all-reduces do so often.
template <class Condition>
bool wait_until_true(std::condition_variable& news, std::unique_lock<std::mutex>& lock, Nanoseconds timeout,
                     Condition is_true) {
  if (timeout <= 0) return is_true();
  return news.wait_for(lock, std::chrono::nanoseconds(timeout), is_true);
}

}  // namespace

Completions::Ticket Completions::issue(bool is_awaited, const DeviceWords& words) {
  const Ticket ticket = ++last_issued_;
  if (is_awaited) reserve(ticket);
  if (words.over != nullptr) {
    const std::lock_guard lock(mutex_);
    words_[ticket] = words;
  }
  return ticket;
}

void Completions::reserve(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  reserved_.insert(ticket);
}

void Completions::add(const std::vector<Ticket>& tickets, const std::optional<Error>& error) {
  if (tickets.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    for (const Ticket ticket : tickets) {
      if (const auto waiting = words_.find(ticket); waiting != words_.end()) {
        waiting->second.say_over(error.has_value());
        words_.erase(waiting);
      }
      completions_[ticket] = error;
      if (reserved_.erase(ticket) == 0) order_.push_back(ticket);
    }
    added_.notify_all();
    if (!order_.empty()) may_take_next_.notify_all();
  }
  if (on_added_) on_added_();
}

void Completions::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  may_take_next_.notify_all();
}

std::optional<Completion> Completions::wait(Ticket ticket, Nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return completions_.contains(ticket); };
  if (!wait_until_true(added_, lock, timeout, is_there)) return std::nullopt;
  std::erase(order_, ticket);
  return take(ticket);
}

std::optional<Completion> Completions::next(Nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return !order_.empty() || is_closed_; };
  if (!wait_until_true(may_take_next_, lock, timeout, is_over)) return std::nullopt;
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

}  // namespace netfold::group
