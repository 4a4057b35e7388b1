// A worker of a job whose all-reduces go through a switch.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "group/driver.h"
#include "group/via_switch/joining.h"
#include "group/via_switch/switch_session.h"

namespace netfold::group {

// How to join, and what is the worker's own; udp_port and mtu are found by join().
struct SwitchGroupOptions : JoinOptions {
  Nanoseconds silence_max = kNever;          // after so long without an answer the switch is lost; never: timeout_s
  int core = kAnyCore;                       // of the progress thread
  std::string faults;                        // link::parse_faults; "": none
  std::string pcap_path;                     // "": no capture
  std::function<void()> on_completion = {};  // called each time there is a completion to take
};

class SwitchGroup final : public Driver {
 public:
  // Joins the job; blocks until all workers are there, at most timeout_s. Errors as join_switch.
  static Result<std::unique_ptr<SwitchGroup>> join(const SwitchGroupOptions& options);
  ~SwitchGroup() override { close(); }

  const wire::Lease& lease() const { return lease_; }

 private:
  SwitchGroup(const SwitchGroupOptions& options, wire::Lease lease);

  const wire::Lease lease_;
};

// A worker's session in the job, over sockets; blocks and fails as SwitchGroup::join.
Result<std::unique_ptr<SwitchSession>> join_session(SwitchGroupOptions options);

nlohmann::json to_json(const wire::Lease& lease);  // for people

}  // namespace netfold::group
