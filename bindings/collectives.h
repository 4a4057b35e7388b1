// The collectives of a rank among others, for Python: alike for a group in this process and one in an agent.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "group/via_peers/plans.h"
#include "group_calls.h"

namespace netfold {

template <class Bound>
void bind_meeting(nb::class_<Bound>& bound) {
  using namespace nb::literals;
  bound
      .def(
          "set_physical_order",
          [](Bound& self, const std::vector<int>& order) { self.engine().set_physical_order(order); }, "order"_a,
          "Where the ranks sit, for hdrm: the rank at each position of the BiGraph. Alike on all ranks, before "
          "connect.")
      .def(
          "connect",
          [](Bound& self, const std::vector<std::string>& addresses) {
            without_lock([&] { return self.engine().connect(addresses, &no_signal_came); });
          },
          "addresses"_a,
          "Connects to all ranks, whose addresses are given by rank; blocks, at most timeout_s. Raises NetfoldError.");
}

template <class Bound>
void bind_sums(nb::class_<Bound>& bound) {
  using namespace nb::literals;
  bound
      .def(
          "all_reduce",
          [](Bound& self, std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
             const std::string& wire, bool average, const std::string& algorithm, int sub_nodes, int switches,
             int group, const std::string& between, int block, int mantissa, bool awaited) {
            auto request = request_for(in, out, count, type, wire, average);
            request.algorithm = {algorithm, sub_nodes, switches, group, between};
            request.bfp = bfp_shape_of(block, mantissa);
            return self.submit(request, awaited);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "algorithm"_a = "ring",
          "sub_nodes"_a = 0, "switches"_a = 0, "group"_a = 0, "between"_a = "ring", "block"_a = 16, "mantissa"_a = 7,
          "awaited"_a = false,
          "Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a\n"
          "ticket at once. The memory belongs to the group until the ticket is finished. Every rank hands over the\n"
          "same all-reduces in the same order. algorithm and its options: see schedule(). awaited: the caller waits\n"
          "for this ticket next, and does the work itself; no thread is woken for it, next_completion does not return "
          "it.")
      .def(
          "reduce_scatter",
          [](Bound& self, std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
             const std::string& wire, bool average, const std::string& algorithm, int block, int mantissa,
             bool awaited) {
            auto request = request_for(in, out, count, type, wire, average);
            request.collective = schedule::Collective::kReduceScatter;
            request.algorithm.name = algorithm;
            request.bfp = bfp_shape_of(block, mantissa);
            return self.submit(request, awaited);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "algorithm"_a = "ring",
          "block"_a = 16, "mantissa"_a = 7, "awaited"_a = false,
          "Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of\n"
          "them, to out_ptr; in_ptr is only read. The rest as all_reduce.");
}

template <class Bound>
void bind_copies(nb::class_<Bound>& bound) {
  using namespace nb::literals;
  bound
      .def(
          "all_gather",
          [](Bound& self, std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
             const std::string& wire, const std::string& algorithm, int block, int mantissa, bool awaited) {
            auto request = request_for(in, out, count, type, wire);
            request.collective = schedule::Collective::kAllGather;
            request.algorithm.name = algorithm;
            request.bfp = bfp_shape_of(block, mantissa);
            return self.submit(request, awaited);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "algorithm"_a = "ring", "block"_a = 16,
          "mantissa"_a = 7, "awaited"_a = false,
          "Writes every rank's `count` elements at in_ptr, one rank behind the other, to out_ptr. In place, in_ptr is\n"
          "this rank's part at out_ptr. A wire format that rounds rounds every rank's part alike, the own one too.")
      .def(
          "broadcast",
          [](Bound& self, std::uintptr_t memory, std::size_t count, int root, const std::string& type,
             const std::string& wire, const std::string& algorithm, int block, int mantissa, bool awaited) {
            auto request = request_for(memory, memory, count, type, wire);
            request.collective = schedule::Collective::kBroadcast;
            request.root = root;
            request.algorithm.name = algorithm;
            request.bfp = bfp_shape_of(block, mantissa);
            return self.submit(request, awaited);
          },
          "ptr"_a, "count"_a, "root"_a, "dtype"_a, "wire"_a, "algorithm"_a = "binomial", "block"_a = 16,
          "mantissa"_a = 7, "awaited"_a = false,
          "Writes root's `count` elements to every rank's memory. algorithm: binomial for few bytes, ring for many.")
      .def(
          "barrier",
          [](Bound& self, bool awaited) {
            return self.submit({.collective = schedule::Collective::kBarrier, .algorithm = {.name = "dissemination"}},
                               awaited);
          },
          "awaited"_a = false, "Its ticket is finished once every rank has come to the same barrier.");
}

// All of a rank's calls but how it listens.
template <class Bound>
void bind_rank(nb::class_<Bound>& bound) {
  bind_meeting(bound);
  bind_sums(bound);
  bind_copies(bound);
  bind_waiting(bound, "Peers and bytes by kind of link, elements reduced, and the engine's CPU seconds (cpu_s).");
}

}  // namespace netfold
