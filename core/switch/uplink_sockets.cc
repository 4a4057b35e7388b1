#include "switch/uplink_sockets.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace netfold::switching {

void UplinkSockets::turn(Uplinks& uplinks, Nanoseconds now) {
  for (const JobKey key : uplinks.begin_attempts(now)) {
    const auto descriptor = link::begin_connect(uplinks.options().address, from_ip_, {.dscp = dscp_, .interface = {}});
    if (descriptor) {
      connecting_[key] = std::make_unique<link::ControlSocket>(*descriptor);
    } else {
      uplinks.on_unreachable(key, descriptor.error().message, now);
    }
  }
  for (auto it = connecting_.begin(); it != connecting_.end();) {
    if (!uplinks.is_connecting(it->first)) {
      it = connecting_.erase(it);
      continue;
    }
    pollfd there{it->second->descriptor(), POLLOUT, 0};
    const bool has_ended = poll(&there, 1, 0) > 0;
    const int result = has_ended ? link::connect_result(it->second->descriptor()) : EINPROGRESS;
    if (result == EINPROGRESS) {
      ++it;
      continue;
    }
    if (result == 0) {
      uplinks.on_connected(it->first, std::move(it->second), now);
    } else {
      uplinks.on_unreachable(it->first, std::strerror(result), now);
    }
    it = connecting_.erase(it);
  }
}

void UplinkSockets::add_polls(const Uplinks& uplinks, std::vector<pollfd>& polls) const {
  for (const auto& [key, socket] : connecting_) polls.push_back({socket->descriptor(), POLLOUT, 0});
  uplinks.for_each_connection([&](int descriptor, bool writes) {
    polls.push_back({descriptor, static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  });
}

}  // namespace netfold::switching
