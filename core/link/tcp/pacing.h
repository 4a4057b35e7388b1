// How fast the kernel lets a connection's packets go.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>

namespace netfold::link {

// At most so many bytes/s leave by the socket; 0: as many as the peer takes.
inline void set_socket_pace(int socket, double bytes_s) {
  constexpr std::uint64_t kNoPace = ~std::uint64_t{0}, kPaceMin = 1500;
  const std::uint64_t rate = bytes_s > 0 ? std::max(static_cast<std::uint64_t>(bytes_s), kPaceMin) : kNoPace;
  setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}

}  // namespace netfold::link
