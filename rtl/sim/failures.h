// Failures must not hang: requests that cannot finish end with the right status, and a soft reset restores the devices.
#pragma once

#include <nlohmann/json.hpp>

namespace netfold::rtl {

// For each case: the statuses, and whether they are right.
nlohmann::json run_failures();

}  // namespace netfold::rtl
