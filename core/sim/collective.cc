#include "sim/collective.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "sim/index.h"
#include "sim/matching.h"

namespace netfold::sim {
namespace {

Task task_of(const Message& message, std::size_t count, const Timing& timing) {
  Task task;
  task.sender = message.sender;
  task.receiver = message.receiver;
  task.size_bits = static_cast<double>(count) * timing.element_bits;
  task.delay_s = timing.step_latency_s;
  task.step = message.sender_step;
  task.is_folded = message.is_folded;
  return task;
}

// Calls `each` with the ends of one step after the other.
template <class Each>
void by_step(const std::vector<End>& ends, Each each) {
  for (std::size_t first = 0; first < ends.size();) {
    std::size_t past = first;
    while (past < ends.size() && ends[past].step == ends[first].step) ++past;
    each(std::span(ends.data() + first, past - first));
    first = past;
  }
}

// A step begins, at one rank, when the one before has ended there: `gates` are tasks without size that end then.
Workload by_own_steps(const Matched& matched, const Timing& timing) {
  Workload workload;
  for (const Message& message : matched.messages) workload.add(task_of(message, message.count, timing));
  const bool is_rendezvous = timing.start == Start::kRendezvous;
  for (const auto& ends : matched.ends) {
    int before = Task::kNobody;
    std::span<const End> ended;
    by_step(ends, [&](std::span<const End> step) {
      int gate = Task::kNobody;
      if (!ended.empty()) {
        gate = workload.add({});
        if (before != Task::kNobody) workload.require(gate, before);
        const bool has_receives = std::ranges::any_of(ended, [](const End& end) { return !end.is_send(); });
        for (const End& end : ended) {
          if (is_rendezvous || !has_receives || !end.is_send()) workload.require(gate, end.message);
        }
        for (const End& end : step) {
          if (is_rendezvous || end.is_send()) workload.require(end.message, gate);
        }
      }
      before = gate;
      ended = step;
    });
  }
  return workload;
}

// The step, counted for all together, in which each message is on its way: the first that both ends allow. Messages
// that never get one wait for each other.
std::vector<int> levels_of(const Matched& matched) {
  std::vector<int> level(matched.messages.size(), -1), reached(matched.messages.size(), 0);
  struct At {
    std::size_t first = 0, past = 0;
    int begins = 0;
    std::size_t open = 0;  // messages of the step without a level
  };
  std::vector<At> at(matched.ends.size());
  std::vector<int> settled;  // messages whose level is known, and that their ends have not been told of
  const auto enter = [&](std::size_t rank) {
    At& now = at[rank];
    const auto& ends = matched.ends[rank];
    now.first = now.past;
    while (now.past < ends.size() && ends[now.past].step == ends[now.first].step) ++now.past;
    now.open = now.past - now.first;
    for (std::size_t i = now.first; i < now.past; ++i) {
      const int message = ends[i].message;
      level[index(message)] = std::max(level[index(message)], now.begins);
      if (++reached[index(message)] == 2) settled.push_back(message);
    }
  };
  for (std::size_t rank = 0; rank < at.size(); ++rank) enter(rank);
  while (!settled.empty()) {
    const int message = settled.back();
    settled.pop_back();
    for (const int rank : {matched.messages[index(message)].sender, matched.messages[index(message)].receiver}) {
      At& now = at[index(rank)];
      now.begins = std::max(now.begins, level[index(message)] + 1);
      if (--now.open == 0) enter(index(rank));
    }
  }
  for (std::size_t message = 0; message < level.size(); ++message) {
    if (reached[message] < 2) level[message] = -1;
  }
  return level;
}

Result<Workload> in_lock_step(const Matched& matched, const Timing& timing) {
  const std::vector<int> levels = levels_of(matched);
  Workload workload;
  int last = -1;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Message& message = matched.messages[i];
    if (levels[i] < 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {}'s step {}, to rank {}, waits for what never comes: its partners wait for each "
                              "other in a circle",
                              message.sender, message.sender_step, message.receiver),
                  message.sender);
    }
    Task task = task_of(message, message.count, timing);
    task.step = levels[i];
    workload.add(task);
    last = std::max(last, levels[i]);
  }
  const int gates = static_cast<int>(levels.size());  // the gate of level k ends when all of level k have
  for (int level = 0; level <= last; ++level) workload.add({});
  for (std::size_t i = 0; i < levels.size(); ++i) {
    workload.require(gates + levels[i], static_cast<int>(i));
    if (levels[i] > 0) workload.require(static_cast<int>(i), gates + levels[i] - 1);
  }
  return workload;
}

// Of each element of a rank's buffer, the task that wrote it last.
class LastWrites {
 public:
  void write(std::size_t from, std::size_t to, int task) {
    split(from);
    split(to);
    writes_.erase(writes_.lower_bound(from), writes_.lower_bound(to));
    writes_[from] = {to, task};
  }

  template <class Each>
  void each(std::size_t from, std::size_t to, Each each) {
    auto at = writes_.upper_bound(from);
    if (at != writes_.begin()) --at;
    for (; at != writes_.end() && at->first < to; ++at) {
      if (at->second.end > from) each(at->second.task);
    }
  }

 private:
  struct Write {
    std::size_t end;
    int task;
  };

  void split(std::size_t where) {
    auto at = writes_.lower_bound(where);
    if (at == writes_.begin()) return;
    --at;
    if (at->second.end <= where) return;
    writes_[where] = at->second;
    at->second.end = where;
  }

  std::map<std::size_t, Write> writes_;
};

Workload in_pieces(const Matched& matched, const Timing& timing) {
  Workload workload;
  std::unordered_map<std::uint64_t, int> queues;  // by sender and receiver
  const std::size_t piece = std::max<std::size_t>(1, timing.piece_count);
  std::vector<int> first;  // piece of each message
  for (const Message& message : matched.messages) {
    const std::uint64_t key = index(message.sender) * matched.ends.size() + index(message.receiver);
    first.push_back(static_cast<int>(workload.tasks.size()));
    for (std::size_t done = 0; done == 0 || done < message.count; done += piece) {
      Task task = task_of(message, std::min(piece, message.count - done), timing);
      task.queue = queues.try_emplace(key, static_cast<int>(queues.size())).first->second;
      workload.add(task);
    }
  }
  workload.queues = static_cast<int>(queues.size());
  for (const auto& ends : matched.ends) {
    LastWrites writes;
    const auto each_piece = [&](const End& end, auto act) {
      const std::size_t from = end.transfer.offset, to = from + end.transfer.count;
      int task = first[index(end.message)];
      for (std::size_t at = from; at < to; at += piece) act(at, std::min(at + piece, to), task++);
    };
    by_step(ends, [&](std::span<const End> step) {
      for (const End& end : step) {
        if (!end.is_send()) continue;
        each_piece(end, [&](std::size_t from, std::size_t to, int task) {
          writes.each(from, to, [&](int earlier) { workload.require(task, earlier); });
        });
      }
      for (const End& end : step) {
        if (end.is_send()) continue;
        each_piece(end, [&](std::size_t from, std::size_t to, int task) {
          int written = task;
          if (end.transfer.action == schedule::Action::kFold) {  // the sum is there when all that was added is
            writes.each(from, to, [&](int earlier) {
              if (written == task) workload.require(written = workload.add({}), task);
              workload.require(written, earlier);
            });
          }
          writes.write(from, to, written);
        });
      }
    });
  }
  return workload;
}

// The fold in the network is one task: every worker's elements go up and the sums come down while more go up.
Workload in_network(const Matched& matched, const Timing& timing) {
  Workload workload;
  Task task;
  task.is_in_network = true;
  task.size_bits = static_cast<double>(matched.in_network_count) * timing.element_bits;
  task.delay_s = timing.step_latency_s;
  workload.add(task);
  return workload;
}

}  // namespace

Result<Start> start_named(std::string_view name, std::string_view algorithm) {
  if (name == "runtime") return schedule::swaps_halves(algorithm) ? Start::kRendezvous : Start::kPieces;
  for (const auto each : {Start::kLockStep, Start::kOwnReceive, Start::kRendezvous, Start::kPieces}) {
    if (name == name_of(each)) return each;
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' says not when a transfer starts: lock-step, own-receive, rendezvous, pieces or runtime", name));
}

const char* name_of(Start start) {
  switch (start) {
    case Start::kLockStep: return "lock-step";
    case Start::kOwnReceive: return "own-receive";
    case Start::kRendezvous: return "rendezvous";
    case Start::kPieces: return "pieces";
  }
  return "unknown";
}

Result<Workload> workload_of(int world, const Schedules& schedules, const Timing& timing) {
  const auto matched = match(world, schedules);
  if (!matched) return tl::unexpected(matched.error());
  Workload workload;
  if (matched->in_network_count > 0) {
    if (!matched->messages.empty()) {
      return fail(
          ErrorCode::kInvalidArgument,
          "a schedule that folds in the network and among ranks as well is not simulated: take them one by one");
    }
    workload = in_network(*matched, timing);
  } else if (timing.start == Start::kLockStep) {
    auto made = in_lock_step(*matched, timing);
    if (!made) return made;
    workload = std::move(*made);
  } else {
    workload = timing.start == Start::kPieces ? in_pieces(*matched, timing) : by_own_steps(*matched, timing);
  }
  if (auto done = workload.finish(); !done) return tl::unexpected(done.error());
  return workload;
}

}  // namespace netfold::sim
