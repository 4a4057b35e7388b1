// The engine for Python: a worker's client and an embedded switch. Errors of the core become NetfoldError.
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "collectives.h"
#include "group/via_switch/aggregation_observer.h"
#include "group/via_switch/switch_group.h"
#include "group_calls.h"
#include "module.h"
#include "switch/switch_server.h"

namespace nb = nanobind;
using namespace nb::literals;
namespace netfold {
namespace {

using group::SwitchGroup;
using switching::SwitchServer;

class PySwitchGroup : public GroupCalls<SwitchGroup> {
 public:
  using GroupCalls::GroupCalls;
};

class PySwitch {
 public:
  PySwitch(const std::string& bind, std::uint16_t shards, const std::string& secret, bool require_auth,
           std::uint16_t jobs_max, std::size_t memory_max_bytes, double heartbeat_s, const std::vector<int>& cores,
           const std::string& parent) {
    const auto address = link::parse_address(bind);
    if (!address) raise(address.error());
    switching::SwitchServerOptions options;
    options.bind = *address;
    options.data.shards = shards;
    options.data.cores = cores;
    options.secret = secret;
    options.require_auth = require_auth;
    options.jobs_max = jobs_max;
    options.memory_max_bytes = memory_max_bytes;
    options.heartbeat_s = heartbeat_s;
    options.parent = parent;
    auto server = SwitchServer::start(std::move(options));
    if (!server) raise(server.error());
    server_ = owned_by_process(std::move(*server));
  }

  std::string address() const { return link::to_string(require().address()); }

  JsonRecord stats() const { return to_python(switching::to_json(require().stats())); }

  void close() {
    const nb::gil_scoped_release release;
    server_.reset();
  }

 private:
  const SwitchServer& require() const {
    if (!server_) throw nb::value_error("this switch has been closed");
    return *server_;
  }

  ProcessOwned<SwitchServer> server_;
};

void bind_worker(nb::module_& module) {
  auto bound = nb::class_<PySwitchGroup>(module, "SwitchGroup",
                                         "A worker in a job: hands all-reduces to the switch and waits for them.");
  bind_join<int, bool>(
      bound,
      [](group::SwitchGroupOptions options, int core, bool is_hosted) {
        options.core = core;
        options.is_hosted = is_hosted;
        return SwitchGroup::join(options);
      },
      "core"_a = -1, "hosted"_a = false,
      "Joins `job` at the switch `host:port` as `rank` of `world`; blocks until all are there, at most timeout_s,\n"
      "and gives up after connect_timeout_s if no switch answers there.\n"
      "Raises NetfoldError. secret: what the job's workers share. window: chunks in flight, 0 for the default.\n"
      "core: where the progress thread runs, -1 for anywhere. faults: seeded trouble for tests, such as\n"
      "'loss=0.01,duplicate=0.01,reorder=0.05,seed=7'. pcap: a capture file to write.\n"
      "place: where the switch is, for errors: \"in rank 0's process\".\n"
      "dscp: of this worker's packets, 0 to 63. interface: by which they leave this machine; '': the routing table's.\n"
      "hosted: the job has an AggregationObserver, wait for it too.");
  bound.def(
      "lease", [](const PySwitchGroup& self) { return to_python(group::to_json(self.engine().lease())); },
      "What the switch granted: job and epoch numbers, slots, payload_bytes, ...");
  bind_all_reduce(bound);
  bind_through_switch(bound);
  bind_waiting(bound, "Packets, bytes, retransmissions and the measured round trip so far.");
}

class PyAggregationObserver {
 public:
  explicit PyAggregationObserver(std::unique_ptr<group::AggregationObserver> host)
      : host_(owned_by_process(std::move(host))) {}

  std::uint64_t expect(std::size_t count, const std::string& wire) { return host_->expect(count, format_of(wire)); }
  bool wait(std::uint64_t ticket, double timeout_s) { return wait_hearing_signals(*host_, ticket, timeout_s); }
  JsonRecord stats() const { return to_python(host_->counters()); }
  void close() {
    const nb::gil_scoped_release release;
    host_->close();
  }

 private:
  ProcessOwned<group::AggregationObserver> host_;
};

void bind_observer(nb::module_& module) {
  nb::class_<PyAggregationObserver>(
      module, "AggregationObserver",
      "The host of a job: told by the switch when its workers' tensors are folded. A switch of\n"
      "frames folds the workers' packets on their way to this host, which receives none of them.")
      .def(
          "__init__",
          [](PyAggregationObserver* self, const std::string& switch_address, const std::string& job,
             std::uint16_t world, const std::string& secret, bool require_auth, double timeout_s,
             double connect_timeout_s, int block, int mantissa) {
            auto options = join_options(switch_address, job, world, secret, require_auth, timeout_s, connect_timeout_s,
                                        block, mantissa);
            auto joined = without_lock([&] { return group::AggregationObserver::join(std::move(options)); });
            new (self) PyAggregationObserver(std::move(*joined));
          },
          "switch"_a, "job"_a, "world"_a, nb::kw_only(), "secret"_a = "", "require_auth"_a = false,
          "timeout_s"_a = 30.0, "connect_timeout_s"_a = 30.0, "block"_a = 16, "mantissa"_a = 7,
          "Joins `job` of `world` workers as its host, before the last of them does; blocks until all are there, at\n"
          "most timeout_s. The other arguments are the workers' own (SwitchGroup). Raises NetfoldError.")
      .def("expect", &PyAggregationObserver::expect, "count"_a, "wire"_a = "fp32",
           "The next tensor that the workers submit has `count` elements; returns a ticket at once.")
      .def("wait", &PyAggregationObserver::wait, "ticket"_a, "timeout_s"_a = std::numeric_limits<double>::infinity(),
           "Blocks until the switch says that the tensor is folded; raises NetfoldError once the job is over.")
      .def("stats", &PyAggregationObserver::stats, "Questions asked, signals heard, foreign packets dropped.")
      .def("close", &PyAggregationObserver::close, "Leaves; the job goes on. Idempotent.");
}

void bind_switch(nb::module_& module) {
  nb::class_<PySwitch>(module, "Switch", "A folding switch in this process, on threads of its own.")
      .def(nb::init<const std::string&, std::uint16_t, const std::string&, bool, std::uint16_t, std::size_t, double,
                    const std::vector<int>&, const std::string&>(),
           "bind"_a = "0.0.0.0:0", nb::kw_only(), "shards"_a = 1, "secret"_a = "", "require_auth"_a = false,
           "jobs_max"_a = 64, "memory_max_bytes"_a = std::size_t{1} << 30, "heartbeat_s"_a = 1.0,
           "cores"_a = std::vector<int>{}, "parent"_a = "",
           "Listens at `bind` (port 0: the kernel picks). shards: threads that fold, a power of two.\n"
           "parent: the address of the switch above, host:port; it has the same secret.")
      .def_prop_ro("address", &PySwitch::address, "host:port of the control port")
      .def("stats", &PySwitch::stats, "Jobs, counters and drops by reason.")
      .def("close", &PySwitch::close, "Tells the workers and stops; idempotent.");
}

}  // namespace
}  // namespace netfold

void bind_switch_group(nb::module_& module) {
  nb::set_leak_warnings(false);  // a process that ends in the middle of a job may leave its client to the kernel
  netfold::bind_worker(module);
  netfold::bind_observer(module);
  netfold::bind_switch(module);
  module.attr("NetfoldError") = netfold::error_type();
}
