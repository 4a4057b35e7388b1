// A switch of frames at interfaces of the kernel: one thread, a packet socket a port, the dialects that fold. For
// emulated clusters and machines without DPDK; frames are copied in and out.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "frames/aggregation_config.h"

namespace netfold::engine {

class KernelSwitch {
 public:
  // The port numbers are the places in `interfaces`. kSystem if one cannot be opened.
  static Result<std::unique_ptr<KernelSwitch>> open(const std::vector<std::string>& interfaces,
                                                    frames::AggregationConfig config);
  ~KernelSwitch();  // stops

  void configure(frames::AggregationConfig config);  // of all jobs without an exception
  Result<void> configure(std::uint16_t job, frames::AggregationConfig config);
  // By name: "port<n>_<counter>", "<dialect>_<counter>".
  std::vector<std::pair<std::string, std::uint64_t>> counts() const;

 private:
  class Thread;
  explicit KernelSwitch(std::unique_ptr<Thread> thread);

  std::unique_ptr<Thread> thread_;
};

}  // namespace netfold::engine
