// A rank with a Verilated NIC, for Python: it has the methods of netfold._core.PeerGroup.
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
  bound
      .def(
          "__init__",
          [](PyNicGroup* self, int rank, int world, const std::string& listen, double timeout_s, int core, bool shm,
             int tcp_streams, const std::string& secret, const std::string& faults) {
            netfold::rtl::NicGroupOptions options;
            options.peers = {.rank = rank,
                             .world = world,
                             .listen = listen,
                             .timeout_s = timeout_s,
                             .core = core,
                             .shm = shm,
                             .tcp_streams = tcp_streams,
                             .secret = secret};
            options.faults = faults;
            auto opened = netfold::rtl::NicGroup::open(std::move(options));
            if (!opened) netfold::raise(opened.error());
            new (self) PyNicGroup(std::move(*opened));
          },
          "rank"_a, "world"_a, nb::kw_only(), "listen"_a = "127.0.0.1:0", "timeout_s"_a = 30.0, "core"_a = -1,
          "shm"_a = true, "tcp_streams"_a = 1, "secret"_a = "", "faults"_a = "",
          "Like netfold._core.PeerGroup; the NIC runs FP32 all-reduces by the ring, in fp32 or bfp. faults: of the\n"
          "frames between NICs, \"loss=0.01,seed=7\".")
      .def_prop_ro(
          "address", [](const PyNicGroup& self) { return self.engine().address(); },
          "host:port where this rank listens");
  netfold::bind_rank(bound);
}
