#include "switch/ethernet/aggregation_config.h"

#include <fmt/core.h>

#include <algorithm>

namespace netfold::switching {
namespace {

constexpr std::uint32_t kPortBits = (1u << AggregationConfig::kPortsMax) - 1;
constexpr int kNumberAt = 27;  // of the ports, in AGG_PORT_CFG
constexpr int kJobAt = 32;     // in an exception, above its ports and kIsFloat
constexpr std::uint64_t kIsFloat = std::uint64_t{1} << 31, kIsUsed = std::uint64_t{1} << 48;
constexpr std::uint64_t kKeyBits = kIsUsed | std::uint64_t{0xffff} << kJobAt;
constexpr int kUplinkAt = 49;  // 6 bits: 1 more than its number; 0: it is not a leaf
constexpr std::uint64_t kUplinkBits = 0x3f;

std::uint64_t key_of(std::uint16_t job) {
  return kIsUsed | std::uint64_t{job} << kJobAt;
}

// Of a switch whose ports are `there`.
AggregationConfig made(std::uint64_t ports, bool is_float, link::PortNumber uplink, std::uint32_t there) {
  AggregationConfig config{static_cast<std::uint32_t>(ports) & there, is_float, uplink};
  if (config.has(uplink)) config.ports &= ~(1u << uplink);
  return config;
}

}  // namespace

Result<void> set_registers(const Registers& registers, Settings& settings) {
  const std::uint32_t ports = registers.agg_port_cfg & kPortBits;
  const auto number = static_cast<int>(registers.agg_port_cfg >> kNumberAt);
  if (registers.agg_mode > 1 || (registers.agg_port_cfg >> AggregationConfig::kPortsMax & 1) != 0) {
    return fail(ErrorCode::kInvalidArgument, "reserved bits of AGG_MODE and AGG_PORT_CFG must be 0");
  }
  if (ports == 0 || std::popcount(ports) != number) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("AGG_PORT_CFG says {} ports and enables {}: the number must be that of the bits, and not 0",
                            number, std::popcount(ports)));
  }
  settings.folding_ports.store(ports);
  settings.adds_floats.store(registers.agg_mode == 1);
  return {};
}

void set_defaults(const AggregationConfig& config, Settings& settings) {
  settings.folding_ports.store(config.ports);
  settings.adds_floats.store(config.is_float);
  settings.uplink.store(config.uplink);
}

Result<void> AggregationSettings::set(std::uint16_t job, AggregationConfig config) {
  const std::uint64_t uplink = config.is_leaf() ? config.uplink + 1u : 0;
  const std::uint64_t packed =
      key_of(job) | (config.ports & kPortBits) | (config.is_float ? kIsFloat : 0) | uplink << kUplinkAt;
  for (const bool takes_free : {false, true}) {  // the job's own place first
    for (auto& exception : exceptions_) {
      std::uint64_t there = exception.load();
      const bool is_wanted = takes_free ? there == 0 : (there & kKeyBits) == key_of(job);
      if (is_wanted && exception.compare_exchange_strong(there, packed)) return {};
    }
  }
  return fail(ErrorCode::kRefused,
              fmt::format("{} jobs have a configuration of their own already: forget one first", kExceptionsMax));
}

void AggregationSettings::forget(std::uint16_t job) {
  for (auto& exception : exceptions_) {
    if ((exception.load() & kKeyBits) == key_of(job)) exception.store(0);
  }
}

AggregationConfig AggregationSettings::of(std::uint16_t job, std::size_t ports) const {
  const std::uint32_t there = ports >= AggregationConfig::kPortsMax ? kPortBits : (1u << ports) - 1;
  for (const auto& exception : exceptions_) {
    const std::uint64_t packed = exception.load();
    if ((packed & kKeyBits) != key_of(job)) continue;
    const auto uplink = static_cast<link::PortNumber>((packed >> kUplinkAt & kUplinkBits) - 1);
    return made(packed, (packed & kIsFloat) != 0, uplink, there);
  }
  return made(defaults_.folding_ports.load(), defaults_.adds_floats.load(), defaults_.uplink.load(), there);
}

}  // namespace netfold::switching
