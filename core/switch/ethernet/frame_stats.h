// The counters of an Ethernet switch, and the two forms in which the outside reads them: JSON and Prometheus text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace netfold::switching {

// Each by name, so that a protocol handler may have counters of its own.
struct NamedCounters {
  std::string name;  // of a port, a protocol handler
  std::vector<std::pair<std::string, std::uint64_t>> counters;
};

struct FrameStats {
  std::vector<NamedCounters> ports, protocols;
  NamedCounters addresses;                       // of the MAC table
  std::uint32_t agg_mode = 0, agg_port_cfg = 0;  // switch/ethernet/settings.h
};

nlohmann::ordered_json to_json(const FrameStats& stats);
std::string to_prometheus(const FrameStats& stats);

}  // namespace netfold::switching
