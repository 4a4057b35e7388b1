// A small HTTP server beside the switch: /metrics for Prometheus, /stats.json for `netfold top`, and from this machine
// alone POST /folding for `netfold configure`.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/switch_server.h"
#include "link/link.h"

namespace netfold::apps {

class Metrics {
 public:
  // `server` must outlive it.
  static Result<std::unique_ptr<Metrics>> start(link::Address at, engine::SwitchServer& server);
  virtual ~Metrics() = default;  // stops

  virtual link::Address address() const = 0;
};

}  // namespace netfold::apps
