// What every process of a simulated cluster shares: time, network, history, checkers.
#pragma once

#include "base/prng.h"
#include "testing/checkers/admissions.h"
#include "testing/checkers/bits.h"
#include "testing/checkers/culprit.h"
#include "testing/checkers/leftovers.h"
#include "testing/checkers/liveness.h"
#include "testing/checkers/whole_or_untouched.h"
#include "testing/network.h"
#include "testing/plan.h"
#include "testing/timeline.h"

namespace netfold::testing {

constexpr link::Address kSwitchAddress{0x0a000001, 7171};
constexpr std::uint16_t kWorkerPort = 30000;
constexpr Nanoseconds kFullPause = 20 * kMicrosecond;  // until a full link takes more

struct Surroundings {
  Surroundings(const Plan& the_plan, std::function<void(const std::string&)> on_line)
      : plan(the_plan),
        network(timeline, the_plan.seed ^ 0x6e6574),
        prng(the_plan.seed ^ 0x70726f63),
        history(timeline, std::move(on_line)) {}

  Nanoseconds draw_time(Nanoseconds most) {
    return static_cast<Nanoseconds>(prng.below(static_cast<std::uint64_t>(most) + 1));
  }

  const Plan& plan;
  Timeline timeline;
  Network network;
  Prng prng;
  History history;
  AdmissionsChecker admissions{history};
  BitsChecker bits{plan, history};
  WholeOrUntouchedChecker tensors{history};
  CulpritChecker culprit{history};
  LeftoversChecker leftovers{history};
  LivenessChecker liveness{plan, history};
};

}  // namespace netfold::testing
