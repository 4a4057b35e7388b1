#include "sim/symmetry.h"

#include <algorithm>

#include "sim/index.h"

namespace netfold::sim {
namespace {

constexpr double kSameTime = 1e-12;  // of a step's time: what rounding makes of equal ends

bool are_alike(const schedule::Step& one, const schedule::Step& other) {
  return std::ranges::equal(one, other, [](const schedule::Transfer& a, const schedule::Transfer& b) {
    return a.action == b.action && a.peer == b.peer && a.count == b.count;
  });
}

// Steps of one kind so far, and what each rank does in them.
struct Alike {
  std::size_t steps = 0;
  std::vector<schedule::Step> by_rank;
};

// Sorts steps into kinds, rank by rank: a kind splits where a rank does different things in steps of it.
class Sorter {
 public:
  // False: the rank has another number of steps than those before it.
  bool add(const schedule::Steps& steps) {
    if (is_first_) kind_of_.assign(steps.size(), 0);
    if (is_first_ && !steps.empty()) kinds_.push_back({steps.size(), {}});
    is_first_ = false;
    if (steps.size() != kind_of_.size()) return false;
    // Of each kind before this rank, those that it has become.
    std::vector<std::vector<int>> became(kinds_.size());
    for (std::size_t at = 0; at < steps.size(); ++at) {
      auto& choices = became[index(kind_of_[at])];
      const auto same = std::ranges::find_if(
          choices, [&](int kind) { return are_alike(kinds_[index(kind)].by_rank.back(), steps[at]); });
      if (same != choices.end()) {
        move_step(at, *same);
      } else if (choices.empty()) {
        kinds_[index(kind_of_[at])].by_rank.push_back(steps[at]);
        choices.push_back(kind_of_[at]);
      } else {
        Alike split{0, kinds_[index(kind_of_[at])].by_rank};
        split.by_rank.back() = steps[at];
        kinds_.push_back(std::move(split));
        choices.push_back(static_cast<int>(kinds_.size()) - 1);
        move_step(at, choices.back());
      }
    }
    return true;
  }

  const std::vector<Alike>& all() const { return kinds_; }
  std::size_t steps() const { return kind_of_.size(); }

 private:
  void move_step(std::size_t step, int kind) {
    --kinds_[index(kind_of_[step])].steps;
    ++kinds_[index(kind)].steps;
    kind_of_[step] = kind;
  }

  bool is_first_ = true;
  std::vector<int> kind_of_;  // by step
  std::vector<Alike> kinds_;
};

// Whether all ranks end a step of this kind at one time, so that they begin the next one together.
bool ends_at_once(const Workload& workload, const FlowResult& flows, int world) {
  std::vector<bool> has_part(index(world));
  for (std::size_t i = 0; i < workload.tasks.size(); ++i) {
    if (!workload.tasks[i].is_transfer()) continue;
    if (flows.end_s[i] < flows.time_s * (1 - kSameTime)) return false;
    has_part[index(workload.tasks[i].sender)] = has_part[index(workload.tasks[i].receiver)] = true;
  }
  return std::ranges::count(has_part, true) == world;
}

}  // namespace

Result<std::optional<std::vector<Kind>>> kinds_of(int world, const Schedules& schedules, const Timing& timing) {
  if (timing.start == Start::kPieces) return std::nullopt;
  Sorter sorter;
  for (int rank = 0; rank < world; ++rank) {
    const auto steps = schedules(rank);
    if (!steps) return tl::unexpected(steps.error());
    if (!sorter.add(*steps)) return std::nullopt;
  }
  if (sorter.all().size() == sorter.steps()) return std::nullopt;
  Timing of_one = timing;
  of_one.start = Start::kRendezvous;
  std::vector<Kind> kinds;
  for (const Alike& alike : sorter.all()) {
    auto workload = workload_of(
        world, [&](int rank) -> Result<schedule::Steps> { return schedule::Steps{alike.by_rank[index(rank)]}; },
        of_one);
    // Sends and receives that do not meet in one step, or meet nowhere: the whole says which.
    if (!workload || (workload->tasks.size() == 1 && workload->tasks.front().is_in_network)) return std::nullopt;
    kinds.push_back({alike.steps, std::move(*workload)});
  }
  return kinds;
}

Result<std::optional<AlikeResult>> simulate_alike(int world, const std::vector<Kind>& kinds, Start start,
                                                  const Simulate& simulate) {
  AlikeResult result;
  for (const Kind& kind : kinds) {
    const auto flows = simulate(kind.workload);
    if (!flows) return tl::unexpected(flows.error());
    if (start != Start::kLockStep && !ends_at_once(kind.workload, *flows, world)) return std::nullopt;
    const auto times = static_cast<double>(kind.steps);
    result.time_s += times * flows->time_s;
    result.bits_by_resource.resize(flows->bits_by_resource.size(), 0);
    for (std::size_t i = 0; i < flows->bits_by_resource.size(); ++i) {
      result.bits_by_resource[i] += times * flows->bits_by_resource[i];
    }
    result.solves += flows->solves;
    result.rates_given += flows->rates_given;
  }
  return result;
}

}  // namespace netfold::sim
