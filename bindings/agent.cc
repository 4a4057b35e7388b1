// All-reduces by an agent, for Python: a HostGroup and a Client whose engine is in another process.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/agent/agent_client.h"
#include "errors.h"
#include "module.h"
#include "tickets.h"

using namespace nb::literals;
namespace netfold {
namespace {

using engine::AgentClient;

numbers::BfpShape shape_of(int block, int mantissa) {
  const numbers::BfpShape shape{static_cast<std::uint8_t>(block), static_cast<std::uint8_t>(mantissa)};
  if (block < 0 || block > 255 || mantissa < 0 || mantissa > 255 || !numbers::is_valid(shape)) {
    throw nb::value_error("a bfp shape has a block of 8, 16, 32, 64 or 128 and a mantissa of 2 to 7 bits");
  }
  return shape;
}

template <class Call>
auto without_lock(Call call) {
  auto result = [&] {
    const nb::gil_scoped_release release;
    return call();
  }();
  if (result) return result;
  if (PyErr_Occurred() != nullptr) throw nb::python_error();  // a signal handler raised while we waited
  raise(result.error());
}

class PyAgentClient {
 public:
  explicit PyAgentClient(std::unique_ptr<AgentClient> client) : client_(std::move(client)) {}

  std::uint64_t all_reduce(std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
                           const std::string& wire, bool average, const engine::CollectiveOptions& how) {
    const auto ticket = client_->submit({reinterpret_cast<const void*>(in), reinterpret_cast<void*>(out), count,
                                         element_type_of(type), format_of(wire), average},
                                        how);
    if (!ticket) raise(ticket.error());
    return *ticket;
  }

  void connect(const std::vector<std::string>& addresses) {
    without_lock([&] { return client_->connect(addresses, &no_signal_came); });
  }
  void wait(std::uint64_t ticket) { wait_for_ticket(*client_, ticket); }
  auto next_completion(double timeout_s) { return next_finished(*client_, timeout_s); }
  nb::object opened() const { return to_python(client_->opened()); }

  nb::object stats() const {
    const auto counters = [&] {
      const nb::gil_scoped_release release;
      return client_->counters();
    }();
    return to_python(counters);
  }

  void close(const std::string& reason) {
    std::optional<Error> error;
    if (!reason.empty()) error = Error{ErrorCode::kPeerFailed, reason};
    const nb::gil_scoped_release release;
    client_->close(error);
  }

 private:
  std::unique_ptr<AgentClient> client_;
};

class PyAgentHostGroup : public PyAgentClient {
 public:
  using PyAgentClient::PyAgentClient;
};
class PyAgentSwitchClient : public PyAgentClient {
 public:
  using PyAgentClient::PyAgentClient;
};

template <class Bound>
nb::class_<Bound> bind_what_both_have(nb::module_& module, const char* name, const char* doc) {
  return nb::class_<Bound>(module, name, doc)
      .def("wait", &Bound::wait, "ticket"_a, "Blocks until the all-reduce is done; raises NetfoldError if it failed.")
      .def("next_completion", &Bound::next_completion, "timeout_s"_a,
           nb::sig("def next_completion(self, timeout_s: float) -> tuple[int, object] | None"),
           "The next finished (ticket, None or NetfoldError), or None after timeout_s.")
      .def("stats", &Bound::stats, "The engine's counters; cpu_s are the agent's CPU seconds for this worker.")
      .def("close", &Bound::close, "reason"_a = "",
           "Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.");
}

void bind_group(nb::module_& module) {
  bind_what_both_have<PyAgentHostGroup>(module, "AgentHostGroup", "A HostGroup whose engine is an agent's.")
      .def(
          "__init__",
          [](PyAgentHostGroup* self, const std::string& agent, int rank, int world, const std::string& listen,
             double timeout_s, bool shm, const std::string& secret) {
            engine::HostGroupOptions options;
            options.rank = rank;
            options.world = world;
            options.listen = listen;
            options.timeout_s = timeout_s;
            options.shm = shm;
            options.secret = secret;
            auto opened = without_lock([&] { return AgentClient::open(agent, options); });
            new (self) PyAgentHostGroup(std::move(*opened));
          },
          "agent"_a, "rank"_a, "world"_a, nb::kw_only(), "listen"_a = "127.0.0.1:0", "timeout_s"_a = 30.0,
          "shm"_a = true, "secret"_a = "",
          "agent: the socket of a running one, a path or @name. The rest as HostGroup's.")
      .def_prop_ro(
          "address", [](const PyAgentHostGroup& self) -> nb::object { return self.opened()["address"]; },
          "host:port where this rank listens")
      .def("connect", &PyAgentHostGroup::connect, "addresses"_a, "As HostGroup.connect.")
      .def(
          "all_reduce",
          [](PyAgentHostGroup& self, std::uintptr_t in, std::uintptr_t out, std::size_t count, const std::string& type,
             const std::string& wire, bool average, const std::string& algorithm, int sub_nodes, int switches,
             int group, const std::string& between, int block, int mantissa) {
            engine::CollectiveOptions how;
            how.algorithm = algorithm;
            how.sub_nodes = sub_nodes;
            how.switches = switches;
            how.group = group;
            how.between = between;
            how.bfp = shape_of(block, mantissa);
            return self.all_reduce(in, out, count, type, wire, average, how);
          },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "algorithm"_a = "ring",
          "sub_nodes"_a = 0, "switches"_a = 0, "group"_a = 0, "between"_a = "ring", "block"_a = 16, "mantissa"_a = 7,
          "As HostGroup.all_reduce. All ranks must use agents, or none: an agent folds a large tensor in parts.");
}

void bind_client(nb::module_& module) {
  bind_what_both_have<PyAgentSwitchClient>(module, "AgentClient", "A Client whose engine is an agent's.")
      .def(
          "__init__",
          [](PyAgentSwitchClient* self, const std::string& agent, const std::string& switch_address,
             const std::string& job, std::uint16_t world, std::uint16_t rank, const std::string& secret,
             bool require_auth, double timeout_s, double connect_timeout_s, std::uint32_t window, int block,
             int mantissa, const std::string& faults, const std::string& pcap) {
            engine::ClientOptions options;
            options.switch_address = switch_address;
            options.job = job;
            options.world = world;
            options.rank = rank;
            options.secret = secret;
            options.require_auth = require_auth;
            options.timeout_s = timeout_s;
            options.connect_timeout_s = connect_timeout_s;
            options.window = window;
            options.bfp = shape_of(block, mantissa);
            options.faults = faults;
            options.pcap_path = pcap;
            options.keep_going = &no_signal_came;
            auto joined = without_lock([&] { return AgentClient::join(agent, options); });
            new (self) PyAgentSwitchClient(std::move(*joined));
          },
          "agent"_a, "switch"_a, "job"_a, "world"_a, "rank"_a, nb::kw_only(), "secret"_a = "", "require_auth"_a = false,
          "timeout_s"_a = 30.0, "connect_timeout_s"_a = 30.0, "window"_a = 0, "block"_a = 16, "mantissa"_a = 7,
          "faults"_a = "", "pcap"_a = "", "agent: the socket of a running one, a path or @name. The rest as Client's.")
      .def(
          "all_reduce",
          [](PyAgentSwitchClient& self, std::uintptr_t in, std::uintptr_t out, std::size_t count,
             const std::string& type, const std::string& wire,
             bool average) { return self.all_reduce(in, out, count, type, wire, average, {}); },
          "in_ptr"_a, "out_ptr"_a, "count"_a, "dtype"_a, "wire"_a, "average"_a = false, "As Client.all_reduce.")
      .def("lease", &PyAgentSwitchClient::opened, "What the switch granted.");
}

}  // namespace
}  // namespace netfold

void bind_agent(nb::module_& module) {
  netfold::bind_group(module);
  netfold::bind_client(module);
}
