// The collectives of a rank among others, or at a switch, for Python: alike for every engine that has them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "group/via_peers/plans.h"
#include "group_calls.h"

namespace netfold {

inline group::CollectiveRequest request_as_it_lies(std::uintptr_t in, std::uintptr_t out, std::size_t count,
                                                   const std::string& type) {
  return {reinterpret_cast<const void*>(in), reinterpret_cast<void*>(out), count, element_type_of(type),
          numbers::Format::kNone};
}

// The collectives other than all-reduce of a worker at a switch.
template <class Bound>
void bind_through_switch(nb::class_<Bound>& bound) {
  using namespace nb::literals;
  bound
      .def(
          "reduce_scatter",
          [](Bound& self, std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
             const std::string& wire, bool average, bool awaited) {
            auto request = request_for(in, out, count, type, wire, average);
            request.collective = schedule::Collective::kReduceScatter;
            return self.submit(request, awaited);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "awaited"_a = false,
          "Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of\n"
          "them, to out_ptr. The rest as all_reduce.")
      .def(
          "collect",
          [](Bound& self, const std::string& collective, std::uintptr_t in, std::uintptr_t out, std::size_t count,
             const std::string& type, int root, const std::string&, bool awaited) {
            const auto named = schedule::collective_named(collective);
            if (!named) raise(named.error());
            auto request = request_as_it_lies(in, out, count, type);
            request.collective = *named;
            request.root = root;
            return self.submit(request, awaited);
          },
          "collective"_a, "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "root"_a = 0, "algorithm"_a = "",
          "awaited"_a = false,
          "An all-gather of every rank's `count` elements, or a broadcast of root's, as they lie in memory: the "
          "switch\n"
          "multiplies them. dtype, root: as of PeerGroup; algorithm is ignored. The rest as all_reduce.")
      .def(
          "barrier",
          [](Bound& self, bool awaited) {
            return self.submit({.collective = schedule::Collective::kBarrier}, awaited);
          },
          "awaited"_a = false, "Its ticket is finished once every rank has come to the same barrier.");
}

template <class Bound>
void bind_meeting(nb::class_<Bound>& bound) {
  using namespace nb::literals;
  bound
      .def(
          "set_physical_order",
          [](Bound& self, const std::vector<int>& order) { self.engine().set_physical_order(order); }, "order"_a,
          "Where the ranks sit, for hdrm: see `order` of schedule(). Alike on all ranks, before connect.")
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
             int group, const std::string& between, int block, int mantissa, bool awaited, bool encoded) {
            auto request = request_for(in, out, count, type, wire, average);
            request.algorithm = {algorithm, sub_nodes, switches, group, between};
            request.bfp = bfp_shape_of(block, mantissa);
            request.is_encoded = encoded;
            return self.submit(request, awaited);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "algorithm"_a = "ring",
          "sub_nodes"_a = 0, "switches"_a = 0, "group"_a = 0, "between"_a = "ring", "block"_a = 16, "mantissa"_a = 7,
          "awaited"_a = false, "encoded"_a = false,
          "Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a\n"
          "ticket at once. The memory belongs to the group until the ticket is finished. Every rank hands over the\n"
          "same all-reduces in the same order. algorithm and its options: see schedule(). awaited: the caller waits\n"
          "for this ticket next, and does the work itself; no thread is woken for it, next_completion does not return "
          "it. encoded: both addresses hold whole blocks of `wire`, which is bfp; only of sums.")
      .def(
          "reduce_scatter",
          [](Bound& self, std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
             const std::string& wire, bool average, const std::string& algorithm, int sub_nodes, int switches,
             int block, int mantissa, bool awaited) {
            auto request = request_for(in, out, count, type, wire, average);
            request.collective = schedule::Collective::kReduceScatter;
            request.algorithm = {.name = algorithm, .sub_nodes = sub_nodes, .switches = switches};
            request.bfp = bfp_shape_of(block, mantissa);
            return self.submit(request, awaited);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "algorithm"_a = "ring",
          "sub_nodes"_a = 0, "switches"_a = 0, "block"_a = 16, "mantissa"_a = 7, "awaited"_a = false,
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
             const std::string& wire, const std::string& algorithm, int sub_nodes, int switches, int block,
             int mantissa, bool awaited) {
            auto request = request_for(in, out, count, type, wire);
            request.collective = schedule::Collective::kAllGather;
            request.algorithm = {.name = algorithm, .sub_nodes = sub_nodes, .switches = switches};
            request.bfp = bfp_shape_of(block, mantissa);
            return self.submit(request, awaited);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "algorithm"_a = "ring", "sub_nodes"_a = 0,
          "switches"_a = 0, "block"_a = 16, "mantissa"_a = 7, "awaited"_a = false,
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

inline numbers::Operation operation_of(const std::string& name) {
  const auto operation = numbers::operation_named(name);
  if (!operation) {
    throw nb::value_error(("'" + name + "' is not an operation: sum, product, min, max, band, bor or bxor").c_str());
  }
  return *operation;
}

// Elements that travel as they lie in memory: every type and every operation.
template <class Bound>
void bind_all_types(nb::class_<Bound>& bound) {
  using namespace nb::literals;
  bound
      .def(
          "collect",
          [](Bound& self, const std::string& collective, std::uintptr_t in, std::uintptr_t out, std::size_t count,
             const std::string& type, const std::string& operation, bool average, int root,
             const std::string& algorithm, int sub_nodes, int switches, const std::string& wire, bool awaited) {
            const auto named = schedule::collective_named(collective);
            if (!named) raise(named.error());
            auto request = request_as_it_lies(in, out, count, type);
            request.collective = *named;
            request.operation = operation_of(operation);
            request.average = average;
            request.root = root;
            request.algorithm = {.name = algorithm, .sub_nodes = sub_nodes, .switches = switches};
            if (!wire.empty()) request.format = format_of(wire);
            return self.submit(request, awaited);
          },
          "collective"_a, "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "operation"_a = "sum", "average"_a = false,
          "root"_a = 0, "algorithm"_a = "direct", "sub_nodes"_a = 0, "switches"_a = 0, "wire"_a = "",
          "awaited"_a = false,
          "An all-reduce, reduce, reduce-scatter, all-gather or broadcast, of elements as they lie in memory\n"
          "unless `wire` names a format. dtype:\n"
          "fp64, fp32, fp16, bf16, int8 to int64, uint8 to uint64, bool, complex64 or complex128. operation: sum,\n"
          "product, min, max, band, bor or bxor. Only the root's out_ptr is written in a reduce. Returns a ticket.")
      .def(
          "exchange",
          [](Bound& self, const std::string& collective, std::uintptr_t in, std::uintptr_t out, const std::string& type,
             const std::vector<std::size_t>& sends, const std::vector<std::size_t>& receives, int root, bool awaited) {
            auto request = request_as_it_lies(in, out, 0, type);
            request.collective = collective == "gather"    ? schedule::Collective::kGather
                                 : collective == "scatter" ? schedule::Collective::kScatter
                                                           : schedule::Collective::kAllToAll;
            request.parts = std::make_shared<const schedule::Parts>(schedule::Parts{sends, receives});
            request.root = root;
            return self.submit(request, awaited);
          },
          "collective"_a, "in_ptr"_a, "out_ptr"_a, "dtype"_a, "sends"_a, "receives"_a, "root"_a = 0,
          "awaited"_a = false,
          "An all-to-all, gather or scatter. sends, receives: elements by rank. They lie one part behind the other, "
          "in\n"
          "the order of ranks, at in_ptr and at out_ptr, which do not overlap. Returns a ticket.")
      .def(
          "send",
          [](Bound& self, std::uintptr_t memory, std::size_t size_bytes, int to, std::uint64_t tag, bool awaited) {
            auto request = request_as_it_lies(memory, memory, size_bytes, "uint8");
            request.collective = schedule::Collective::kSend;
            request.peer = to;
            request.tag = tag;
            return self.submit(request, awaited);
          },
          "ptr"_a, "size_bytes"_a, "to"_a, "tag"_a = 0, "awaited"_a = false,
          "Sends a message to another rank. Its ticket is finished once the memory may be used again. Messages do not\n"
          "wait for collectives, nor collectives for messages.")
      .def(
          "receive",
          [](Bound& self, std::uintptr_t memory, std::size_t size_bytes, int from, std::uint64_t tag,
             std::uintptr_t sender, bool awaited) {
            auto request = request_as_it_lies(memory, memory, size_bytes, "uint8");
            request.collective = schedule::Collective::kReceive;
            request.peer = from;
            request.tag = tag;
            request.sender = reinterpret_cast<std::int32_t*>(sender);
            return self.submit(request, awaited);
          },
          "ptr"_a, "size_bytes"_a, "from_rank"_a = -1, "tag"_a = 0, "sender_ptr"_a = 0, "awaited"_a = false,
          "Receives a message of this size and tag, from a rank or (-1) from any. The sender's rank is written to the\n"
          "int32 at sender_ptr, unless that is 0.");
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
