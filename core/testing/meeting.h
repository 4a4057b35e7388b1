// Where the ranks of a job that fold among themselves find each other. It stands for group/via_peers/mesh.h, which
// blocks on sockets: once all ranks are there and reach each other, each is handed connections to all others.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "group/via_peers/peer_session.h"
#include "testing/surroundings.h"

namespace netfold::testing {

class Meeting {
 public:
  struct Guest {
    std::uint32_t ip = 0;
    std::uint64_t seed = 0;  // of its tensors
    Network::OnNews on_news;
    std::function<void(AdmissionsChecker::Life, group::PeerConnections)> on_met;
  };

  Meeting(Surroundings& around, int job) : around_(around), job_(job) {}

  void come(int rank, Guest guest);
  void go(int rank) { guests_.erase(rank); }

 private:
  void look();
  bool reach_each_other() const;
  const JobPlan& plan() const { return around_.plan.jobs[static_cast<std::size_t>(job_)]; }

  Surroundings& around_;
  int job_;
  std::map<int, Guest> guests_;
  bool is_looking_ = false;
};

}  // namespace netfold::testing
