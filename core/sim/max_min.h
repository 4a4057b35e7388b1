// Max-min fairness, the plain way: the specification that fair_share.h is held to.
//
// All flows grow alike until a resource is full; those on it stay as they are, the others grow on. No flow could have
// more without another that has no more than it having less. A flow that names a resource k times takes k times its
// rate there.
#pragma once

#include <vector>

namespace netfold::sim {

// Rates in bit/s, by flow; a flow on no resource has no limit, and gets infinity. Capacities are above 0.
std::vector<double> max_min(const std::vector<double>& capacities_bit_s, const std::vector<std::vector<int>>& flows);

}  // namespace netfold::sim
