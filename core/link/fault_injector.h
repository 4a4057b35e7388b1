// A link that loses, duplicates and reorders, by seed: it wraps any other link, in both directions. The same seed
// gives the same sequence of fates in each direction.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "link/link.h"

namespace netfold::link {

// Probabilities for each packet, each way.
struct Faults {
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;                   // held back for a time, so that later packets overtake it
  Nanoseconds hold_max = kMillisecond;  // a held packet waits up to this long
  std::uint64_t seed = 1;

  bool any() const { return loss > 0 || duplicate > 0 || reorder > 0; }
};

// "loss=0.01,duplicate=0.01,reorder=0.05,hold_s=0.001,seed=7"; every part may be left out.
Result<Faults> parse_faults(const std::string& description);

// `clock` is now() outside of simulations.
std::unique_ptr<Link> inject_faults(std::unique_ptr<Link> inner, Faults faults, std::function<Nanoseconds()> clock);

}  // namespace netfold::link
