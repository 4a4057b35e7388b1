// An engine of an agent's, for Python: called like a PeerGroup or a SwitchGroup of this process.
#include "group/via_agent/agent_group.h"

#include "collectives.h"
#include "module.h"

using namespace nb::literals;
namespace netfold {
namespace {

using group::AgentGroup;

class PyAgentPeerGroup : public GroupCalls<AgentGroup> {
 public:
  using GroupCalls::GroupCalls;
};

class PyAgentSwitchGroup : public GroupCalls<AgentGroup> {
 public:
  using GroupCalls::GroupCalls;
};

void bind_group(nb::module_& module) {
  auto bound = nb::class_<PyAgentPeerGroup>(module, "AgentPeerGroup",
                                            "A PeerGroup whose engine is an agent's. All ranks must use agents, or "
                                            "none: an agent folds a large tensor in parts.");
  bound
      .def(
          "__init__",
          [](PyAgentPeerGroup* self, const std::string& agent, int rank, int world, const std::string& listen,
             double timeout_s, bool shm, int tcp_streams, const std::string& secret) {
            auto opened = without_lock([&] {
              return AgentGroup::open(agent, {.rank = rank,
                                              .world = world,
                                              .listen = listen,
                                              .timeout_s = timeout_s,
                                              .shm = shm,
                                              .tcp_streams = tcp_streams,
                                              .secret = secret});
            });
            new (self) PyAgentPeerGroup(std::move(*opened));
          },
          "agent"_a, "rank"_a, "world"_a, nb::kw_only(), "listen"_a = "127.0.0.1:0", "timeout_s"_a = 30.0,
          "shm"_a = true, "tcp_streams"_a = 1, "secret"_a = "",
          "agent: the socket of a running one, a path or @name. The rest as PeerGroup's.")
      .def_prop_ro(
          "address", [](const PyAgentPeerGroup& self) { return self.engine().opened()["address"].get<std::string>(); },
          "host:port where this rank listens");
  bind_rank(bound);
}

void bind_client(nb::module_& module) {
  auto bound = nb::class_<PyAgentSwitchGroup>(module, "AgentSwitchGroup", "A SwitchGroup that an agent runs's.");
  bound
      .def(
          "__init__",
          [](PyAgentSwitchGroup* self, const std::string& agent, const std::string& switch_address,
             const std::string& job, std::uint16_t world, std::uint16_t rank, const std::string& secret,
             bool require_auth, double timeout_s, double connect_timeout_s, std::uint32_t window, int block,
             int mantissa, const std::string& faults, const std::string& pcap) {
            group::SwitchGroupOptions options;
            options.switch_address = switch_address;
            options.job = job;
            options.world = world;
            options.rank = rank;
            options.secret = secret;
            options.require_auth = require_auth;
            options.timeout_s = timeout_s;
            options.connect_timeout_s = connect_timeout_s;
            options.window = window;
            options.bfp = bfp_shape_of(block, mantissa);
            options.faults = faults;
            options.pcap_path = pcap;
            options.keep_going = &no_signal_came;
            auto joined = without_lock([&] { return AgentGroup::join(agent, options); });
            new (self) PyAgentSwitchGroup(std::move(*joined));
          },
          "agent"_a, "switch"_a, "job"_a, "world"_a, "rank"_a, nb::kw_only(), "secret"_a = "", "require_auth"_a = false,
          "timeout_s"_a = 30.0, "connect_timeout_s"_a = 30.0, "window"_a = 0, "block"_a = 16, "mantissa"_a = 7,
          "faults"_a = "", "pcap"_a = "",
          "agent: the socket of a running one, a path or @name. The rest as SwitchGroup's.")
      .def(
          "lease", [](const PyAgentSwitchGroup& self) { return to_python(self.engine().opened()); },
          "What the switch granted.");
  bind_all_reduce(bound);
  bind_waiting(bound, "The engine's counters; cpu_s are the agent's CPU seconds for this worker.");
}

}  // namespace
}  // namespace netfold

void bind_agent_group(nb::module_& module) {
  netfold::bind_group(module);
  netfold::bind_client(module);
}
