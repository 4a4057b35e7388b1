#include "sim/flow_simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "sim/fair_share.h"
#include "sim/index.h"

namespace netfold::sim {
namespace {

constexpr double kNotYet = std::numeric_limits<double>::quiet_NaN();
// Ends that fall so close together (of the time since the start) are one event: they differ only by rounding.
constexpr double kSameEvent = 1e-13;

class FlowRun {
 public:
  FlowRun(const std::vector<double>& capacities, const Workload& workload, const PathOf& path_of, const GoesOn& goes_on)
      : workload_(workload),
        path_of_(path_of),
        goes_on_(goes_on),
        fair_(capacities),
        waits_(workload.tasks.size()),
        queues_(index(workload.queues)) {
    result_.start_s.assign(workload.tasks.size(), kNotYet);
    result_.end_s.assign(workload.tasks.size(), kNotYet);
    result_.bits_by_resource.assign(capacities.size(), 0);
  }

  Result<FlowResult> to_the_end() {
    for (std::size_t task = 0; task < workload_.tasks.size(); ++task) {
      waits_[task] = workload_.needs(static_cast<int>(task));
      if (waits_[task] == 0) release(static_cast<int>(task));
    }
    while (!events_.empty()) {
      now_ = std::max(now_, events_.front().at_s);
      const double until = now_ * (1 + kSameEvent);
      while (!events_.empty() && events_.front().at_s <= until) {
        const Event event = pop();
        if (auto done = handle(event); !done) return tl::unexpected(done.error());
        if (++handled_ % kEventsBetweenQuestions == 0 && goes_on_ && !goes_on_()) {
          return fail(ErrorCode::kTimeout, "the simulation was interrupted");
        }
      }
      share();
    }
    return std::move(result_);
  }

 private:
  enum class Kind : std::uint8_t { kStart, kFirstBit, kLastBit };
  struct Event {
    double at_s;
    int task;
    int flow;
    std::uint32_t version;  // kLastBit: of the flow's rate when this was foreseen
    Kind kind;
  };
  struct Flow {
    int task = 0;
    std::uint32_t version = 0;
    double left_bits = 0, rate = 0, since_s = 0;
  };

  static bool later(const Event& one, const Event& other) {
    return one.at_s > other.at_s || (one.at_s == other.at_s && one.task > other.task);
  }

  void push(const Event& event) {
    events_.push_back(event);
    std::push_heap(events_.begin(), events_.end(), later);
  }

  Event pop() {
    std::pop_heap(events_.begin(), events_.end(), later);
    const Event event = events_.back();
    events_.pop_back();
    return event;
  }

  // All that `task` needs has ended.
  void release(int task) { push({now_ + workload_.tasks[index(task)].delay_s, task, 0, 0, Kind::kStart}); }

  Result<void> handle(const Event& event) {
    switch (event.kind) {
      case Kind::kStart: return start(event.task);
      case Kind::kFirstBit: begin_flow(event.flow); break;
      case Kind::kLastBit:
        if (flows_[index(event.flow)].version == event.version) end_flow(event.flow);
        break;
    }
    return {};
  }

  Result<void> start(int task) {
    const Task& started = workload_.tasks[index(task)];
    result_.start_s[index(task)] = now_;
    if (!started.is_transfer()) {
      end(task);
      return {};
    }
    const int flow = free_flow();
    flows_[index(flow)] = {task, flows_[index(flow)].version, started.size_bits, 0, now_};
    Path& path = paths_[index(flow)];
    path.resources.clear();
    path.latency_s = 0;
    if (auto found = path_of_(workload_, task, path); !found) return found;
    for (const int resource : path.resources) result_.bits_by_resource[index(resource)] += started.size_bits;
    push({now_ + path.latency_s, task, flow, 0, Kind::kFirstBit});
    return {};
  }

  int free_flow() {
    if (free_.empty()) {
      flows_.emplace_back();
      paths_.emplace_back();
      return static_cast<int>(flows_.size()) - 1;
    }
    const int flow = free_.back();
    free_.pop_back();
    return flow;
  }

  void begin_flow(int flow) {
    Flow& begun = flows_[index(flow)];
    begun.since_s = now_;
    if (begun.left_bits <= 0 || paths_[index(flow)].resources.empty()) {
      free_.push_back(flow);
      end(begun.task);
    } else {
      take_turn(flow);
    }
  }

  // Of a queue only the first flow is on its way.
  void take_turn(int flow) {
    const int queue = workload_.tasks[index(flows_[index(flow)].task)].queue;
    if (queue != Task::kNobody) {
      queues_[index(queue)].push_back(flow);
      if (queues_[index(queue)].size() > 1) return;
    }
    fair_.add(flow, paths_[index(flow)].resources);
  }

  void end_flow(int flow) {
    ++flows_[index(flow)].version;
    fair_.remove(flow);
    const int queue = workload_.tasks[index(flows_[index(flow)].task)].queue;
    if (queue != Task::kNobody) {
      queues_[index(queue)].pop_front();
      if (!queues_[index(queue)].empty()) {
        const int next = queues_[index(queue)].front();
        flows_[index(next)].since_s = now_;
        fair_.add(next, paths_[index(next)].resources);
      }
    }
    free_.push_back(flow);
    end(flows_[index(flow)].task);
  }

  void end(int task) {
    result_.end_s[index(task)] = result_.time_s = now_;
    for (const int later : workload_.needed_by(task)) {
      if (--waits_[index(later)] == 0) release(later);
    }
  }

  void share() {
    fair_.solve();
    if (fair_.touched().empty()) return;
    ++result_.solves;
    result_.rates_given += fair_.touched().size();
    for (const int number : fair_.touched()) {
      Flow& flow = flows_[index(number)];
      const double rate = fair_.rate(number);
      if (rate == flow.rate) continue;
      flow.left_bits = std::max(0.0, flow.left_bits - flow.rate * (now_ - flow.since_s));
      flow.rate = rate;
      flow.since_s = now_;
      push({now_ + flow.left_bits / rate, flow.task, number, ++flow.version, Kind::kLastBit});
    }
  }

  const Workload& workload_;
  const PathOf& path_of_;
  const GoesOn& goes_on_;
  FairShare fair_;
  FlowResult result_;
  std::vector<int> waits_;
  std::vector<Event> events_;
  std::vector<Flow> flows_;
  std::vector<Path> paths_;
  std::vector<std::deque<int>> queues_;  // of flows, the first one on its way
  std::vector<int> free_;
  double now_ = 0;
  std::size_t handled_ = 0;  // events
};

}  // namespace

Result<FlowResult> simulate_flows(const std::vector<double>& capacities_bit_s, const Workload& workload,
                                  const PathOf& path_of, const GoesOn& goes_on) {
  return FlowRun(capacities_bit_s, workload, path_of, goes_on).to_the_end();
}

}  // namespace netfold::sim
