// A rank with a Verilated NIC, for Python: it has the methods of netfold._core.PeerGroup.
#include "bindings/arguments.h"
#include "bindings/collectives.h"
#include "nic_group.h"

using namespace nb::literals;

namespace netfold {
namespace {

class PyNicGroup : public GroupCalls<rtl::NicGroup> {
 public:
  using GroupCalls::GroupCalls;
};

}  // namespace
}  // namespace netfold

NB_MODULE(_rtl, module) {
  using netfold::PyNicGroup;
  module.attr("lanes") = NETFOLD_RTL_LANES;
  auto bound = nb::class_<PyNicGroup>(module, "NicGroup", "A rank whose all-reduces go through a Verilated smart NIC.");
  netfold::bind_open<int, std::string>(
      bound,
      [](const netfold::group::PeerGroupOptions& peers, int core, const std::string& faults) {
        netfold::rtl::NicGroupOptions options;
        options.peers = peers;
        options.peers.core = core;
        options.faults = faults;
        return netfold::rtl::NicGroup::open(std::move(options));
      },
      "core"_a = -1, "faults"_a = "",
      "Like netfold._core.PeerGroup; the NIC runs FP32 all-reduces by the ring, in fp32 or bfp. faults: of the\n"
      "frames between NICs, \"loss=0.01,seed=7\".");
  bound.def_prop_ro(
      "address", [](const PyNicGroup& self) { return self.engine().address(); }, "host:port where this rank listens");
  netfold::bind_rank(bound);
}
