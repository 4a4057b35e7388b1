#include "sim/workload.h"

#include <fmt/core.h>

namespace netfold::sim {

int Workload::add(const Task& task) {
  tasks.push_back(task);
  return static_cast<int>(tasks.size()) - 1;
}

void Workload::require(int task, int earlier) {
  edges_.push_back({earlier, task});
}

std::span<const int> Workload::needed_by(int task) const {
  const auto at = static_cast<std::size_t>(task);
  const auto first = static_cast<std::size_t>(first_needed_[at]);
  return {needed_by_.data() + first, static_cast<std::size_t>(first_needed_[at + 1]) - first};
}

Result<void> Workload::finish() {
  needs_.assign(tasks.size(), 0);
  first_needed_.assign(tasks.size() + 1, 0);
  for (const Edge& edge : edges_) {
    ++first_needed_[static_cast<std::size_t>(edge.earlier) + 1];
    ++needs_[static_cast<std::size_t>(edge.later)];
  }
  for (std::size_t i = 1; i < first_needed_.size(); ++i) first_needed_[i] += first_needed_[i - 1];
  needed_by_.resize(edges_.size());
  std::vector<int> next(first_needed_.begin(), first_needed_.end() - 1);
  for (const Edge& edge : edges_) {
    needed_by_[static_cast<std::size_t>(next[static_cast<std::size_t>(edge.earlier)]++)] = edge.later;
  }
  std::vector<Edge>().swap(edges_);
  std::vector<int> waits = needs_, ready;
  for (std::size_t task = 0; task < tasks.size(); ++task) {
    if (waits[task] == 0) ready.push_back(static_cast<int>(task));
  }
  std::size_t ended = 0;
  while (!ready.empty()) {
    const int task = ready.back();
    ready.pop_back();
    ++ended;
    for (const int later : needed_by(task)) {
      if (--waits[static_cast<std::size_t>(later)] == 0) ready.push_back(later);
    }
  }
  for (std::size_t task = 0; ended < tasks.size() && task < tasks.size(); ++task) {
    if (waits[task] == 0 || !tasks[task].is_transfer()) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} waits for what never comes: it needs, over others, itself or one that does. A schedule "
                            "that ends lets each transfer wait for earlier ones only",
                            describe(static_cast<int>(task))),
                tasks[task].sender);
  }
  return {};
}

std::string Workload::describe(int task) const {
  const Task& told = tasks[static_cast<std::size_t>(task)];
  if (!told.is_transfer()) return fmt::format("delay {}", task);
  if (told.is_in_network) return "the fold in the network";
  return fmt::format("rank {}'s step {}, to rank {}", told.sender, told.step, told.receiver);
}

}  // namespace netfold::sim
