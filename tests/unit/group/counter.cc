#include "counter.h"

#include <nlohmann/json.hpp>

namespace netfold::group {

double counter(const Group& group, const char* name) {
  return group.counters().at(name).get<double>();
}

}  // namespace netfold::group
