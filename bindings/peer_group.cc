// Ranks that do collectives among themselves, for Python.
#include "group/via_peers/peer_group.h"

#include "collectives.h"
#include "module.h"

using namespace nb::literals;
namespace netfold {
namespace {

using group::PeerGroup;

class PyPeerGroup : public GroupCalls<PeerGroup> {
 public:
  using GroupCalls::GroupCalls;
};

}  // namespace
}  // namespace netfold

void bind_peer_group(nb::module_& module) {
  using netfold::PyPeerGroup;
  auto bound = nb::class_<PyPeerGroup>(module, "PeerGroup", "A rank among others that fold without a switch.");
  bound
      .def(
          "__init__",
          [](PyPeerGroup* self, int rank, int world, const std::string& listen, double timeout_s, int core, bool shm,
             bool inline_progress, int tcp_streams, const std::string& secret) {
            auto opened = netfold::group::PeerGroup::open({.rank = rank,
                                                           .world = world,
                                                           .listen = listen,
                                                           .timeout_s = timeout_s,
                                                           .core = core,
                                                           .shm = shm,
                                                           .tcp_streams = tcp_streams,
                                                           .inline_progress = inline_progress,
                                                           .secret = secret});
            if (!opened) netfold::raise(opened.error());
            new (self) PyPeerGroup(std::move(*opened));
          },
          "rank"_a, "world"_a, nb::kw_only(), "listen"_a = "127.0.0.1:0", "timeout_s"_a = 30.0, "core"_a = -1,
          "shm"_a = true, "inline_progress"_a = false, "tcp_streams"_a = 1, "secret"_a = "",
          "Listens at `listen` (port 0: the kernel picks). Make every rank's `address` known to all, then connect.\n"
          "core: where the progress thread runs, -1 for anywhere. shm: shared memory between ranks of one machine.\n"
          "inline_progress: no thread; wait and next_completion drive the all-reduces, for the lowest latency.\n"
          "tcp_streams: connections to each lower rank of another machine, 1 to 16, so that paths share the bytes.\n"
          "secret: what all ranks must prove to know before any of them takes data from another; none if empty.")
      .def_prop_ro(
          "address", [](const PyPeerGroup& self) { return self.engine().address(); },
          "host:port where this rank listens");
  netfold::bind_rank(bound);
}
