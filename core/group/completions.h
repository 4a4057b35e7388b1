// Finished all-reduces that no caller has asked for yet. Progress threads add them, callers take them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "group/device_words.h"

namespace netfold::group {

struct Completion {
  std::uint64_t ticket;
  std::optional<Error> error;
};

class Completions {
 public:
  using Ticket = std::uint64_t;

  // `on_added` is called, by whoever adds, each time there is something to take.
  explicit Completions(std::function<void()> on_added = {}) : on_added_(std::move(on_added)) {}

  // A new ticket, from 1 up; if it is awaited, reserved. When it is added, the device of its tensor is told.
  Ticket issue(bool is_awaited = false, const DeviceWords& words = {});
  // next() is to leave this one to wait(). Before it is added.
  void reserve(Ticket ticket);
  void add(const std::vector<Ticket>& tickets, const std::optional<Error>& error);
  // No completion will be added. Callers that wait for any completion are woken.
  void close();

  // A ticket is taken by exactly one of these two. Empty if nothing is finished within `timeout`; next() returns empty
  // at once when this is closed and everything was taken.
  std::optional<Completion> wait(Ticket ticket, Nanoseconds timeout);
  std::optional<Completion> next(Nanoseconds timeout);

 private:
  Completion take(Ticket ticket);

  const std::function<void()> on_added_;
  std::atomic<Ticket> last_issued_ = 0;
  std::mutex mutex_;
  std::condition_variable added_, may_take_next_;  // separate, so that only callers that wait for it are woken
  std::map<Ticket, std::optional<Error>> completions_;
  std::deque<Ticket> order_;  // of those that next() may take
  std::set<Ticket> reserved_;
  std::map<Ticket, DeviceWords> words_;  // of those that a device waits for
  bool is_closed_ = false;
};

}  // namespace netfold::group
