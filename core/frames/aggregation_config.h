// Which ports fold, and how numbers are added where a message does not say: the switch's online configuration for RoCE,
// and the two registers of allreduce-switch (Table VII) as a view of it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "link/frame_port.h"

namespace netfold::frames {

struct AggregationConfig {
  static constexpr std::uint32_t kPortsMax = 26;  // the register's bits

  std::uint32_t ports = 0xff;  // bit p: port p folds
  bool is_float = false;       // fp32, else int32; for messages whose header names no format

  bool operator==(const AggregationConfig&) const = default;
  bool has(link::PortNumber port) const { return port < kPortsMax && (ports >> port & 1) != 0; }
  int workers() const { return std::popcount(ports); }
};

// AGG_MODE {31'h0, agg_mode} and AGG_PORT_CFG {agg_port_num 5, 1'b0, agg_port_en 26}.
struct AggregationRegisters {
  std::uint32_t mode = 0;
  std::uint32_t port_cfg = 0;

  bool operator==(const AggregationRegisters&) const = default;
};
AggregationRegisters registers_of(const AggregationConfig& config);
// kInvalidArgument where reserved bits are set, no port is enabled, or the number of ports is not that of their bits.
Result<AggregationConfig> config_of(const AggregationRegisters& registers);

// What is in force: a default, and exceptions by job. Any thread sets it; the dialect reads it when an epoch of a job
// begins, so a change never touches frames on their way.
class AggregationSettings {
 public:
  static constexpr std::size_t kExceptionsMax = 64;

  explicit AggregationSettings(AggregationConfig config = {});

  void set(AggregationConfig config) { default_.store(pack(config)); }
  // kRefused where kExceptionsMax jobs have one already.
  Result<void> set(std::uint16_t job, AggregationConfig config);
  void forget(std::uint16_t job);
  AggregationConfig of(std::uint16_t job) const;
  AggregationConfig defaults() const { return unpack(default_.load()); }

 private:
  static std::uint64_t pack(AggregationConfig config);
  static AggregationConfig unpack(std::uint64_t packed);

  std::atomic<std::uint64_t> default_;
  std::array<std::atomic<std::uint64_t>, kExceptionsMax> exceptions_{};  // 0: free
};

}  // namespace netfold::frames
