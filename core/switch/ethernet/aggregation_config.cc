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

std::uint64_t key_of(std::uint16_t job) {
  return kIsUsed | std::uint64_t{job} << kJobAt;
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

Result<void> AggregationSettings::set(std::uint16_t job, AggregationConfig config) {
  const std::uint64_t packed = key_of(job) | (config.ports & kPortBits) | (config.is_float ? kIsFloat : 0);
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
    return {static_cast<std::uint32_t>(packed) & there, (packed & kIsFloat) != 0};
  }
  return {static_cast<std::uint32_t>(defaults_.folding_ports.load()) & there, defaults_.adds_floats.load()};
}

}  // namespace netfold::switching
