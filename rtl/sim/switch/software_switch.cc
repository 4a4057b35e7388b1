#include "switch/software_switch.h"

#include <stdexcept>

namespace netfold::rtl {

SoftwareSwitch::SoftwareSwitch(unsigned ports, frames::RoceOptions options) {
  frames::PipelinePorts all;
  for (unsigned number = 0; number < ports; ++number) {
    ports_.push_back(std::make_unique<link::MemoryPort>(pool_, static_cast<link::PortNumber>(number)));
    all.all.push_back(ports_.back().get());
    all.receiving.push_back(static_cast<link::PortNumber>(number));
  }
  auto dialect = std::make_unique<frames::RoceDialect>(by_job_, options);
  dialect_ = dialect.get();
  std::vector<std::unique_ptr<frames::Dialect>> dialects;
  dialects.push_back(std::move(dialect));
  pipeline_ = std::make_unique<frames::Pipeline>(pool_, std::move(all), addresses_, std::move(dialects));
}

std::vector<std::pair<unsigned, Bytes>> SoftwareSwitch::offer(unsigned port, const Bytes& frame, Ticks now) {
  ports_[port]->arrive(frame);
  while (pipeline_->pump(kSecond + static_cast<Nanoseconds>(now / kTicksPerNs)) > 0) {
  }
  std::vector<std::pair<unsigned, Bytes>> out;
  for (unsigned to = 0; to < ports_.size(); ++to) {
    for (auto& left : ports_[to]->fetch()) out.emplace_back(to, std::move(left));
  }
  return out;
}

void SoftwareSwitch::set_registers(std::uint32_t mode, std::uint32_t port_config) {
  const auto set = frames::set_registers({mode, port_config}, settings_);
  if (!set) throw std::invalid_argument(set.error().message);
}

std::uint64_t SoftwareSwitch::flawed(frames::Flaw flaw) const {
  std::uint64_t frames = 0;
  for (link::PortNumber port = 0; port < ports_.size(); ++port) {
    frames += pipeline_->counters(port).flaws[static_cast<std::size_t>(flaw)].get();
  }
  return frames;
}

}  // namespace netfold::rtl
