// Max-min fair rates that are kept up while flows come and go (max_min.h says what they are). Only what a change can
// reach is computed again: the flows that share a resource with it, directly or over others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace netfold::sim {

class FairShare {
 public:
  explicit FairShare(const std::vector<double>& capacities_bit_s);

  // Flows have numbers that the caller gives, below `flows_max()` of a call before or one more; a number is free again
  // once its flow was removed.
  void add(int flow, std::span<const int> resources);
  void remove(int flow);

  // Brings all rates up to date.
  void solve();

  double rate(int flow) const { return flows_[static_cast<std::size_t>(flow)].rate; }
  const std::vector<int>& touched() const { return touched_; }  // whose rate the last solve() may have changed

 private:
  struct Use {
    int resource;
    int weight;    // how many times the flow's rate
    int position;  // in the resource's list
  };
  struct Flow {
    std::uint32_t first_use = 0, uses = 0;  // in a block of uses_
    double rate = 0;
    bool is_active = false, is_frozen = false;
    std::uint32_t mark = 0;
  };
  struct User {
    int flow;
    int use;  // which of its uses
  };
  struct Resource {
    double capacity;
    std::vector<User> users;
    double left = 0, weight = 0;  // while solving
    std::uint32_t mark = 0;
  };
  struct Level {
    double level;
    int resource;
    bool operator<(const Level& other) const {  // the lowest first, in a heap
      return level > other.level || (level == other.level && resource > other.resource);
    }
  };

  void collect();  // everything that the changed resources can reach
  void fill();     // progressive filling of it
  void freeze(Flow& flow, double level);
  std::span<Use> uses_of(const Flow& flow) { return {uses_.data() + flow.first_use, flow.uses}; }

  std::vector<Resource> resources_;
  std::vector<Flow> flows_;
  std::vector<Use> uses_;
  std::vector<std::vector<std::uint32_t>> free_blocks_;  // of uses_, by length
  std::vector<int> changed_, reached_, touched_;
  std::vector<Level> heap_;
  std::uint32_t mark_ = 0;
};

}  // namespace netfold::sim
