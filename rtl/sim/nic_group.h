// Ranks whose all-reduces go through smart NICs: each rank has a Verilated NIC of its own, and UDP datagrams carry its
// frames to the neighbours' NICs in the ring. Other collectives, types and formats run among the ranks in software, as
// in PeerGroup.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "group/driver.h"
#include "group/via_peers/peer_group.h"

namespace netfold::rtl {

struct NicGroupOptions {
  group::PeerGroupOptions peers = {};
  std::string faults = {};  // of the datagrams, in the notation of link::parse_faults
};

class NicGroup final : public group::Driver {
 public:
  static Result<std::unique_ptr<NicGroup>> open(NicGroupOptions options);
  ~NicGroup() override { close(); }

  const std::string& address() const { return address_; }
  void set_physical_order(std::vector<int> order) { order_ = std::move(order); }
  // The same as PeerGroup's.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

 private:
  NicGroup(NicGroupOptions options, std::unique_ptr<group::Mesh> mesh);

  const NicGroupOptions options_;
  std::mutex connecting_;
  std::unique_ptr<group::Mesh> mesh_;  // until connected
  std::string address_;
  std::vector<int> order_;
};

}  // namespace netfold::rtl
