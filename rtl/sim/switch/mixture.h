// Random frames of every kind, one at a time. The effect of a frame is known before the next frame, so hardware and
// software must agree exactly, also in drops and notices. Meanwhile a job of workers runs, with packets lost,
// duplicated and reordered, restarted connections, new epochs, changed settings, and frames with one wrong field.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "numbers/format.h"
#include "wire/roce.h"

namespace netfold::rtl {

struct MixtureRun {
  unsigned frames = 1000;
  unsigned workers = 0;                   // 0: at random
  std::optional<numbers::Format> format;  // empty: at random
  std::optional<wire::roce::Version> version;
  double loss = 0.1;  // of contributions, which are sent again later
  std::uint64_t seed = 1;
  bool is_verbose = false;  // a line for each frame on standard error
};

// frames, differences, sums; verdicts: by name, [hardware, software].
nlohmann::json run_mixture(const MixtureRun& run);
// The sum over `runs` runs, with seeds that follow from the first.
nlohmann::json run_mixtures(unsigned runs, const MixtureRun& first);

}  // namespace netfold::rtl
