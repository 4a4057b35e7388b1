// A rank that sums through a switch and among the ranks at once, and divides large tensors between both ways.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "group/driver.h"
#include "group/via_both/split_session.h"
#include "group/via_peers/peer_group.h"
#include "group/via_switch/switch_group.h"

namespace netfold::group {

class SplitGroup final : public Driver {
 public:
  // Listens for the other ranks. `at_switch` says which job to join; its rank, world, core and on_completion are those
  // of `among_ranks`.
  static Result<std::unique_ptr<SplitGroup>> open(PeerGroupOptions among_ranks, SwitchGroupOptions at_switch);
  ~SplitGroup() override { close(); }

  const std::string& address() const { return address_; }
  const ShareReport& share() const { return *share_; }
  // Where the ranks sit, for hdrm, as PeerGroup.
  void set_physical_order(std::vector<int> order) { order_ = std::move(order); }
  // Once, with every rank's address: connects to all ranks, then joins the job. Blocks, at most timeout_s each.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

 private:
  SplitGroup(PeerGroupOptions among_ranks, SwitchGroupOptions at_switch, std::unique_ptr<Mesh> mesh);

  const PeerGroupOptions among_ranks_;
  const SwitchGroupOptions at_switch_;
  std::mutex connecting_;
  std::unique_ptr<Mesh> mesh_;  // until connected
  std::string address_;
  const std::shared_ptr<ShareReport> share_ = std::make_shared<ShareReport>();
  std::vector<int> order_;
};

}  // namespace netfold::group
