// Joins switches again that were lost. Joining blocks, so others do it; a session only asks, and takes what has come.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "group/via_switch/switch_session.h"

namespace netfold::group {

// One of several switches, and how often it was lost before.
struct SwitchLife {
  std::size_t at = 0, life = 0;
  bool operator==(const SwitchLife&) const = default;
};

class SwitchReturns {
 public:
  struct Joined {
    SwitchLife of;
    std::unique_ptr<SwitchSession> session;
  };

  virtual ~SwitchReturns() = default;
  // Joins the switch for this life, and no longer for an earlier one, until it succeeds.
  virtual void ask(SwitchLife life) = 0;
  virtual std::optional<Joined> take() = 0;
};

}  // namespace netfold::group
