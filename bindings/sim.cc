// The simulator for Python: topologies as objects, flows as numpy arrays.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "module.h"
#include "sim.h"
#include "sim/builders.h"
#include "sim/max_min.h"
#include "sim/network.h"
#include "sim/routing.h"
#include "sim/simulate.h"

namespace nb = nanobind;
using namespace nb::literals;
namespace netfold::sim {
namespace {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int, nb::c_contig, nb::device::cpu>;

const char* name_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kHost: return "host";
    case NodeKind::kSwitch: return "switch";
    case NodeKind::kOther: return "other";
  }
  return "unknown";
}

void check_node(const Topology& topology, int node) {
  const auto nodes = static_cast<int>(topology.nodes().size());
  if (node < 0 || node >= nodes) {
    throw nb::value_error(("node " + std::to_string(node) + " of " + std::to_string(nodes) + ": add it first").c_str());
  }
}

int add_link(Topology& topology, int from, int to, double capacity_bit_s, double latency_s, double cost,
             std::optional<int> resource) {
  check_node(topology, from);
  check_node(topology, to);
  if (!resource) return topology.add_link(from, to, capacity_bit_s, latency_s, cost);
  return topology.add_link_on(*resource, from, to, latency_s, cost);
}

Record links_of(const Topology& topology) {
  nb::dict links;
  links["from"] = column<int>(topology.links(), [](const Link& link) { return link.from; });
  links["to"] = column<int>(topology.links(), [](const Link& link) { return link.to; });
  links["resource"] = column<int>(topology.links(), [](const Link& link) { return link.resource; });
  links["latency_s"] = column<double>(topology.links(), [](const Link& link) { return link.latency_s; });
  links["cost"] = column<double>(topology.links(), [](const Link& link) { return link.cost; });
  return links;
}

std::vector<int> path_between(const Topology& topology, int from_host, int to_host, const std::string& spread,
                              std::uint64_t seed, std::uint64_t flow) {
  const auto hosts = static_cast<int>(topology.hosts().size());
  if (std::min(from_host, to_host) < 0 || std::max(from_host, to_host) >= hosts) {
    throw nb::value_error(("hosts are 0 to " + std::to_string(hosts - 1)).c_str());
  }
  check_or_raise(topology.check());
  std::vector<int> links;
  check_or_raise(Routing(topology, spread_named(spread), seed).append_path(from_host, to_host, flow, links));
  return links;
}

NumpyArray max_min_for_python(const In<double>& capacities, const std::vector<std::vector<int>>& flows) {
  return as_array(max_min({capacities.data(), capacities.data() + capacities.size()}, flows));
}

Record as_dict(FlowResult flows) {
  nb::dict result;
  result["time_s"] = flows.time_s;
  result["start_s"] = as_array(std::move(flows.start_s));
  result["end_s"] = as_array(std::move(flows.end_s));
  result["bits_by_resource"] = as_array(std::move(flows.bits_by_resource));
  result["solves"] = flows.solves;
  result["rates_given"] = flows.rates_given;
  return result;
}

// Flows with paths of their own.
Record simulate_flows_for_python(const In<double>& capacities, const In<double>& size_bits, const In<int>& path_first,
                                 const In<int>& path, std::optional<In<double>> latency_s,
                                 std::optional<In<double>> delay_s, std::optional<Ints> needs) {
  const auto wrong = [](const char* what) { throw nb::value_error(what); };
  const std::size_t flows = size_bits.size();
  if (path_first.size() != flows + 1) wrong("path_first has one entry a flow, and one more");
  for (std::size_t i = 0; i < flows; ++i) {
    if (path_first(i) < 0 || path_first(i) > path_first(i + 1)) wrong("path_first grows");
    if (!(size_bits(i) >= 0)) wrong("sizes are 0 or more");
  }
  if (static_cast<std::size_t>(path_first(flows)) > path.size()) wrong("path is shorter than path_first says");
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path(i) < 0 || static_cast<std::size_t>(path(i)) >= capacities.size()) wrong("path names resources");
  }
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    if (!(capacities(i) > 0)) {
      wrong(("resource " + std::to_string(i) + " has a rate that is not above 0 bit/s").c_str());
    }
  }
  for (const auto* times : {&latency_s, &delay_s}) {
    if (*times && (*times)->size() != flows) wrong("latencies and delays have one entry a flow");
  }
  Workload workload;
  for (std::size_t i = 0; i < flows; ++i) {
    Task task;
    task.sender = task.receiver = static_cast<int>(i);
    task.size_bits = size_bits(i);
    if (delay_s) task.delay_s = (*delay_s)(i);
    workload.add(task);
  }
  if (needs) {
    if (needs->ndim() != 2 || needs->shape(1) != 2) wrong("needs is an array of pairs: flow, earlier flow");
    for (std::size_t i = 0; i < needs->shape(0); ++i) {
      const int later = needs->data()[2 * i], earlier = needs->data()[2 * i + 1];
      if (std::min(later, earlier) < 0 || static_cast<std::size_t>(std::max(later, earlier)) >= flows) {
        wrong("needs names flows");
      }
      workload.require(later, earlier);
    }
  }
  check_or_raise(workload.finish());
  return as_dict(value_or_raise(simulate_flows({capacities.data(), capacities.data() + capacities.size()}, workload,
                                               [&](const Workload&, int task, Path& found) -> Result<void> {
                                                 const auto i = static_cast<std::size_t>(task);
                                                 found.resources.assign(path.data() + path_first(i),
                                                                        path.data() + path_first(i + 1));
                                                 if (latency_s) found.latency_s = (*latency_s)(i);
                                                 return {};
                                               })));
}

Record transfers_of(const Answer& answer) {
  const auto& tasks = answer.workload.tasks;
  std::vector<int> which;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].is_transfer()) which.push_back(static_cast<int>(i));
  }
  const auto task = [&](int i) -> const Task& { return tasks[static_cast<std::size_t>(i)]; };
  nb::dict transfers;
  transfers["sender"] = column<int>(which, [&](int i) { return task(i).sender; });
  transfers["receiver"] = column<int>(which, [&](int i) { return task(i).receiver; });
  transfers["step"] = column<int>(which, [&](int i) { return task(i).step; });
  transfers["size_bits"] = column<double>(which, [&](int i) { return task(i).size_bits; });
  transfers["is_folded"] = column<std::uint8_t>(which, [&](int i) { return task(i).is_folded; });
  transfers["start_s"] = column<double>(which, [&](int i) { return answer.start_s[static_cast<std::size_t>(i)]; });
  transfers["end_s"] = column<double>(which, [&](int i) { return answer.end_s[static_cast<std::size_t>(i)]; });
  std::vector<int> path_first{0}, path;
  for (const int i : which) {
    const Path& taken = answer.paths[static_cast<std::size_t>(i)];
    path.insert(path.end(), taken.resources.begin(), taken.resources.end());
    path_first.push_back(static_cast<int>(path.size()));
  }
  transfers["path_first"] = as_array(std::move(path_first));
  transfers["path"] = as_array(std::move(path));
  return transfers;
}

Record simulate_for_python(const Topology& topology, const std::string& algorithm, std::size_t count,
                           std::optional<int> world, double element_bits, const std::string& start,
                           double step_latency_s, std::size_t piece_count, const std::vector<int>& hosts,
                           const std::string& spread, bool rehash, std::uint64_t seed, std::optional<int> fold_root,
                           const std::string& collective, int root, int sub_nodes, int switches,
                           const std::vector<int>& order, int group, const std::string& between, std::size_t align,
                           bool symmetry, const std::vector<std::uint64_t>& seeds, bool transfers) {
  const auto all = static_cast<int>(topology.hosts().size());
  Question question;
  question.request = {.collective = value_or_raise(schedule::collective_named(collective)),
                      .algorithm = {algorithm, sub_nodes, switches, group, between},
                      .world = world.value_or(hosts.empty() ? all : static_cast<int>(hosts.size())),
                      .rank = 0,
                      .count = count,
                      .align = align,
                      .root = root,
                      .order = order};
  question.timing = {value_or_raise(start_named(start, algorithm)), element_bits, step_latency_s, piece_count};
  question.placement = {hosts, spread_named(spread), rehash, seed, fold_root};
  question.goes_on = no_signal_came;
  question.symmetry = symmetry;
  question.transfers = transfers;
  if (!(element_bits > 0)) throw nb::value_error("an element takes more than 0 bits on the wire");
  if (!(step_latency_s >= 0)) throw nb::value_error("a step's latency is 0 s or more");
  std::vector<double> times;
  auto answer = [&]() -> Result<Answer> {
    const nb::gil_scoped_release release;
    auto simulation = Simulation::make(topology, question);
    if (!simulation) return tl::unexpected(simulation.error());
    if (seeds.empty()) return simulation->run(seed);
    Result<Answer> last;
    for (const std::uint64_t each : seeds) {
      if (!times.empty() && !simulation->depends_on_seed()) {
        times.push_back(times.back());
        continue;
      }
      last = simulation->run(each);
      if (!last) break;
      times.push_back(last->time_s);
    }
    return last;
  }();
  Answer found = value_or_raise(std::move(answer));
  nb::dict result;
  if (!seeds.empty()) result["time_s_by_seed"] = as_array(std::move(times));
  result["time_s"] = found.time_s;
  result["bits_by_resource"] = as_array(std::move(found.bits_by_resource));
  result["kinds"] = found.kinds;
  result["solves"] = found.solves;
  result["rates_given"] = found.rates_given;
  if (transfers) result["transfers"] = transfers_of(found);
  return result;
}

void bind_topology(nb::module_& module) {
  nb::class_<Topology>(module, "Topology",
                       "Nodes (hosts, switches, others that forward), links of one direction, and resources: all that\n"
                       "has a capacity. Hosts are numbered as they are added; nodes, links and resources too.")
      .def(nb::init<>())
      .def(
          "add_host", [](Topology& t, const std::string& name) { return t.add_node(NodeKind::kHost, name); }, "name"_a,
          "Add where a worker may run; returns its node.")
      .def(
          "add_switch", [](Topology& t, const std::string& name) { return t.add_node(NodeKind::kSwitch, name); },
          "name"_a, "Returns its node.")
      .def(
          "add_other", [](Topology& t, const std::string& name) { return t.add_node(NodeKind::kOther, name); },
          "name"_a, "Add another node that forwards: a PCIe switch, a root port, a socket. Returns its node.")
      .def("add_resource", &Topology::add_resource, "capacity_bit_s"_a, "name"_a,
           "Add what several links share; returns its number.")
      .def("add_link", &add_link, "from_node"_a, "to_node"_a, nb::kw_only(), "capacity_bit_s"_a = 0.0,
           "latency_s"_a = 0.0, "cost"_a = 1.0, "resource"_a = nb::none(),
           "Add a link, with a resource of its own or on one that is shared. Routes have the least sum of costs.\n"
           "Returns its number.")
      .def(
          "add_cable",
          [](Topology& t, int one, int other, double capacity, double latency) {
            check_node(t, one);
            check_node(t, other);
            t.add_cable(one, other, capacity, latency);
          },
          "one"_a, "other"_a, nb::kw_only(), "capacity_bit_s"_a, "latency_s"_a = 0.0, "Add a link each way.")
      .def(
          "set_fold_rate",
          [](Topology& t, int node, double bit_s) {
            check_node(t, node);
            t.set_fold_rate(node, bit_s);
          },
          "node"_a, "bit_s"_a,
          "Bits of operands a second that a node folds: a host all it folds, a switch all in-network folds.")
      .def("set_path", &Topology::set_path, "from_host"_a, "to_host"_a, "links"_a,
           "Say which links lead from one host to another, whatever costs say.")
      .def(
          "check", [](const Topology& t) { check_or_raise(t.check()); }, "Raises ValueError naming what is wrong.")
      .def("path", &path_between, "from_host"_a, "to_host"_a, nb::kw_only(), "spread"_a = "hash", "seed"_a = 0,
           "flow"_a = 0, "The links from one host to another. Raises ValueError where there is no way.")
      .def(
          "resource_name", [](const Topology& t, int resource) { return t.name_of_resource(resource); }, "resource"_a)
      .def_prop_ro(
          "hosts", [](const Topology& t) { return as_array(t.hosts()); }, "Their nodes.")
      .def_prop_ro("links", &links_of, "Arrays by link: from, to, resource, latency_s, cost.")
      .def_prop_ro(
          "capacity_bit_s",
          [](const Topology& t) {
            return column<double>(t.resources(), [](const Resource& each) { return each.capacity_bit_s; });
          },
          "By resource.")
      .def_prop_ro(
          "nodes",
          [](const Topology& t) {
            std::vector<std::tuple<std::string, std::string>> nodes;
            for (const Node& node : t.nodes()) nodes.emplace_back(name_of(node.kind), node.name);
            return nodes;
          },
          "Kind (host, switch, other) and name, by node.")
      .def_static(
          "bigraph",
          [](int m, int n, double rate, double latency) {
            return value_or_raise(bigraph(m, n, {rate, latency}));
          },
          "sub_nodes"_a, "switches"_a, nb::kw_only(), "rate_bit_s"_a, "latency_s"_a = 0.0)
      .def_static(
          "fat_tree",
          [](int m, int n, double rate, double latency) {
            return value_or_raise(fat_tree(m, n, {rate, latency}));
          },
          "sub_nodes"_a, "switches"_a, nb::kw_only(), "rate_bit_s"_a, "latency_s"_a = 0.0,
          "The switches and cables of a BiGraph, all hosts at the lower half.")
      .def_static(
          "leaf_spine",
          [](int leaves, int spines, int hosts, double rate, double latency) {
            return value_or_raise(leaf_spine(leaves, spines, hosts, {rate, latency}));
          },
          "leaves"_a, "spines"_a, "hosts_per_leaf"_a, nb::kw_only(), "rate_bit_s"_a, "latency_s"_a = 0.0)
      .def_static(
          "torus",
          [](int rows, int columns, int hosts, double rate, double latency) {
            return value_or_raise(torus(rows, columns, hosts, {rate, latency}));
          },
          "rows"_a, "columns"_a, "hosts_per_switch"_a = 1, nb::kw_only(), "rate_bit_s"_a, "latency_s"_a = 0.0)
      .def_static(
          "dragonfly",
          [](int groups, int routers, int hosts, double rate, double latency) {
            return value_or_raise(dragonfly(groups, routers, hosts, {rate, latency}));
          },
          "groups"_a, "routers"_a, "hosts_per_router"_a = 1, nb::kw_only(), "rate_bit_s"_a, "latency_s"_a = 0.0)
      .def_static(
          "star",
          [](int hosts, double rate, double latency) {
            return value_or_raise(star(hosts, {rate, latency}));
          },
          "hosts"_a, nb::kw_only(), "rate_bit_s"_a, "latency_s"_a = 0.0);
}

}  // namespace
}  // namespace netfold::sim

void bind_sim(nb::module_& module) {
  using namespace netfold::sim;
  bind_topology(module);
  module.def("max_min", &max_min_for_python, "capacity_bit_s"_a, "flows"_a,
             "Max-min fair rates in bit/s of flows, each a list of the resources that it takes (one named twice is\n"
             "taken twice). Plain and slow: what the simulator is tested against.");
  module.def(
      "simulate_flows", &simulate_flows_for_python, "capacity_bit_s"_a, "size_bits"_a, "path_first"_a, "path"_a,
      nb::kw_only(), "latency_s"_a = nb::none(), "delay_s"_a = nb::none(), "needs"_a = nb::none(),
      "Flows that share resources by max-min fairness. Flow i takes path[path_first[i]:path_first[i + 1]] (int32\n"
      "arrays). It starts `delay_s` after all flows that it needs have ended (needs: int32 pairs of a flow and\n"
      "an earlier one), and its first bit takes `latency_s`. Returns time_s, start_s, end_s, bits_by_resource.");
  module.def(
      "simulate", &simulate_for_python, "topology"_a, "algorithm"_a, "count"_a, nb::kw_only(), "world"_a = nb::none(),
      "element_bits"_a = 32.0, "start"_a = "runtime", "step_latency_s"_a = 0.0, "piece_count"_a = 16384,
      "hosts"_a = std::vector<int>{}, "spread"_a = "hash", "rehash"_a = false, "seed"_a = 0, "fold_root"_a = nb::none(),
      "collective"_a = "all-reduce", "root"_a = 0, "sub_nodes"_a = 0, "switches"_a = 0, "order"_a = std::vector<int>{},
      "group"_a = 0, "between"_a = "ring", "align"_a = 1, "symmetry"_a = true, "seeds"_a = std::vector<std::uint64_t>{},
      "transfers"_a = false,
      "A collective of `count` elements on a topology, by the runtime's own schedules. hosts: the host of each rank\n"
      "(none: rank r on host r). start: when a transfer may start: lock-step, own-receive, rendezvous, pieces (of\n"
      "piece_count elements), or runtime: as this project's runtime does it. step_latency_s: before each transfer.\n"
      "spread: where routes are equally short, hash chooses (seed; rehash: anew for each transfer) or destination.\n"
      "symmetry: simulate steps that are alike once, where that is exact; `kinds` says how many there were.\n"
      "seeds: simulate with one after the other, and give time_s_by_seed; the rest is of the last.\n"
      "element_bits: of an element on the wire, headers and all. fold_root: the node where an in-network fold ends.\n"
      "Returns time_s, bits_by_resource and, if asked for, transfers: arrays sender, receiver, step, size_bits,\n"
      "is_folded, start_s, end_s, and path_first, path: transfer i took the resources path[path_first[i]:path_first[i\n"
      "+ 1]]. Raises ValueError for what cannot be.");
}
