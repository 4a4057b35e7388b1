// A small HTTP server beside the switch: /metrics for Prometheus, /stats.json for `netfold top`, and, only from this
// machine, POST /folding for `netfold configure`.
#pragma once

#include <memory>

#include "base/result.h"
#include "link/link.h"
#include "switch/ethernet/frame_plane.h"
#include "switch/switch_server.h"

namespace netfold::apps {

class Metrics {
 public:
  // `server` must outlive it, and so its data plane; `frames` is that plane if the server is an Ethernet switch.
  static Result<std::unique_ptr<Metrics>> start(link::Address at, switching::SwitchServer& server,
                                                switching::FramePlane* frames);
  virtual ~Metrics() = default;  // stops

  virtual link::Address address() const = 0;
};

}  // namespace netfold::apps
