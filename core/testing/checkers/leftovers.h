// Nothing is left over: after all ranks have gone, the switch holds no job, slot, lease, memory or connection, and no
// machine a connection of a rank.
#pragma once

#include "switch/switch_control.h"
#include "testing/checkers/admissions.h"
#include "testing/history.h"

namespace netfold::testing {

class LeftoversChecker {
 public:
  explicit LeftoversChecker(History& history) : history_(history) {}

  void check(const switching::SwitchControl& control, const AdmissionsChecker& admissions,
             std::size_t connections_of_ranks) {
    const auto expect_none = [&](std::size_t count, const char* what) {
      if (count != 0) history_.violate("leftovers", fmt::format("{} {} after all have left", count, what));
    };
    expect_none(control.table().jobs().size(), "jobs in the table");
    expect_none(admissions.running(), "jobs in the data plane");
    expect_none(control.table().memory_bytes(), "bytes reserved");
    expect_none(control.table().connections(), "connections in the table");
    expect_none(control.peers().size(), "connections open");
    expect_none(connections_of_ranks, "connections of ranks");
  }

 private:
  History& history_;
};

}  // namespace netfold::testing
