// The assembly of an Ethernet switch that folds: the state that its threads share, and for each thread a pipeline over
// the ports it is given, with a handler of every protocol wanted. Ports may be of any kind (link/frame_port.h).
//
// No thread and no clock. The owner of the threads pumps the pipelines: frame_plane.h over DPDK, kernel_switch.h over
// packet sockets, memory_switch.h in virtual time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "switch/ethernet/aggregation_config.h"
#include "switch/ethernet/mac_table.h"
#include "switch/ethernet/pipeline.h"
#include "switch/protocols/netfold/netfold_handler.h"
#include "switch/protocols/pcie/pcie_handler.h"
#include "switch/protocols/roce/roce_handler.h"

namespace netfold::switching {

struct NetfoldOptions {
  std::uint32_t ip = 0;          // of the switch: data packets for it are folded
  std::uint16_t first_port = 0;  // UDP port of the first folding thread, the next follow
  std::uint16_t jobs_max = 64;
  DataPlane::OnMismatch on_mismatch = [](auto, auto, auto, const auto&) {};
};

struct EthernetSwitchOptions {
  std::uint16_t threads = 1;  // that fold
  ParseOptions parse = {};
  MacTableOptions addresses = {};
  // The protocols whose frames are folded.
  std::optional<NetfoldOptions> netfold = {};
  std::optional<RoceOptions> roce = {};
  std::optional<PcieOptions> pcie = {};
};

// One thread's part of the switch. Its handlers live as long as its pipeline; null: that protocol is not wanted.
struct SwitchThread {
  std::unique_ptr<Pipeline> pipeline;
  NetfoldHandler* netfold = nullptr;
  RoceHandler *roce = nullptr, *roce_v2 = nullptr;
  PcieHandler* pcie = nullptr;
};

class EthernetSwitch {
 public:
  explicit EthernetSwitch(EthernetSwitchOptions options);
  EthernetSwitch(const EthernetSwitch&) = delete;

  // Threads below options().threads fold, further ones receive for them. The pool, the ports and this outlive the
  // pipeline. Several threads may call it at once.
  SwitchThread make_thread(std::uint16_t thread, link::BufferPool& pool, PipelinePorts ports);

  // Control threads change what follows; the pipelines read it.
  Settings& settings() { return settings_; }
  const Settings& settings() const { return settings_; }
  AggregationSettings& jobs_settings() { return jobs_settings_; }
  MacTable& addresses() { return addresses_; }
  const MacTable& addresses() const { return addresses_; }
  DataAddresses& data_addresses() { return data_addresses_; }
  WayUp& way_up() { return way_up_; }

  const EthernetSwitchOptions& options() const { return options_; }
  const std::vector<std::uint16_t>& udp_ports() const { return udp_ports_; }  // of Netfold's packets, by folding thread

 private:
  EthernetSwitchOptions options_;
  std::vector<std::uint16_t> udp_ports_;
  MacTable addresses_;
  DataAddresses data_addresses_;
  WayUp way_up_;
  Settings settings_;
  AggregationSettings jobs_settings_{settings_};
  RoceOwners roce_owners_, roce_v2_owners_;
};

// The counters of all handlers of a pipeline, as "<handler>_<counter>".
std::vector<std::pair<std::string, std::uint64_t>> handler_counts(const Pipeline& pipeline);

}  // namespace netfold::switching
