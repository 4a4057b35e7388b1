// A TCP connection that carries control messages (control_link.h), at either end: non-blocking, bounded both ways. Its
// owner polls.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/line_buffer.h"
#include "base/result.h"
#include "link/control_link.h"
#include "link/descriptor.h"
#include "link/link.h"
#include "link/road.h"
#include "link/socket_address.h"

namespace netfold::link {

class ControlSocket final : public ControlLink {
 public:
  explicit ControlSocket(int descriptor);  // owns it; must be connected, or connecting, and non-blocking

  Outcome read(const std::function<void(std::string_view)>& on_line) override;
  Outcome write(std::string_view bytes) override;
  Outcome flush() override;
  bool wants_to_write() const override { return !output_.empty(); }
  bool has_unconfirmed() const override;
  Nanoseconds usual_confirmation() const override;
  void shut_down_writing() override;
  int descriptor() const override { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
  std::string output_;
  netfold::LineBuffer lines_;
};

// A non-blocking listening socket; port 0 lets the kernel pick. Accepted connections take the same road.
Result<int> listen_at(link::Address address, const Road& road = {});

// Begins to connect, from the local address `from_ip` unless that is any, or of the other family. The descriptor is
// writable once that has ended, and then connect_result() says how.
Result<int> begin_connect(link::Address address, const IpAddress& from_ip = {}, const Road& road = {});
int connect_result(int descriptor);  // 0 or an errno

// The local address and the MTU of the way to `address`, as the kernel's routing table has them now.
struct Route {
  IpAddress local_ip;
  std::uint32_t mtu = 1500;
};
Result<Route> route_to(link::Address address, const Road& road = {});

}  // namespace netfold::link
