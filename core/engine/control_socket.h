// A TCP connection that carries control messages, at either end: non-blocking, bounded both ways. Whoever owns it
// polls.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "jobs/line_buffer.h"
#include "link/link.h"

namespace netfold::engine {

class ControlSocket {
 public:
  explicit ControlSocket(int descriptor);  // owns it; must be connected, or connecting, and non-blocking
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  int descriptor() const { return descriptor_; }
  bool wants_to_write() const { return !output_.empty(); }

  enum class State {
    kOpen,
    kClosed,   // by the peer, or broken
    kGarbage,  // the peer sent an endless line
  };
  struct Outcome {
    State state = State::kOpen;
    std::string why;  // in words, unless open
  };

  // Reads what has come, but at most some of it, so that no peer keeps the others waiting.
  Outcome read(const std::function<void(std::string_view)>& on_line);
  // Sends now what the kernel takes and keeps the rest, up to a bound: a peer that does not read is closed.
  Outcome write(std::string_view bytes);
  Outcome flush();
  // After this the peer sees the end; reading (and throwing away) goes on until it closes too. Closing at once would
  // make the kernel forget what it has not delivered yet.
  void shut_down_writing();

 private:
  int descriptor_;
  std::string output_;
  jobs::LineBuffer lines_;
};

// A non-blocking listening socket; port 0 lets the kernel pick.
Result<int> listen_at(link::Address address);
link::Address local_address_of(int descriptor);

// Begins to connect; the descriptor is writable once that has ended, and then connect_result() says how.
Result<int> begin_connect(link::Address address);
int connect_result(int descriptor);  // 0 or an errno

// The local address and the MTU of the way to `address`, as the kernel's routing table has them now.
struct Route {
  std::uint32_t local_ip = 0;
  std::uint32_t mtu = 1500;
};
Result<Route> route_to(link::Address address);

}  // namespace netfold::engine
