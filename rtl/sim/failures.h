// What must not hang: requests that cannot finish end with the right status, and a soft reset makes the devices new.
#pragma once

#include <nlohmann/json.hpp>

namespace netfold::rtl {

// By case: the statuses that came, and whether they are the right ones.
nlohmann::json run_failures();

}  // namespace netfold::rtl
