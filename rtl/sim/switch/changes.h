// Contributions with one changed field: what a damaged, foreign or hostile sender would send.
#pragma once

#include "base/prng.h"
#include "switch/job.h"

namespace netfold::rtl {

// Changes one field of a contribution of this job. False if hardware and software may differ for that change.
bool change_one_field(Bytes& frame, const JobOptions& job, bool is_first, Prng& prng);

}  // namespace netfold::rtl
