// Schedules for Python: lists of steps, a step a list of (action, peer, offset, count).
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "errors.h"
#include "module.h"
#include "numbers/format.h"
#include "schedule/algorithms.h"
#include "schedule/schedule.h"

namespace nb = nanobind;
using namespace nb::literals;
namespace netfold::schedule {
namespace {

using PyTransfer = std::tuple<std::string, int, std::size_t, std::size_t>;

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) throw nb::value_error(result.error().message.c_str());
  return std::move(*result);
}

std::vector<std::vector<PyTransfer>> make_for_python(const std::string& algorithm, int world, int rank,
                                                     std::size_t count, const std::string& collective, int root,
                                                     int sub_nodes, int switches, int group, const std::string& between,
                                                     std::size_t align, const std::vector<int>& order) {
  const Request request{.collective = value_or_raise(collective_named(collective)),
                        .algorithm = {algorithm, sub_nodes, switches, group, between},
                        .world = world,
                        .rank = rank,
                        .count = count,
                        .align = align,
                        .root = root,
                        .order = order};
  std::vector<std::vector<PyTransfer>> steps;
  for (const Step& step : value_or_raise(make(request))) {
    auto& transfers = steps.emplace_back();
    for (const Transfer& t : step) transfers.emplace_back(name_of(t.action), t.peer, t.offset, t.count);
  }
  return steps;
}

std::vector<std::tuple<std::string, std::string>> algorithms_for_python() {
  std::vector<std::tuple<std::string, std::string>> list;
  for (const AlgorithmInfo& info : algorithms()) list.emplace_back(info.name, info.what);
  return list;
}

}  // namespace
}  // namespace netfold::schedule

void bind_schedule(nb::module_& module) {
  using namespace netfold::schedule;
  module.def(
      "schedule", &make_for_python, "algorithm"_a, "world"_a, "rank"_a, "count"_a, nb::kw_only(),
      "collective"_a = "all-reduce", "root"_a = 0, "sub_nodes"_a = 0, "switches"_a = 0, "group"_a = 0,
      "between"_a = "ring", "align"_a = 1, "order"_a = std::vector<int>{},
      "What `rank` of `world` does to `count` elements: a list of steps, each a list of transfers\n"
      "(action, peer, offset, count), action 'send', 'fold' (receive and add) or 'store' (receive and keep),\n"
      "offset and count in elements, peer -1 for the switch. order: the rank at each position of hdrm's BiGraph, and\n"
      "then the rank that hands over to each, or -1 (none: rank order). Raises ValueError for what cannot be served.");
  module.def(
      "rank_mapping", [](int sub_nodes, int switches) { return value_or_raise(rank_mapping(sub_nodes, switches)); },
      "sub_nodes"_a, "switches"_a,
      "Ranks in physical order (the upper half's switches first, sub_nodes each) that give halving-doubling a link\n"
      "of its own for every connection on a BiGraph (eflops V-B). Both numbers must be powers of two.");
  module.def("usual_algorithm", &usual, "size_bytes"_a, "world"_a, "share_memory"_a,
             "The algorithm to take for a tensor of so many bytes where nothing was measured.");
  module.def(
      "sums_in_rank_order",
      [](const std::string& algorithm, int world, const std::string& wire) {
        return sums_in_rank_order(algorithm, world, netfold::numbers::is_narrow(netfold::format_of(wire)));
      },
      "algorithm"_a, "world"_a, "wire"_a,
      "Whether its all-reduces have the bits of the in-network fold, where elements travel in format `wire`.");
  module.def("algorithms", &algorithms_for_python, "Pairs of an algorithm's name and what it does.");
}
