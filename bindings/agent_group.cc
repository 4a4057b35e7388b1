// An engine of an agent's, for Python: called like a PeerGroup or a SwitchGroup of this process.
#include "group/via_agent/agent_group.h"

#include "arguments.h"
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
  bind_open<std::string>(
      bound,
      [](const group::PeerGroupOptions& options, const std::string& agent) { return AgentGroup::open(agent, options); },
      "agent"_a, "agent: the socket of a running one, a path or @name. The rest as PeerGroup's.");
  bound.def_prop_ro(
      "address", [](const PyAgentPeerGroup& self) { return self.engine().opened()["address"].get<std::string>(); },
      "host:port where this rank listens");
  bind_rank(bound);
}

void bind_client(nb::module_& module) {
  auto bound = nb::class_<PyAgentSwitchGroup>(module, "AgentSwitchGroup", "A SwitchGroup that an agent runs.");
  bind_join<std::string>(
      bound,
      [](const group::SwitchGroupOptions& options, const std::string& agent) {
        return AgentGroup::join(agent, options);
      },
      "agent"_a, "agent: the socket of a running one, a path or @name. The rest as SwitchGroup's.");
  bound.def(
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
