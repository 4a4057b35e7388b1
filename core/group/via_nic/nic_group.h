// Ranks whose all-reduces go through smart NICs: each rank has a NIC of its own, whose neighbours in the ring are the
// NICs of the neighbouring ranks. Other collectives, types and formats run among the ranks in software, as in
// PeerGroup.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "group/driver.h"
#include "group/via_nic/nic_session.h"
#include "group/via_peers/peer_group.h"

namespace netfold::group {

struct NicGroupOptions {
  PeerGroupOptions peers = {};
  std::string nic;  // where it is: link::parse_pci_place
};

class NicGroup final : public Driver {
 public:
  // Listens, as PeerGroup, and takes the NIC.
  static Result<std::unique_ptr<NicGroup>> open(NicGroupOptions options);
  ~NicGroup() override { close(); }

  const std::string& address() const { return address_; }
  void set_physical_order(std::vector<int> order) { order_ = std::move(order); }
  // The same as PeerGroup's.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

 private:
  NicGroup(NicGroupOptions options, std::unique_ptr<Mesh> mesh, std::unique_ptr<link::PciDevice> device,
           NicSessionOptions session);

  const NicGroupOptions options_;
  const NicSessionOptions session_;
  std::mutex connecting_;
  std::unique_ptr<Mesh> mesh_;               // until connected
  std::unique_ptr<link::PciDevice> device_;  // the same
  std::string address_;
  std::vector<int> order_;
};

}  // namespace netfold::group
