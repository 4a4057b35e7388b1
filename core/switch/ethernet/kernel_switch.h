// An Ethernet switch at interfaces of the kernel: one thread, a packet socket per port, the protocol handlers that
// fold. For emulated clusters and machines without DPDK; frames are copied in and out.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "switch/ethernet/aggregation_config.h"

namespace netfold::switching {

class KernelSwitch {
 public:
  // The port numbers are the places in `interfaces`. kSystem if one cannot be opened.
  static Result<std::unique_ptr<KernelSwitch>> open(const std::vector<std::string>& interfaces,
                                                    AggregationConfig config);
  ~KernelSwitch();  // stops

  void configure(AggregationConfig config);  // of all jobs without an exception
  Result<void> configure(std::uint16_t job, AggregationConfig config);
  // By name: "port<n>_<counter>", "<handler>_<counter>".
  std::vector<std::pair<std::string, std::uint64_t>> counts() const;

 private:
  class Thread;
  explicit KernelSwitch(std::unique_ptr<Thread> thread);

  std::unique_ptr<Thread> thread_;
};

}  // namespace netfold::switching
