// A TCP relay in the way of one connection. It changes one bit of what passes on the way there.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <thread>

#include "ranks.h"

namespace netfold::nccl::testing {

class Relay {
 public:
  // Puts itself into a handle of a listener on 127.0.0.1, in the place of that. Of the bytes that pass, it changes the
  // one at `change_at`. It lives as long as the process.
  Relay(unsigned char* handle, std::size_t change_at)
      : change_at_(change_at), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own = loopback(0);
    socklen_t size = sizeof own;
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&own), size) == 0 && listen(listener_, 1) == 0);
    CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) == 0);
    std::memcpy(&target_port_, handle + kPortAt, sizeof target_port_);
    std::memcpy(handle + kPortAt, &own.sin_port, sizeof own.sin_port);
    std::thread([this] { run(); }).detach();
  }

 private:
  static constexpr std::size_t kPortAt = 24;  // in a handle (core/wire/PROTOCOL.md, "Messages under NCCL")

  static sockaddr_in loopback(in_port_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = port;
    return address;
  }

  void run() {
    const int here = accept(listener_, nullptr, nullptr), there = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in target = loopback(target_port_);
    CHECK(connect(there, reinterpret_cast<const sockaddr*>(&target), sizeof target) == 0);
    std::array<pollfd, 2> ends{{{here, POLLIN, 0}, {there, POLLIN, 0}}};
    for (std::size_t passed = 0;;) {
      poll(ends.data(), ends.size(), -1);
      for (std::size_t from = 0; from < ends.size(); ++from) {
        if (ends[from].revents == 0) continue;
        std::array<unsigned char, 65536> bytes;
        const ssize_t got = recv(ends[from].fd, bytes.data(), bytes.size(), 0);
        if (got <= 0) {
          close(here), close(there);
          return;
        }
        if (from == 0) {
          const std::size_t at = change_at_ - passed;
          if (change_at_ >= passed && at < static_cast<std::size_t>(got)) bytes[at] ^= 1;
          passed += static_cast<std::size_t>(got);
        }
        for (ssize_t sent = 0; sent < got;) {
          const ssize_t more =
              send(ends[1 - from].fd, bytes.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
          if (more <= 0) return;
          sent += more;
        }
      }
    }
  }

  const std::size_t change_at_;
  const int listener_;
  in_port_t target_port_ = 0;  // as in the handle: big-endian
};

}  // namespace netfold::nccl::testing
