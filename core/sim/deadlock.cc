#include "sim/deadlock.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "sim/index.h"

namespace netfold::sim {
namespace {

// The dependencies, each with a flow that causes it.
class Dependencies {
 public:
  explicit Dependencies(int priorities) : priorities_(priorities) {}

  int number_of(Channel channel) const { return channel.link * priorities_ + channel.priority; }
  Channel channel_of(int number) const { return {number / priorities_, number % priorities_}; }

  void use(int channel) { waits_for_.try_emplace(channel); }
  void add(int channel, int next, int from_host, int to_host) {
    auto& all = waits_for_[channel];
    if (std::ranges::any_of(all, [&](const Wait& wait) { return wait.next == next; })) return;
    all.push_back({next, from_host, to_host});
    ++count_;
  }

  std::size_t channels() const { return waits_for_.size(); }
  std::size_t count() const { return count_; }

  // Depth first; a channel that is met again on the way to itself closes a cycle.
  std::vector<Held> cycle() const {
    std::unordered_map<int, State> state;
    std::vector<int> numbers;
    for (const auto& [number, waits] : waits_for_) numbers.push_back(number);
    std::ranges::sort(numbers);
    for (const int first : numbers) {
      if (state[first] != State::kNew) continue;
      struct At {
        int number;
        std::size_t next = 0;
      };
      std::vector<At> way{{first}};
      state[first] = State::kOpen;
      while (!way.empty()) {
        At& at = way.back();
        const auto& waits = waits_for_.at(at.number);
        if (at.next == waits.size()) {
          state[at.number] = State::kDone;
          way.pop_back();
          continue;
        }
        const int next = waits[at.next++].next;
        if (state[next] == State::kOpen) {
          std::vector<Held> found;
          const auto start = std::ranges::find_if(way, [&](const At& each) { return each.number == next; });
          for (auto each = start; each != way.end(); ++each) {
            const Wait& wait = waits_for_.at(each->number)[each->next - 1];
            found.push_back({channel_of(each->number), wait.from_host, wait.to_host});
          }
          return found;
        }
        if (state[next] == State::kNew) {
          state[next] = State::kOpen;
          way.push_back({next});
        }
      }
    }
    return {};
  }

 private:
  enum class State : std::uint8_t { kNew, kOpen, kDone };
  struct Wait {
    int next;
    int from_host, to_host;
  };

  int priorities_;
  std::size_t count_ = 0;
  std::unordered_map<int, std::vector<Wait>> waits_for_;
};

// Adds the dependencies of all routes from `from` to `to`.
class Walk {
 public:
  Walk(const Topology& topology, Routing& routing, const Priorities& priorities, Dependencies& dependencies)
      : topology_(topology), routing_(routing), priorities_(priorities), dependencies_(dependencies) {}

  // `been` is of one destination: (channel, hop) from which everything was walked.
  Result<void> from(int from_host, int to_host, std::unordered_set<std::uint64_t>& been) {
    open_.clear();
    const int start = topology_.hosts()[index(from_host)], goal = topology_.hosts()[index(to_host)];
    const std::vector<int>* fixed = topology_.path_set(from_host, to_host);
    if (fixed != nullptr) {
      int before = kNone;
      for (std::size_t hop = 0; hop < fixed->size(); ++hop) {
        before = step(before, (*fixed)[hop], static_cast<int>(hop), from_host, to_host);
      }
      return {};
    }
    enter(start, 0, kNone, from_host, to_host, been);
    if (open_.empty() && routing_.next_links(start, to_host).empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("there is no way from {} to {}: connect them, or leave one out",
                              topology_.nodes()[index(start)].name, topology_.nodes()[index(goal)].name));
    }
    while (!open_.empty()) {
      const Open at = open_.back();
      open_.pop_back();
      const int node = topology_.links()[index(dependencies_.channel_of(at.channel).link)].to;
      if (node != goal) enter(node, at.hop + 1, at.channel, from_host, to_host, been);
    }
    return {};
  }

 private:
  struct Open {
    int channel, hop;
  };

  int step(int before, int link, int hop, int from_host, int to_host) {
    const int channel = dependencies_.number_of({link, priorities_.of(from_host, hop)});
    dependencies_.use(channel);
    if (before != kNone) dependencies_.add(before, channel, from_host, to_host);
    return channel;
  }

  void enter(int node, int hop, int before, int from_host, int to_host, std::unordered_set<std::uint64_t>& been) {
    for (const int link : routing_.next_links(node, to_host)) {
      const int channel = step(before, link, hop, from_host, to_host);
      const std::uint64_t key = static_cast<std::uint64_t>(channel) << 8 | static_cast<std::uint64_t>(hop & 255);
      if (been.insert(key).second) open_.push_back({channel, hop});
    }
  }

  const Topology& topology_;
  Routing& routing_;
  const Priorities& priorities_;
  Dependencies& dependencies_;
  std::vector<Open> open_;
};

}  // namespace

int Priorities::of(int host, int hop) const {
  if (by_hop) return std::clamp(hop - 1, 0, count - 1);
  return of_host.empty() ? 0 : of_host[index(host)];
}

Result<DeadlockCheck> check_deadlock(const Topology& topology, Spread spread, const Priorities& priorities,
                                     const std::vector<std::pair<int, int>>& flows) {
  if (auto checked = topology.check(); !checked) return tl::unexpected(checked.error());
  const auto hosts = static_cast<int>(topology.hosts().size());
  if (priorities.count < 1) return fail(ErrorCode::kInvalidArgument, "a network has one priority or more");
  if (!priorities.of_host.empty() && priorities.of_host.size() != topology.hosts().size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} priorities for {} hosts", priorities.of_host.size(), hosts));
  }
  for (const int priority : priorities.of_host) {
    if (priority >= 0 && priority < priorities.count) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("priority {}: there are 0 to {}", priority, priorities.count - 1));
  }
  std::vector<std::vector<int>> senders(topology.hosts().size());  // by receiver
  for (const auto& [from, to] : flows) {
    if (std::min(from, to) < 0 || std::max(from, to) >= hosts) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("a flow from host {} to {} of {}", from, to, hosts));
    }
    senders[index(to)].push_back(from);
  }
  Routing routing(topology, spread);
  Dependencies dependencies(priorities.count);
  Walk walk(topology, routing, priorities, dependencies);
  for (int to = 0; to < hosts; ++to) {
    std::unordered_set<std::uint64_t> been;
    for (int from = 0; flows.empty() && from < hosts; ++from) senders[index(to)].push_back(from);
    for (const int from : senders[index(to)]) {
      if (from == to) continue;
      if (auto walked = walk.from(from, to, been); !walked) return tl::unexpected(walked.error());
    }
  }
  return DeadlockCheck{dependencies.channels(), dependencies.count(), dependencies.cycle()};
}

Result<Priorities> by_half(const Topology& topology) {
  const auto is_switch = [&](int node) { return topology.nodes()[index(node)].kind == NodeKind::kSwitch; };
  std::vector<int> half(topology.nodes().size(), kNone);
  for (std::size_t first = 0; first < half.size(); ++first) {
    if (!is_switch(static_cast<int>(first)) || half[first] != kNone) continue;
    half[first] = 0;
    std::vector<int> open{static_cast<int>(first)};
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      for (const int link : topology.links_from(node)) {
        const int other = topology.links()[index(link)].to;
        if (!is_switch(other) || half[index(other)] == 1 - half[index(node)]) continue;
        if (half[index(other)] != kNone) {
          return fail(ErrorCode::kInvalidArgument,
                      fmt::format("the switches do not form two halves: {} and {} would be in the same",
                                  topology.nodes()[index(node)].name, topology.nodes()[index(other)].name));
        }
        half[index(other)] = 1 - half[index(node)];
        open.push_back(other);
      }
    }
  }
  Priorities priorities{2, false, {}};
  for (const int host : topology.hosts()) {
    const int attached = topology.switch_of(host);
    priorities.of_host.push_back(attached == kNone ? 0 : std::max(0, half[index(attached)]));
  }
  return priorities;
}

}  // namespace netfold::sim
