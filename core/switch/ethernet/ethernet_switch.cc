#include "switch/ethernet/ethernet_switch.h"

#include <fmt/core.h>

namespace netfold::switching {

EthernetSwitch::EthernetSwitch(EthernetSwitchOptions options)
    : options_(std::move(options)),
      addresses_(options_.addresses),
      data_addresses_(options_.netfold ? options_.netfold->ip : 0, options_.netfold ? options_.netfold->jobs_max : 0) {
  for (std::uint16_t thread = 0; options_.netfold && thread < options_.threads; ++thread) {
    udp_ports_.push_back(static_cast<std::uint16_t>(options_.netfold->first_port + thread));
  }
}

SwitchThread EthernetSwitch::make_thread(std::uint16_t thread, link::BufferPool& pool, PipelinePorts ports) {
  const std::uint16_t number = thread < options_.threads ? thread : kNoFolding;
  SwitchThread made;
  std::vector<std::unique_ptr<ProtocolHandler>> handlers;
  if (options_.netfold) {
    auto netfold = std::make_unique<NetfoldHandler>(
        NetfoldHandler::Options{&data_addresses_, udp_ports_, number, options_.netfold->jobs_max, &way_up_},
        options_.netfold->on_mismatch);
    made.netfold = netfold.get();
    handlers.push_back(std::move(netfold));
  }
  if (options_.roce) {
    using wire::roce::Version;
    auto v1 = std::make_unique<RoceHandler>(Version::kV1, jobs_settings_, roce_owners_, *options_.roce);
    auto v2 = std::make_unique<RoceHandler>(Version::kV2, jobs_settings_, roce_v2_owners_, *options_.roce);
    made.roce = v1.get();
    made.roce_v2 = v2.get();
    handlers.push_back(std::move(v1));
    handlers.push_back(std::move(v2));
  }
  if (options_.pcie) {
    auto pcie = std::make_unique<PcieHandler>(*options_.pcie);
    made.pcie = pcie.get();
    handlers.push_back(std::move(pcie));
  }
  made.pipeline = std::make_unique<Pipeline>(pool, std::move(ports), addresses_, std::move(handlers),
                                             PipelineOptions{options_.parse, options_.threads, number});
  made.pipeline->outbox().set_settings(settings_);
  return made;
}

std::vector<std::pair<std::string, std::uint64_t>> handler_counts(const Pipeline& pipeline) {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (const auto& handler : pipeline.handlers()) {
    for (const auto& [name, count] : handler->counts()) {
      all.emplace_back(fmt::format("{}_{}", handler->name(), name), count);
    }
  }
  return all;
}

}  // namespace netfold::switching
