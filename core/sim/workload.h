// A workload: tasks, and the tasks that must end before them. Tasks are transfers between workers and delays, as a
// graph without cycles. Schedules (collective.h) and GOAL text (goal.h) become this; the simulators run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace netfold::sim {

struct Task {
  static constexpr int kNobody = -1;

  int sender = kNobody, receiver = kNobody;  // ranks; kNobody: a delay
  double size_bits = 0;                      // on the wire
  double delay_s = 0;                        // from the end of all it needs to its start
  int step = 0;                              // of its sender
  bool is_folded = false;                    // passes through the receiver's reducer
  bool is_in_network = false;                // from all workers to all, folded on the way
  int queue = kNobody;  // transfers of one queue go one after the other, in the order in which their first bits come
  bool is_transfer() const { return sender != kNobody || is_in_network; }
};

class Workload {
 public:
  int add(const Task& task);
  void require(int task, int earlier);  // `task` starts after `earlier` has ended

  std::vector<Task> tasks;
  int queues = 0;  // how many there are

  // The tasks that need `task`, and how many each needs; valid after `finish`.
  std::span<const int> needed_by(int task) const;
  int needs(int task) const { return needs_[static_cast<std::size_t>(task)]; }

  // Sorts what needs what. kInvalidArgument naming a task that waits for itself in a circle.
  Result<void> finish();

  std::string describe(int task) const;  // for errors: "rank 3's step 2, to rank 4"

 private:
  struct Edge {
    int earlier, later;
  };
  std::vector<Edge> edges_;
  std::vector<int> needed_by_, first_needed_, needs_;
};

}  // namespace netfold::sim
