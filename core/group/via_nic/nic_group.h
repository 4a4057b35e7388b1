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

// A NIC that this process has taken.
struct TakenNic {
  std::unique_ptr<link::PciDevice> device;
  NicShape shape;
  std::uint64_t own_address = 0;  // 0: the driver chooses one
};
// `place`: see link::parse_pci_place. Errors as of the device, and as NicDriver::identify().
Result<TakenNic> take_nic(const std::string& place, int rank);

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
  NicGroup(NicGroupOptions options, std::unique_ptr<Mesh> mesh, TakenNic nic);

  const NicGroupOptions options_;
  const NicSessionOptions session_;
  std::mutex connecting_;
  std::unique_ptr<Mesh> mesh_;               // until connected
  std::unique_ptr<link::PciDevice> device_;  // the same
  std::string address_;
  std::vector<int> order_;
};

}  // namespace netfold::group
