#include "sim/max_min.h"

#include <cstddef>
#include <limits>

namespace netfold::sim {

std::vector<double> max_min(const std::vector<double>& capacities_bit_s, const std::vector<std::vector<int>>& flows) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> rates(flows.size(), kInfinity), left = capacities_bit_s;
  std::vector<char> grows(flows.size(), 1);
  while (true) {
    std::vector<double> growing(left.size(), 0);  // how many times its level each resource is asked for
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      if (!grows[flow]) continue;
      for (const int resource : flows[flow]) growing[static_cast<std::size_t>(resource)] += 1;
    }
    double level = kInfinity;
    std::size_t full = left.size();
    for (std::size_t resource = 0; resource < left.size(); ++resource) {
      if (growing[resource] > 0 && left[resource] / growing[resource] < level) {
        level = left[resource] / growing[resource];
        full = resource;
      }
    }
    if (full == left.size()) return rates;
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      bool is_on_it = false;
      for (const int resource : flows[flow]) is_on_it |= static_cast<std::size_t>(resource) == full;
      if (!grows[flow] || !is_on_it) continue;
      grows[flow] = 0;
      rates[flow] = level;
      for (const int resource : flows[flow]) left[static_cast<std::size_t>(resource)] -= level;
    }
  }
}

}  // namespace netfold::sim
