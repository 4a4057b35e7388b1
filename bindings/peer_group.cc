// Ranks that do collectives among themselves, some of them through a switch or through smart NICs at the same time, for
// Python.
#include "group/via_peers/peer_group.h"

#include <nanobind/stl/pair.h>

#include "arguments.h"
#include "collectives.h"
#include "group/via_both/split_group.h"
#include "group/via_nic/nic_group.h"
#include "module.h"

using namespace nb::literals;
namespace netfold {
namespace {

using group::PeerGroup;

class PyPeerGroup : public GroupCalls<PeerGroup> {
 public:
  using GroupCalls::GroupCalls;
};

class PySplitGroup : public GroupCalls<group::SplitGroup> {
 public:
  using GroupCalls::GroupCalls;
};

class PyNicGroup : public GroupCalls<group::NicGroup> {
 public:
  using GroupCalls::GroupCalls;
};

template <class Bound>
void bind_listener(nb::class_<Bound>& bound) {
  bound.def_prop_ro(
      "address", [](const Bound& self) { return self.engine().address(); }, "host:port where this rank listens");
  bind_rank(bound);
}

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
      "tcp_streams: connections to each lower rank of another machine, so that paths share the bytes; 1 to 16, all\n"
      "interfaces together. interfaces: of this machine, that share the bytes to ranks of other machines by their\n"
      "rates; the routing table's if none. All ranks name as many, and the first reaches the others' first, and so "
      "on.\n"
      "secret: what all ranks must prove to know before any of them takes data from another; none if empty.\n"
      "require_auth: data and messages to ranks of other machines carry tags under keys that follow from the secret;\n"
      "alike on all ranks. Shared memory carries none.\n"
      "dscp: of this rank's packets, 0 to 63. elastic: the caller goes on without a rank that fails, so a machine "
      "that\n"
      "confirms nothing for much longer than is usual is given up before the timeout.");
  netfold::bind_listener(bound);
  netfold::bind_all_types(bound);
  bound
      .def(
          "keep", [](PyPeerGroup& self, std::vector<int> ranks) { self.engine().keep(std::move(ranks)); }, "ranks"_a,
          "Before close: the connections to these ranks outlive this group, for another's adopt.")
      .def_prop_ro(
          "kept", [](const PyPeerGroup& self) { return self.engine().kept(); },
          "After keep and close: the ranks whose connections have not ended; none once another group has them.")
      .def(
          "drop_kept", [](PyPeerGroup& self) { self.engine().drop_kept(); }, "Closes the connections that it keeps.")
      .def(
          "adopt",
          [](PyPeerGroup& self, PyPeerGroup& old, const std::vector<int>& old_ranks, const std::string& group) {
            netfold::without_lock([&] { return self.engine().adopt(old.engine(), old_ranks, group); });
          },
          "old"_a, "old_ranks"_a, "group"_a,
          "Before connect: goes on over connections that `old` keeps, and closes its others. old_ranks: for each rank\n"
          "of this group its rank in `old`, -1 where the two connect anew; both ranks of a pair must mean the same.\n"
          "group: a name of this group, alike on all ranks, that no earlier group of these ranks had.");
  bound.def_prop_ro(
      "failure",
      [](const PyPeerGroup& self) -> nb::object {
        const auto error = self.engine().error();
        return error ? netfold::to_python(*error) : nb::none();
      },
      nb::sig("def failure(self) -> NetfoldError | None"),
      "Why the group has failed, also while nothing is submitted.");
}

void bind_split_group(nb::module_& module) {
  using netfold::PySplitGroup;
  auto bound = nb::class_<PySplitGroup>(
      module, "SplitGroup", "A rank that sums through switches and among the ranks at once (algorithm \"split\").");
  netfold::bind_open<const std::vector<std::string>&, const std::string&, int, double, std::uint32_t, int, int,
                     const std::string&, const std::string&, const std::string&>(
      bound,
      [](netfold::group::PeerGroupOptions options, const std::vector<std::string>& switches, const std::string& job,
         int core, double connect_timeout_s, std::uint32_t window, int block, int mantissa, const std::string& faults,
         const std::string& pcap, const std::string& place) {
        options.core = core;
        const std::vector<std::string>& interfaces = options.interfaces;
        std::vector<netfold::group::SwitchGroupOptions> at_switches;
        const std::size_t roads = std::max<std::size_t>(interfaces.size(), 1);
        for (std::size_t way = 0; way < switches.size() * roads; ++way) {
          const std::string& address = switches[way / roads];
          auto& at_switch = at_switches.emplace_back();
          static_cast<netfold::group::JoinOptions&>(at_switch) =
              netfold::join_options(address, job, static_cast<std::uint16_t>(options.world), options.secret,
                                    options.require_auth, options.timeout_s, connect_timeout_s, block, mantissa);
          if (!interfaces.empty()) at_switch.road.interface = interfaces[way % roads];
          at_switch.switch_place = place;
          at_switch.window = window;
          at_switch.faults = faults;
          at_switch.pcap_path = pcap;
        }
        return netfold::group::SplitGroup::open(std::move(options), std::move(at_switches));
      },
      "switches"_a, "job"_a, "core"_a = -1, "connect_timeout_s"_a = 30.0, "window"_a = 0, "block"_a = 16,
      "mantissa"_a = 7, "faults"_a = "", "pcap"_a = "", "place"_a = "",
      "Listens at `listen`, as PeerGroup; connect() then joins `job` at each switch `host:port` too, as SwitchGroup. "
      "All\n"
      "ranks name the switches in the same order.\n"
      "Besides \"split\", all_reduce takes \"in-network\" and every algorithm of a PeerGroup. By \"split\" large\n"
      "reduce-scatters and all-gathers go through the switches where both are on their way. The other collectives "
      "run\n"
      "among the ranks. secret: of the ranks and of the job. require_auth: packets, and data between ranks, carry "
      "tags.\n"
      "interfaces: of this machine; each switch is joined once "
      "by\n"
      "each of them, and the rates that are measured decide about the shares. Ranks reach each other as with "
      "PeerGroup.");
  bound.def_prop_ro(
      "switches", [](const netfold::PySplitGroup& self) { return self.engine().switches(); }, "How many.");
  bound.def(
      "take_switch_news",
      [](netfold::PySplitGroup& self) {
        std::vector<std::pair<std::string, std::string>> news;
        for (auto& each : self.engine().take_news()) news.emplace_back(each.switch_name, each.why);
        return news;
      },
      "What has happened to switches since the last call: a name, and why that switch was lost, or '' if it is back.");
  bound.def_prop_ro(
      "share",
      [](const netfold::PySplitGroup& self) {
        const auto& share = self.engine().share();
        return std::tuple(share.of_switch.load(), share.switch_bytes_s.load(), share.link_bytes_s.load());
      },
      "The switches' share of the last large tensor that did not measure, and on rank 0 how fast they take data "
      "together\n"
      "from a worker, and how fast a worker's link is, in bytes/s. 0: not known yet.");
  netfold::bind_listener(bound);
}

void bind_nic_group(nb::module_& module) {
  using netfold::PyNicGroup;
  auto bound =
      nb::class_<PyNicGroup>(module, "NicGroup", "A rank whose FP32 all-reduces by the ring go through a smart NIC.");
  netfold::bind_open<const std::string&, int>(
      bound,
      [](netfold::group::PeerGroupOptions peers, const std::string& nic, int core) {
        peers.core = core;
        return netfold::group::NicGroup::open({.peers = std::move(peers), .nic = nic});
      },
      "nic"_a, "core"_a = -1,
      "Listens at `listen`, as PeerGroup, and takes the NIC: a PCI address that vfio-pci drives, or the "
      "path\n"
      "of a socket where another program is the NIC (vfio-user); after it perhaps ,bar=NUMBER and ,offset=NUMBER.\n"
      "{rank} stands for the rank. Other collectives, types and formats run among the ranks. Raises NetfoldError.");
  netfold::bind_listener(bound);
  module.def(
      "describe_nic",
      [](const std::string& nic) {
        const auto taken = netfold::group::take_nic(nic, 0);
        if (!taken) netfold::raise(taken.error());
        return std::tuple(taken->shape.lanes, taken->shape.block, taken->shape.mantissa, taken->shape.has_bfp,
                          taken->own_address, taken->device->interrupt() >= 0);
      },
      "nic"_a,
      "Takes the NIC for a moment, resets it, and returns what it says of itself: lanes, block and mantissa of bfp,\n"
      "whether it has bfp, its Ethernet address (the first byte in the lowest bits; 0: none), and whether it has an\n"
      "interrupt. Raises NetfoldError.");
  module.def(
      "check_nic_place",
      [](const std::string& text) {
        if (const auto place = netfold::link::parse_pci_place(text, 0); !place) netfold::raise(place.error());
      },
      "text"_a, "Raises NetfoldError, with what to write, if the text does not name a NIC as NicGroup's `nic`.");
}
