// A rank that sums through one or more switches and among the ranks at once, and divides large tensors between them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "group/driver.h"
#include "group/via_both/split_session.h"
#include "group/via_peers/peer_group.h"
#include "group/via_switch/switch_group.h"

namespace netfold::group {

class SplitGroup final : public Driver {
 public:
  // Listens for the other ranks. `at_switches` says which job to join at each switch, all ranks in the same order;
  // their ranks, worlds, cores and on_completion are those of `among_ranks`. Of several, each gets a job of its own:
  // two ranks that name the switches in different orders then never meet, and sum no wrong elements.
  static Result<std::unique_ptr<SplitGroup>> open(PeerGroupOptions among_ranks,
                                                  std::vector<SwitchGroupOptions> at_switches);
  ~SplitGroup() override { close(); }

  const std::string& address() const { return address_; }
  std::size_t switches() const { return at_switches_.size(); }
  const ShareReport& share() const { return *share_; }
  // What has happened to switches since the last call: they were lost, or are back.
  std::vector<ShareReport::News> take_news() {
    const std::lock_guard lock(share_->mutex);
    return std::exchange(share_->news, {});
  }
  // Where the ranks sit, for hdrm, as PeerGroup.
  void set_physical_order(std::vector<int> order) { order_ = std::move(order); }
  // Once, with every rank's address: connects to all ranks, then joins the jobs. Blocks, at most timeout_s each.
  Result<void> connect(const std::vector<std::string>& addresses, const std::function<bool()>& keep_going = {});

 private:
  SplitGroup(PeerGroupOptions among_ranks, std::vector<SwitchGroupOptions> at_switches, std::unique_ptr<Mesh> mesh);

  const PeerGroupOptions among_ranks_;
  const std::vector<SwitchGroupOptions> at_switches_;
  std::mutex connecting_;
  std::unique_ptr<Mesh> mesh_;  // until connected
  std::string address_;
  const std::shared_ptr<ShareReport> share_ = std::make_shared<ShareReport>();
  std::vector<int> order_;
};

}  // namespace netfold::group
