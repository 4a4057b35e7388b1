// The switch of frames for Python: one at interfaces of the kernel, one that is fed raw frames by hand, RoCE workers.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collectives.h"
#include "group/via_roce/roce_group.h"
#include "group/via_roce/roce_place.h"
#include "group_calls.h"
#include "module.h"
#include "switch/ethernet/kernel_switch.h"
#include "switch/ethernet/memory_switch.h"

namespace nb = nanobind;
using namespace nb::literals;
namespace netfold {
namespace {

constexpr const char* kConfigure =
    "Which ports fold, from the next epoch of `job` (-1: of all jobs without an exception) on. uplink: the port that "
    "leads to the switch above, of a leaf of a tree; -1: it is not a leaf.";

using Counts = std::vector<std::pair<std::string, std::uint64_t>>;

Record to_dict(const Counts& counts) {
  nb::dict result;
  for (const auto& [name, count] : counts) result[name.c_str()] = count;
  return result;
}

switching::AggregationConfig config_of_ports(const std::vector<int>& ports, bool is_float, int uplink = -1) {
  switching::AggregationConfig config{0, is_float};
  if (uplink > int{switching::AggregationSettings::kUplinkMax}) throw nb::value_error("an uplink is a port up to 62");
  if (uplink >= 0) config.uplink = static_cast<link::PortNumber>(uplink);
  for (const int port : ports) {
    if (port < 0 || port >= static_cast<int>(switching::AggregationConfig::kPortsMax)) {
      throw nb::value_error("ports that fold are numbered 0 to 25");
    }
    config.ports |= 1u << port;
  }
  if (config.ports == 0) throw nb::value_error("at least one port must fold");
  return config;
}

// MemorySwitch for the protocols of raw frames. Tests compare the hardware with it.
class FramePipeline {
 public:
  FramePipeline(int ports, double age_s)
      : switch_(checked(ports),
                {.roce = switching::RoceOptions{.age_max = from_seconds(age_s)}, .pcie = switching::PcieOptions{}}) {
    switch_.settings().adds_floats = true;
  }

  std::vector<std::tuple<int, nb::bytes>> offer(int port, const nb::bytes& frame, double time_s) {
    if (port < 0 || port >= static_cast<int>(switch_.ports())) throw nb::index_error("no such port");
    const auto* const bytes = reinterpret_cast<const std::byte*>(frame.c_str());
    return to_python(switch_.offer(static_cast<link::PortNumber>(port), {bytes, frame.size()}, from_seconds(time_s)));
  }
  std::vector<std::tuple<int, nb::bytes>> pump(double time_s) { return to_python(switch_.pump(from_seconds(time_s))); }
  void configure(const std::vector<int>& ports, bool is_float, int job, int uplink) {
    const switching::AggregationConfig config = config_of_ports(ports, is_float, uplink);
    if (job < 0) {
      switching::set_defaults(config, switch_.settings());
    } else if (const auto set = switch_.jobs_settings().set(static_cast<std::uint16_t>(job), config); !set) {
      raise(set.error());
    }
  }
  std::tuple<std::uint32_t, std::uint32_t> registers() {
    const auto registers = switching::registers_of(switch_.settings(), switch_.ports());
    return {registers.agg_mode, registers.agg_port_cfg};
  }
  void set_registers(std::uint32_t mode, std::uint32_t port_cfg) {
    if (const auto set = switching::set_registers({mode, port_cfg}, switch_.settings()); !set) raise(set.error());
  }
  Record counts() const {
    Counts all = switching::handler_counts(switch_.pipeline());
    all.emplace_back("buffers_in_use", switch_.buffers_in_use());
    return to_dict(all);
  }

 private:
  static link::PortNumber checked(int ports) {
    if (ports < 1 || ports > static_cast<int>(switching::AggregationConfig::kPortsMax)) {
      throw nb::value_error("1 to 26 ports");
    }
    return static_cast<link::PortNumber>(ports);
  }
  static std::vector<std::tuple<int, nb::bytes>> to_python(const switching::MemorySwitch::Sent& sent) {
    std::vector<std::tuple<int, nb::bytes>> out;
    for (const auto& [port, frame] : sent) out.emplace_back(port, nb::bytes(frame.data(), frame.size()));
    return out;
  }

  switching::MemorySwitch switch_;
};

class PyFrameSwitch {
 public:
  PyFrameSwitch(const std::vector<std::string>& interfaces, const std::vector<int>& ports, bool is_float) {
    std::vector<int> all = ports;
    if (all.empty()) {
      for (std::size_t port = 0; port < interfaces.size(); ++port) all.push_back(static_cast<int>(port));
    }
    auto opened = switching::KernelSwitch::open(interfaces, config_of_ports(all, is_float));
    if (!opened) raise(opened.error());
    switch_ = std::move(*opened);
  }
  void configure(const std::vector<int>& ports, bool is_float, int job, int uplink) {
    const switching::AggregationConfig config = config_of_ports(ports, is_float, uplink);
    if (job < 0) return running().configure(config);
    if (const auto set = running().configure(static_cast<std::uint16_t>(job), config); !set) raise(set.error());
  }
  Record counts() { return to_dict(running().counts()); }
  void close() {
    const nb::gil_scoped_release release;
    switch_.reset();
  }

 private:
  switching::KernelSwitch& running() {
    if (!switch_) throw nb::value_error("the switch is closed");
    return *switch_;
  }

  std::unique_ptr<switching::KernelSwitch> switch_;
};

class PyRoceGroup : public GroupCalls<group::RoceGroup> {
 public:
  using GroupCalls::GroupCalls;
};

void bind_pipeline(nb::module_& module) {
  nb::class_<FramePipeline>(
      module, "FramePipeline",
      "A switch that folds frames, over ports in memory: raw Ethernet frames in and out, and time "
      "as it is told. Deterministic: the same frames at the same times give the same frames.")
      .def(nb::init<int, double>(), "ports"_a, nb::kw_only(), "age_s"_a = 10.0,
           "All ports fold, in fp32 where a message does not say. age_s: how long a contribution waits for the others.")
      .def("offer", &FramePipeline::offer, "port"_a, "frame"_a, "time_s"_a = 0.0,
           "A frame (without FCS) comes in at a port; returns what goes out: (port, frame), by port.")
      .def("pump", &FramePipeline::pump, "time_s"_a, "Time goes on though nothing comes.")
      .def("configure", &FramePipeline::configure, "ports"_a, nb::kw_only(), "is_float"_a = true, "job"_a = -1,
           "uplink"_a = -1, kConfigure)
      .def_prop_ro("registers", &FramePipeline::registers, "(AGG_MODE, AGG_PORT_CFG).")
      .def("set_registers", &FramePipeline::set_registers, "agg_mode"_a, "agg_port_cfg"_a,
           "The same, written; NetfoldError if they contradict themselves.")
      .def("counts", &FramePipeline::counts, "Counters by name; drops as drop_<reason>.");
}

void bind_frame_switch(nb::module_& module) {
  nb::class_<PyFrameSwitch>(module, "FrameSwitch",
                            "A switch that folds frames between interfaces of this machine (RoCE v1 and v2, PCIe over "
                            "Ethernet), on a thread of its own; needs CAP_NET_RAW.")
      .def(nb::init<const std::vector<std::string>&, const std::vector<int>&, bool>(), "interfaces"_a, nb::kw_only(),
           "ports"_a = std::vector<int>{}, "is_float"_a = true,
           "Port numbers are places in `interfaces`; those in `ports` fold (empty: all).")
      .def("configure", &PyFrameSwitch::configure, "ports"_a, nb::kw_only(), "is_float"_a = true, "job"_a = -1,
           "uplink"_a = -1, kConfigure)
      .def("counts", &PyFrameSwitch::counts, "Counters by name.")
      .def("close", &PyFrameSwitch::close, "Stops; idempotent.");
}

void bind_roce_group(nb::module_& module) {
  nb::class_<PyRoceGroup> bound(module, "RoceGroup", "A worker that folds over RoCE through a switch.");
  bound
      .def(
          "__init__",
          [](PyRoceGroup* self, const std::string& device, std::uint16_t rank, std::uint16_t world, std::uint16_t job,
             std::uint16_t epoch, bool verbs, double timeout_s, std::uint32_t window,
             std::optional<std::uint32_t> first_psn, int block, int mantissa, const std::string& faults,
             const std::string& pcap, int core, int version, std::uint32_t message_packets, bool one_way) {
            group::RoceGroupOptions options;
            if (version != 1 && version != 2) throw nb::value_error("RoCE has version 1 and version 2");
            options.version = static_cast<wire::roce::Version>(version);
            if (!group::is_message_length(message_packets)) throw nb::value_error("a message has 2 to 128 packets");
            options.job = {job, epoch, rank, world, bfp_shape_of(block, mantissa), message_packets, one_way};
            options.device = device;
            options.uses_verbs = verbs;
            options.first_psn = first_psn;
            options.timeout_s = timeout_s;
            options.window_packets = window;
            options.faults = faults;
            options.pcap_path = pcap;
            options.core = core;
            auto opened = group::RoceGroup::open(std::move(options));
            if (!opened) raise(opened.error());
            new (self) PyRoceGroup(std::move(*opened));
          },
          "device"_a, "rank"_a, "world"_a, nb::kw_only(), "job"_a = 1, "epoch"_a = 1, "verbs"_a = false,
          "timeout_s"_a = 30.0, "window"_a = 128, "first_psn"_a = nb::none(), "block"_a = 16, "mantissa"_a = 7,
          "faults"_a = "", "pcap"_a = "", "core"_a = -1, "version"_a = 1,
          "message_packets"_a = wire::roce::kMessagePackets, "one_way"_a = false,
          "device: a network interface, or with verbs=True an RDMA device ('': the first). window: packets in flight, "
          "at most 512. version: of RoCE, 1 or 2 (which routers forward, and needs an IPv4 address). message_packets: "
          "of the longest message, 2 to 128, the same at all ranks; a small switch needs short ones. one_way: the "
          "switch has one-way messages, and so reduce-scatters, all-gathers, broadcasts and barriers, if all ranks say "
          "so.\n"
          "epoch 0: rank 0's clock gives the next one. first_psn None: drawn. Raises NetfoldError.")
      .def_prop_ro(
          "address", [](const PyRoceGroup& self) { return self.engine().address(); },
          "What the others must know of this worker, as text.")
      .def(
          "connect",
          [](PyRoceGroup& self, const std::vector<std::string>& addresses) {
            without_lock([&] { return self.engine().connect(addresses); });
          },
          "addresses"_a, "The endpoint texts of all ranks, in rank order; called once, before the first all_reduce.")
      .def_prop_ro(
          "is_one_way", [](const PyRoceGroup& self) { return self.engine().is_one_way(); },
          "After connect: whether reduce_scatter, collect and barrier are served. It is alike on all ranks.");
  bind_all_reduce(bound);
  bind_through_switch(bound);
  bind_waiting(bound, "Packets, retransmissions and reasons, of this worker.");
  module.def(
      "parse_roce_place",
      [](const std::string& text, int rank) {
        const auto place = group::parse_roce_place(text, rank);
        if (!place) raise(place.error());
        return std::tuple(place->device, place->uses_verbs, static_cast<int>(place->version), place->job,
                          place->message_packets, place->one_way);
      },
      "text"_a, "rank"_a = 0,
      "(device, verbs, version, job, packets of a message, one-way) of text such as eth1,version=1,job=9.\n"
      "Raises NetfoldError.");
}

}  // namespace
}  // namespace netfold

void bind_frames(nb::module_& module) {
  netfold::bind_pipeline(module);
  netfold::bind_frame_switch(module);
  netfold::bind_roce_group(module);
}
