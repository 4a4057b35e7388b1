// Ranks that do collectives among themselves, for Python.
#include "group/via_peers/peer_group.h"

#include "arguments.h"
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
  netfold::bind_open<int, bool>(
      bound,
      [](netfold::group::PeerGroupOptions options, int core, bool inline_progress) {
        options.core = core;
        options.inline_progress = inline_progress;
        return netfold::group::PeerGroup::open(std::move(options));
      },
      "core"_a = -1, "inline_progress"_a = false,
      "Listens at `listen` (port 0: the kernel picks). Make every rank's `address` known to all, then connect.\n"
      "core: where the progress thread runs, -1 for anywhere. shm: shared memory between ranks of one machine.\n"
      "inline_progress: no thread; wait and next_completion drive the all-reduces, for the lowest latency.\n"
      "tcp_streams: connections to each lower rank of another machine, 1 to 16, so that paths share the bytes.\n"
      "secret: what all ranks must prove to know before any of them takes data from another; none if empty.");
  bound.def_prop_ro(
      "address", [](const PyPeerGroup& self) { return self.engine().address(); }, "host:port where this rank listens");
  netfold::bind_rank(bound);
}
