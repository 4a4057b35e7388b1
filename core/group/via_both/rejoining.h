// The thread of a rank that joins lost switches again (switch_returns.h), over sockets.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "group/via_both/switch_returns.h"
#include "group/via_switch/switch_group.h"

namespace netfold::group {

class Rejoining final : public SwitchReturns {
 public:
  // `at_switches`: how each of them was joined.
  explicit Rejoining(std::vector<SwitchGroupOptions> at_switches);
  ~Rejoining() override;

  void ask(SwitchLife life) override;
  std::optional<Joined> take() override;

 private:
  void run();
  bool is_wanted(SwitchLife life) const;

  const std::vector<SwitchGroupOptions> at_switches_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::deque<SwitchLife> wanted_;  // the next one first
  std::deque<Joined> joined_;
  std::thread thread_;  // from the first question on
};

}  // namespace netfold::group
