#include "switch/ethernet/frame_stats.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "switch/prometheus_text.h"

namespace netfold::switching {
namespace {

nlohmann::ordered_json to_json(const NamedCounters& counted) {
  nlohmann::ordered_json json;
  json["name"] = counted.name;
  for (const auto& [name, value] : counted.counters) json[name] = value;
  return json;
}

// Device strings may hold anything.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c == '\n' ? ' ' : c;
  }
  return safe;
}

// One family, a sample for each counter of each port (or protocol handler, ...).
void add(PrometheusText& text, const char* family, const char* type, const char* label, const char* help,
         const std::vector<NamedCounters>& all) {
  text.family(family, type, help);
  for (std::size_t number = 0; number < all.size(); ++number) {
    for (const auto& [name, value] : all[number].counters) {
      text.sample(
          fmt::format("{{number=\"{}\",{}=\"{}\",what=\"{}\"}}", number, label, escaped(all[number].name), name),
          value);
    }
  }
}

}  // namespace

nlohmann::ordered_json to_json(const FrameStats& stats) {
  nlohmann::ordered_json json;
  json["AGG_MODE"] = stats.agg_mode;
  json["AGG_PORT_CFG"] = fmt::format("0x{:08x}", stats.agg_port_cfg);
  json["ports"] = json["protocols"] = nlohmann::ordered_json::array();
  for (const auto& port : stats.ports) json["ports"].push_back(to_json(port));
  for (const auto& protocol : stats.protocols) json["protocols"].push_back(to_json(protocol));
  json["addresses"] = to_json(stats.addresses);
  return json;
}

std::string to_prometheus(const FrameStats& stats) {
  PrometheusText text;
  add(text, "netfold_switch_port", "untyped", "port", "Counters of a port of the Ethernet switch", stats.ports);
  add(text, "netfold_switch_protocol", "untyped", "protocol", "Counters of a protocol handler", stats.protocols);
  add(text, "netfold_switch_addresses", "gauge", "table", "The table of MAC addresses", {stats.addresses});
  return text.take();
}

}  // namespace netfold::switching
