// Which ports fold a job of RoCE workers, and how numbers are added where a message does not say: the switch's settings
// (settings.h), as one job sees them when an epoch begins, with exceptions by job.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/result.h"
#include "link/frame_port.h"
#include "switch/ethernet/settings.h"

namespace netfold::switching {

struct AggregationConfig {
  static constexpr std::uint32_t kPortsMax = 26;  // the register's bits

  std::uint32_t ports = 0;  // bit p: port p folds
  bool is_float = false;    // fp32, else int32; for messages whose header names no format
  // Where the switch above is, which adds the sums of several switches; link::kNoPort: this one has all workers. It
  // does not fold.
  link::PortNumber uplink = link::kNoPort;

  bool operator==(const AggregationConfig&) const = default;
  bool has(link::PortNumber port) const { return port < kPortsMax && (ports >> port & 1) != 0; }
  bool is_leaf() const { return uplink != link::kNoPort; }
  int workers() const { return std::popcount(ports); }
};

// kInvalidArgument where reserved bits are set, no port is enabled, or the number of ports is not that of their bits.
Result<void> set_registers(const Registers& registers, Settings& settings);

// Of all jobs without an exception.
void set_defaults(const AggregationConfig& config, Settings& settings);

// The settings, and exceptions by job. Any thread sets them; the protocol handler reads them when an epoch of a job
// begins, so a change never touches frames on their way.
class AggregationSettings {
 public:
  static constexpr std::size_t kExceptionsMax = 64;
  static constexpr link::PortNumber kUplinkMax = 62;

  // `defaults` must outlive this.
  explicit AggregationSettings(const Settings& defaults) : defaults_(defaults) {}

  // kRefused where kExceptionsMax jobs have one already. An uplink is a port up to kUplinkMax.
  Result<void> set(std::uint16_t job, AggregationConfig config);
  void forget(std::uint16_t job);
  // Of a switch with so many ports.
  AggregationConfig of(std::uint16_t job, std::size_t ports) const;

 private:
  const Settings& defaults_;
  std::array<std::atomic<std::uint64_t>, kExceptionsMax> exceptions_{};  // 0: free
};

}  // namespace netfold::switching
