// A rank with a Verilated NIC, for Python: called like netfold._core.HostGroup.
#include "bindings/collectives.h"
#include "group.h"

using namespace nb::literals;

namespace netfold {
namespace {

class PyGroup : public EngineCalls<rtl::Group> {
 public:
  using EngineCalls::EngineCalls;
};

}  // namespace
}  // namespace netfold

NB_MODULE(_rtl, module) {
  using netfold::PyGroup;
  module.attr("lanes") = NETFOLD_RTL_LANES;
  auto bound = nb::class_<PyGroup>(module, "NicGroup", "A rank whose all-reduces go through a Verilated smart NIC.");
  bound
      .def(
          "__init__",
          [](PyGroup* self, int rank, int world, const std::string& listen, double timeout_s, int core, bool shm,
             int tcp_streams, const std::string& secret, const std::string& faults) {
            netfold::rtl::GroupOptions options;
            options.host = {.rank = rank,
                            .world = world,
                            .listen = listen,
                            .timeout_s = timeout_s,
                            .core = core,
                            .shm = shm,
                            .tcp_streams = tcp_streams,
                            .secret = secret};
            options.faults = faults;
            auto opened = netfold::rtl::Group::open(std::move(options));
            if (!opened) netfold::raise(opened.error());
            new (self) PyGroup(std::move(*opened));
          },
          "rank"_a, "world"_a, nb::kw_only(), "listen"_a = "127.0.0.1:0", "timeout_s"_a = 30.0, "core"_a = -1,
          "shm"_a = true, "tcp_streams"_a = 1, "secret"_a = "", "faults"_a = "",
          "As netfold._core.HostGroup; FP32 all-reduces by the ring, in fp32 or bfp, run in the NIC. faults: of the\n"
          "frames between NICs, \"loss=0.01,seed=7\".")
      .def_prop_ro(
          "address", [](const PyGroup& self) { return self.engine().address(); }, "host:port where this rank listens");
  netfold::bind_rank(bound);
}
