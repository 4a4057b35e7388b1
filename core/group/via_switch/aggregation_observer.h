// The observer of a job: it folds nothing, receives no gradients, and is told by the switch when a tensor of the job's
// workers is folded (dpdk-switch, section 4.2.1, step 6).
#pragma once

#include <memory>

#include "group/driver.h"
#include "group/via_switch/joining.h"

namespace netfold::group {

class AggregationObserver final : public Driver {
 public:
  // Joins the job as its observer: before the last of its workers does. Blocks until all are there, at most timeout_s;
  // rank, udp_port and mtu are found here. Errors as join_switch.
  static Result<std::unique_ptr<AggregationObserver>> join(JoinOptions options);
  ~AggregationObserver() override { close(); }

  // The next tensor, in the order in which the workers submit them. Returns at once. Its ticket is done when the tensor
  // is folded; it fails once the job is over.
  Ticket expect(std::size_t elements, numbers::Format format);

  const wire::Lease& lease() const { return lease_; }

 private:
  explicit AggregationObserver(wire::Lease lease);

  const wire::Lease lease_;
};

}  // namespace netfold::group
