// Ranks that all-reduce among themselves, for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "engine/host_group.h"
#include "errors.h"
#include "module.h"
#include "tickets.h"

using namespace nb::literals;
namespace netfold {
namespace {

using engine::HostGroup;

class PyHostGroup {
 public:
  explicit PyHostGroup(const engine::HostGroupOptions& options) {
    auto opened = HostGroup::open(options);
    if (!opened) raise(opened.error());
    group_ = std::move(*opened);
  }

  const std::string& address() const { return group_->address(); }

  void set_physical_order(const std::vector<int>& order) { group_->set_physical_order(order); }

  void connect(const std::vector<std::string>& addresses) {
    const auto connected = [&] {
      const nb::gil_scoped_release release;
      return group_->connect(addresses, &no_signal_came);
    }();
    if (connected) return;
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // a signal handler raised while we connected
    raise(connected.error());
  }

  std::uint64_t all_reduce(std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
                           const std::string& wire, bool average, const std::string& algorithm, int sub_nodes,
                           int switches, int group, const std::string& between, int block, int mantissa) {
    engine::CollectiveOptions options;
    options.algorithm = algorithm;
    options.sub_nodes = sub_nodes;
    options.switches = switches;
    options.group = group;
    options.between = between;
    options.bfp = shape_of(block, mantissa);
    return submit(in, out, count, type, wire, average, options);
  }

  std::uint64_t reduce_scatter(std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
                               const std::string& wire, bool average, const std::string& algorithm, int block,
                               int mantissa) {
    engine::CollectiveOptions options;
    options.collective = schedule::Collective::kReduceScatter;
    options.algorithm = algorithm;
    options.bfp = shape_of(block, mantissa);
    return submit(in, out, count, type, wire, average, options);
  }

  std::uint64_t all_gather(std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
                           const std::string& wire, const std::string& algorithm, int block, int mantissa) {
    engine::CollectiveOptions options;
    options.collective = schedule::Collective::kAllGather;
    options.algorithm = algorithm;
    options.bfp = shape_of(block, mantissa);
    return submit(in, out, count, type, wire, false, options);
  }

  std::uint64_t broadcast(std::uintptr_t memory, std::size_t count, int root, const std::string& type,
                          const std::string& wire, const std::string& algorithm, int block, int mantissa) {
    engine::CollectiveOptions options;
    options.collective = schedule::Collective::kBroadcast;
    options.root = root;
    options.algorithm = algorithm;
    options.bfp = shape_of(block, mantissa);
    return submit(memory, memory, count, type, wire, false, options);
  }

  std::uint64_t barrier() {
    engine::CollectiveOptions options;
    options.collective = schedule::Collective::kBarrier;
    options.algorithm = "dissemination";
    return submit(0, 0, 0, "fp32", "fp32", false, options);
  }

  void wait(std::uint64_t ticket) { wait_for_ticket(*group_, ticket); }
  auto next_completion(double timeout_s) { return next_finished(*group_, timeout_s); }

  nb::object stats() const { return to_python(group_->counters()); }

  void close(const std::string& reason) {
    std::optional<Error> error;
    if (!reason.empty()) error = Error{ErrorCode::kPeerFailed, reason};
    const nb::gil_scoped_release release;
    group_->close(error);
  }

 private:
  static numbers::BfpShape shape_of(int block, int mantissa) {
    if (block >= 0 && block <= 255 && mantissa >= 0 && mantissa <= 255) {
      return {static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)};
    }
    throw nb::value_error("a bfp shape has a block of 8, 16, 32, 64 or 128 and a mantissa of 2 to 7 bits");
  }

  std::uint64_t submit(std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
                       const std::string& wire, bool average, const engine::CollectiveOptions& options) {
    const auto ticket = group_->submit({reinterpret_cast<const void*>(in), reinterpret_cast<void*>(out), count,
                                        element_type_of(type), format_of(wire), average},
                                       options);
    if (!ticket) raise(ticket.error());
    return *ticket;
  }

  std::unique_ptr<HostGroup> group_;
};

}  // namespace
}  // namespace netfold

void bind_host_group(nb::module_& module) {
  using netfold::PyHostGroup;
  nb::class_<PyHostGroup>(module, "HostGroup", "A rank among others that fold without a switch.")
      .def(
          "__init__",
          [](PyHostGroup* self, int rank, int world, const std::string& listen, double timeout_s, int core, bool shm,
             bool inline_progress, const std::string& secret) {
            netfold::engine::HostGroupOptions options;
            options.rank = rank;
            options.world = world;
            options.listen = listen;
            options.timeout_s = timeout_s;
            options.core = core;
            options.shm = shm;
            options.inline_progress = inline_progress;
            options.secret = secret;
            new (self) PyHostGroup(options);
          },
          "rank"_a, "world"_a, nb::kw_only(), "listen"_a = "127.0.0.1:0", "timeout_s"_a = 30.0, "core"_a = -1,
          "shm"_a = true, "inline_progress"_a = false, "secret"_a = "",
          "Listens at `listen` (port 0: the kernel picks). Make every rank's `address` known to all, then connect.\n"
          "core: where the progress thread runs, -1 for anywhere. shm: shared memory between ranks of one machine.\n"
          "inline_progress: no thread; wait and next_completion drive the all-reduces, for the lowest latency.\n"
          "secret: what all ranks must prove to know before any of them takes data from another; none if empty.")
      .def_prop_ro("address", &PyHostGroup::address, "host:port where this rank listens")
      .def("set_physical_order", &PyHostGroup::set_physical_order, "order"_a,
           "Where the ranks sit, for hdrm: the rank at each position of the BiGraph. Alike on all ranks, before "
           "connect.")
      .def("connect", &PyHostGroup::connect, "addresses"_a,
           "Connects to all ranks, whose addresses are given by rank; blocks, at most timeout_s. Raises NetfoldError.")
      .def("all_reduce", &PyHostGroup::all_reduce, "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a,
           "average"_a = false, "algorithm"_a = "ring", "sub_nodes"_a = 0, "switches"_a = 0, "group"_a = 0,
           "between"_a = "ring", "block"_a = 16, "mantissa"_a = 7,
           "Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a\n"
           "ticket at once. The memory belongs to the group until the ticket is finished. Every rank hands over the\n"
           "same all-reduces in the same order. algorithm and its options: see schedule().")
      .def("reduce_scatter", &PyHostGroup::reduce_scatter, "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a,
           "average"_a = false, "algorithm"_a = "ring", "block"_a = 16, "mantissa"_a = 7,
           "Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of\n"
           "them, to out_ptr; in_ptr is only read. The rest as all_reduce.")
      .def(
          "all_gather", &PyHostGroup::all_gather, "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a,
          "algorithm"_a = "ring", "block"_a = 16, "mantissa"_a = 7,
          "Writes every rank's `count` elements at in_ptr, one rank behind the other, to out_ptr. In place, in_ptr is\n"
          "this rank's part at out_ptr. A wire format that rounds rounds every rank's part alike, the own one too.")
      .def("broadcast", &PyHostGroup::broadcast, "ptr"_a, "count"_a, "root"_a, "dtype"_a, "wire"_a,
           "algorithm"_a = "binomial", "block"_a = 16, "mantissa"_a = 7,
           "Writes root's `count` elements to every rank's memory. algorithm: binomial for few bytes, ring for many.")
      .def("barrier", &PyHostGroup::barrier, "Its ticket is finished once every rank has come to the same barrier.")
      .def("wait", &PyHostGroup::wait, "ticket"_a,
           "Blocks until the ticket's collective is done; raises NetfoldError if it failed.")
      .def("next_completion", &PyHostGroup::next_completion, "timeout_s"_a,
           nb::sig("def next_completion(self, timeout_s: float) -> tuple[int, object] | None"),
           "The next finished (ticket, None or NetfoldError), or None after timeout_s.")
      .def("stats", &PyHostGroup::stats, "Peers and bytes by kind of link, and elements reduced.")
      .def("close", &PyHostGroup::close, "reason"_a = "",
           "Leaves the group; what is unfinished fails. A reason tells the other ranks that this one failed.");
}
