// Connected sockets for tests of links.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "link/descriptor.h"
#include "link/socket_address.h"
#include "link/tcp/control_socket.h"

namespace netfold::link {

// Over loopback.
inline std::array<Descriptor, 2> tcp_pair() {
  const Descriptor listener(*listen_at(*parse_address("127.0.0.1:0")));
  Descriptor asks(*begin_connect(local_address_of(listener.get())));
  pollfd connecting{asks.get(), POLLOUT, 0};
  EXPECT_EQ(poll(&connecting, 1, 1000), 1);
  return {std::move(asks), Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

}  // namespace netfold::link
