#include "frames/aggregation_config.h"

#include <fmt/format.h>

namespace netfold::frames {
namespace {

constexpr std::uint32_t kPortBits = (1u << AggregationConfig::kPortsMax) - 1;
constexpr int kNumberAt = 27;
constexpr std::uint64_t kIsFloat = std::uint64_t{1} << 31, kIsUsed = std::uint64_t{1} << 48;
constexpr int kJobAt = 32;

std::uint64_t key_of(std::uint16_t job) {
  return kIsUsed | std::uint64_t{job} << kJobAt;
}
constexpr std::uint64_t kKeyBits = kIsUsed | std::uint64_t{0xffff} << kJobAt;

}  // namespace

AggregationRegisters registers_of(const AggregationConfig& config) {
  return {config.is_float ? 1u : 0u, static_cast<std::uint32_t>(config.workers()) << kNumberAt | config.ports};
}

Result<AggregationConfig> config_of(const AggregationRegisters& registers) {
  const std::uint32_t ports = registers.port_cfg & kPortBits;
  const auto number = static_cast<int>(registers.port_cfg >> kNumberAt);
  if (registers.mode > 1 || (registers.port_cfg >> AggregationConfig::kPortsMax & 1) != 0) {
    return fail(ErrorCode::kInvalidArgument, "reserved bits of AGG_MODE and AGG_PORT_CFG must be 0");
  }
  if (ports == 0 || std::popcount(ports) != number) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("AGG_PORT_CFG says {} ports and enables {}: the number must be that of the bits, and not 0",
                            number, std::popcount(ports)));
  }
  return AggregationConfig{ports, registers.mode == 1};
}

AggregationSettings::AggregationSettings(AggregationConfig config) : default_(pack(config)) {}

std::uint64_t AggregationSettings::pack(AggregationConfig config) {
  return (config.ports & kPortBits) | (config.is_float ? kIsFloat : 0);
}

AggregationConfig AggregationSettings::unpack(std::uint64_t packed) {
  return {static_cast<std::uint32_t>(packed & kPortBits), (packed & kIsFloat) != 0};
}

Result<void> AggregationSettings::set(std::uint16_t job, AggregationConfig config) {
  for (const bool is_to_be_free : {false, true}) {  // the job's own place first
    for (auto& exception : exceptions_) {
      std::uint64_t there = exception.load();
      const bool is_wanted = is_to_be_free ? there == 0 : (there & kKeyBits) == key_of(job);
      if (is_wanted && exception.compare_exchange_strong(there, key_of(job) | pack(config))) return {};
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

AggregationConfig AggregationSettings::of(std::uint16_t job) const {
  for (const auto& exception : exceptions_) {
    const std::uint64_t there = exception.load();
    if ((there & kKeyBits) == key_of(job)) return unpack(there);
  }
  return defaults();
}

}  // namespace netfold::frames
