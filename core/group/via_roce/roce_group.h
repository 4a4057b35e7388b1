// A worker among others that fold over RoCE through a folding switch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/driver.h"
#include "group/via_roce/roce_session.h"
#include "link/packet/ipv4_path.h"

namespace netfold::group {

struct RoceGroupOptions {
  // epoch 0: rank 0 takes one that is later than all before, by its clock, and tells it. one_way: the user says that
  // the switch has one-way messages; they are used if all ranks say it, and none has an RDMA NIC.
  RoceJobOptions job;
  std::string device;  // an interface, for frames through the kernel; or an RDMA device with `verbs`
  bool uses_verbs = false;
  wire::roce::Version version = wire::roce::Version::kV1;  // of all ranks
  std::optional<std::uint32_t> first_psn = {};  // empty: drawn, so that packets of a former connection miss this one
  double timeout_s = 30;
  std::uint32_t window_packets = 128;
  std::string faults;     // link::parse_faults; "": none. Frames of this process only, not a NIC's
  std::string pcap_path;  // "": no capture
  int core = kAnyCore;
  std::function<void()> on_completion = {};
};

class RoceGroup final : public Driver {
 public:
  static Result<std::unique_ptr<RoceGroup>> open(RoceGroupOptions options);
  ~RoceGroup() override { close(); }

  // This worker's queue pairs as text; and those of all, by rank. connect() comes once, before the first submit. It
  // takes two seconds at most, and blames the rank whose text does not match.
  std::string address() const;
  Result<void> connect(const std::vector<std::string>& addresses);
  // From connect() on: whether it serves reduce-scatters, all-gathers, broadcasts and barriers too. Alike on all ranks.
  bool is_one_way() const { return options_.job.one_way; }

 private:
  RoceGroup(RoceGroupOptions options, std::unique_ptr<MessageChannel> channel);

  RoceGroupOptions options_;
  std::unique_ptr<MessageChannel> channel_;
  QpPairInfo card_;
  std::unique_ptr<link::SilencedPort> silenced_;  // where frames of RoCE v2 pass the kernel
};

}  // namespace netfold::group
