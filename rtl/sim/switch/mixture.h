// Random frames of every kind, one at a time: what one of them does is known before the next is there, so the hardware
// must do exactly what the software does, drop for drop and notice for notice. A job of workers goes on through it all,
// with packets lost, doubled and out of order, connections that begin anew, epochs, settings that change, and frames
// that are wrong in one field.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "numbers/format.h"

namespace netfold::rtl {

struct MixtureRun {
  unsigned frames = 1000;
  unsigned workers = 0;                   // 0: at random
  std::optional<numbers::Format> format;  // empty: at random
  double loss = 0.1;                      // of contributions, which are sent again later
  std::uint64_t seed = 1;
  bool is_verbose = false;  // a line a frame on standard error
};

// frames, differences, sums; verdicts: by name, [hardware, software].
nlohmann::json run_mixture(const MixtureRun& run);
// `runs` of them, with seeds that follow from the first, added up.
nlohmann::json run_mixtures(unsigned runs, const MixtureRun& first);

}  // namespace netfold::rtl
