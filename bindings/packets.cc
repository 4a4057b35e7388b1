// Workloads, packets and deadlocks for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "module.h"
#include "schedule/schedule.h"
#include "sim.h"
#include "sim/collective.h"
#include "sim/deadlock.h"
#include "sim/goal.h"
#include "sim/packet_simulator.h"

using namespace nb::literals;
namespace netfold::sim {
namespace {

Workload collective_workload(const std::string& algorithm, int world, std::size_t count, double element_bits,
                             const std::string& start, double step_latency_s, std::size_t piece_count, int sub_nodes,
                             int switches, const std::vector<int>& order, int group, const std::string& between) {
  const schedule::Request request{
      .algorithm = {algorithm, sub_nodes, switches, group, between}, .world = world, .count = count, .order = order};
  const Timing timing{value_or_raise(start_named(start, algorithm)), element_bits, step_latency_s, piece_count};
  const auto schedules = value_or_raise(schedule::make_all(request));
  return value_or_raise(workload_of(world, schedules, timing));
}

Workload flows_workload(const std::vector<std::pair<int, int>>& flows, double size_bytes) {
  Workload workload;
  for (const auto& [from, to] : flows) {
    if (from < 0 || to < 0) throw nb::value_error("ranks are 0 and up");
    workload.add({.sender = from, .receiver = to, .size_bits = size_bytes * 8});
  }
  check_or_raise(workload.finish());
  return workload;
}

int world_of(const Workload& workload, const std::vector<int>& hosts, const Topology& topology) {
  if (!hosts.empty()) return static_cast<int>(hosts.size());
  int world = 0;
  for (const Task& task : workload.tasks) {
    if (task.is_in_network) return static_cast<int>(topology.hosts().size());
    world = std::max({world, task.sender + 1, task.receiver + 1});
  }
  return world;
}

Priorities priorities_named(const Topology& topology, const std::string& name, int count) {
  if (name == "one") return {};
  if (name == "half") return value_or_raise(by_half(topology));
  if (name == "hop") return {count, true, {}};
  throw nb::value_error(("'" + name + "' is not a rule for priorities: one, half or hop").c_str());
}

Records as_list(const Topology& topology, const std::vector<Held>& cycle) {
  nb::list list;
  for (const Held& held : cycle) {
    nb::dict one;
    const Link& link = topology.links()[static_cast<std::size_t>(held.channel.link)];
    one["link"] = held.channel.link;
    one["name"] = topology.name_of_resource(link.resource);
    one["priority"] = held.channel.priority;
    one["from_host"] = held.from_host;
    one["to_host"] = held.to_host;
    list.append(one);
  }
  return list;
}

Record check_for_python(const Topology& topology, const std::string& spread, const std::string& priorities, int count,
                        const std::vector<std::pair<int, int>>& flows) {
  const Priorities rule = priorities_named(topology, priorities, count);
  const DeadlockCheck found = value_or_raise(check_deadlock(topology, spread_named(spread), rule, flows));
  nb::dict result;
  result["is_free"] = found.cycle.empty();
  result["priorities"] = rule.count;
  result["channels"] = found.channels;
  result["dependencies"] = found.dependencies;
  result["cycle"] = as_list(topology, found.cycle);
  return result;
}

Record times_of(const Workload& workload, std::vector<double> start_s, std::vector<double> end_s) {
  std::vector<int> sender, receiver, step;
  std::vector<double> starts, ends;
  for (std::size_t i = 0; i < workload.tasks.size(); ++i) {
    const Task& task = workload.tasks[i];
    if (!task.is_transfer()) continue;
    sender.push_back(task.sender);
    receiver.push_back(task.receiver);
    step.push_back(task.step);
    starts.push_back(start_s[i]);
    ends.push_back(end_s[i]);
  }
  nb::dict times;
  times["sender"] = as_array(std::move(sender));
  times["receiver"] = as_array(std::move(receiver));
  times["step"] = as_array(std::move(step));
  times["start_s"] = as_array(std::move(starts));
  times["end_s"] = as_array(std::move(ends));
  return times;
}

Record simulate_workload_for_python(const Topology& topology, const Workload& workload, const std::vector<int>& hosts,
                                    const std::string& spread, bool rehash, std::uint64_t seed) {
  Network network = value_or_raise(Network::make(topology, world_of(workload, hosts, topology),
                                                 {hosts, spread_named(spread), rehash, seed, std::nullopt}));
  network.set_goes_on(no_signal_came);
  auto flows = [&] {
    const nb::gil_scoped_release release;
    return network.simulate(workload);
  }();
  FlowResult found = value_or_raise(std::move(flows));
  nb::dict result;
  result["time_s"] = found.time_s;
  result["bits_by_resource"] = as_array(std::move(found.bits_by_resource));
  result["transfers"] = times_of(workload, std::move(found.start_s), std::move(found.end_s));
  return result;
}

Record simulate_packets_for_python(const Topology& topology, const Workload& workload, const std::vector<int>& hosts,
                                   const std::string& spread, bool rehash, std::uint64_t seed, double packet_bytes,
                                   bool cut_through, bool fair_queues, double pause_bytes, double resume_bytes,
                                   const std::string& priorities, int priority_count, int slots) {
  Network network = value_or_raise(Network::make(topology, world_of(workload, hosts, topology),
                                                 {hosts, spread_named(spread), rehash, seed, std::nullopt}));
  network.set_goes_on(no_signal_came);
  PacketSettings settings;
  settings.packet_bytes = packet_bytes;
  settings.cut_through = cut_through;
  settings.fair_queues = fair_queues;
  settings.pause_bytes = pause_bytes;
  settings.resume_bytes = resume_bytes;
  settings.priorities = priorities_named(topology, priorities, priority_count);
  settings.slots = slots;
  auto packets = [&] {
    const nb::gil_scoped_release release;
    return simulate_packets(network, workload, settings);
  }();
  PacketResult found = value_or_raise(std::move(packets));
  nb::dict result;
  result["time_s"] = found.time_s;
  result["packets"] = found.packets;
  result["pauses"] = found.pauses;
  result["buffer_max_bytes"] = found.buffer_max_bytes;
  result["is_deadlocked"] = found.is_deadlocked;
  result["waiting"] = as_list(topology, found.waiting);
  result["transfers"] = times_of(workload, std::move(found.start_s), std::move(found.end_s));
  return result;
}

}  // namespace
}  // namespace netfold::sim

void bind_packets(nb::module_& module) {
  using namespace netfold::sim;
  nb::class_<Workload>(module, "Workload", "Transfers between ranks, and what each needs before it starts.")
      .def_static("collective", &collective_workload, "algorithm"_a, "world"_a, "count"_a, nb::kw_only(),
                  "element_bits"_a = 32.0, "start"_a = "runtime", "step_latency_s"_a = 0.0, "piece_count"_a = 16384,
                  "sub_nodes"_a = 0, "switches"_a = 0, "order"_a = std::vector<int>{}, "group"_a = 0,
                  "between"_a = "ring", "An all-reduce of `count` elements; the words are those of `simulate`.")
      .def_static("flows", &flows_workload, "flows"_a, "size_bytes"_a,
                  "Pairs of sender and receiver that all start at once.")
      .def_static(
          "goal", [](const std::string& text) { return value_or_raise(read_goal(text)); }, "text"_a,
          "From GOAL text, the input of LogGOPSim. Raises ValueError naming the line.")
      .def_prop_ro("tasks", [](const Workload& workload) { return workload.tasks.size(); });
  module.def("simulate_workload", &simulate_workload_for_python, "topology"_a, "workload"_a, nb::kw_only(),
             "hosts"_a = std::vector<int>{}, "spread"_a = "hash", "rehash"_a = false, "seed"_a = 0,
             "Any workload as flows. Returns time_s, bits_by_resource, transfers.");
  module.def(
      "simulate_packets", &simulate_packets_for_python, "topology"_a, "workload"_a, nb::kw_only(),
      "hosts"_a = std::vector<int>{}, "spread"_a = "hash", "rehash"_a = false, "seed"_a = 0, "packet_bytes"_a = 4096.0,
      "cut_through"_a = false, "fair_queues"_a = true, "pause_bytes"_a = 100e3, "resume_bytes"_a = 80e3,
      "priorities"_a = "one", "priority_count"_a = 2, "slots"_a = 256,
      "The same as packets, with buffers that pause links (PFC). priorities: one for all, by the half of a\n"
      "BiGraph that the sender is in, or one more at each cable between switches (of priority_count). Returns time_s, "
      "packets,\n"
      "pauses, buffer_max_bytes, transfers (end_s is NaN for those that never ended), is_deadlocked and waiting:\n"
      "a circle of buffers, each with a flow whose packets wait there for the next.");
  module.def("check_deadlock", &check_for_python, "topology"_a, nb::kw_only(), "spread"_a = "hash",
             "priorities"_a = "one", "priority_count"_a = 2, "flows"_a = std::vector<std::pair<int, int>>{},
             "Whether buffers may wait for each other in a circle: by all routes between all hosts, or of `flows`\n"
             "(pairs). Returns is_free, channels, dependencies and, if they form one, a cycle.");
}
