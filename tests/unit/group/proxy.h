// A TCP proxy between two ranks that cuts, stalls or slows their connections in the middle of a transfer, or changes a
// byte.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "link/tcp/control_socket.h"

namespace netfold::group {

// The fault that happens after `after_bytes` have gone through the data connection.
struct Fault {
  enum class Kind { kCut, kStall, kSlow, kChange } kind;
  bool spares_control;  // only the data connection is hit
  std::size_t after_bytes = 1 << 20;
};

// Listens at address() and passes on to `target`. The first connection that comes is the life line, the second carries
// data (group/via_peers/handshake.h).
class Proxy {
 public:
  Proxy(const std::string& target, Fault fault)
      : target_(*link::parse_address(target)),
        fault_(fault),
        listener_(*link::listen_at(*link::parse_address("127.0.0.1:0"))) {
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    ends_ = true;
    thread_.join();
    close(listener_);
    for (const Pair& pair : pairs_) close_both(pair);
  }

  std::string address() const { return link::to_string(link::local_address_of(listener_)); }
  // From now on it changes a bit of what passes on the life line, too: of the first message that comes at once, behind
  // its tag.
  void change_words() { changes_words_ = true; }
  bool has_struck() const { return has_struck_; }
  Nanoseconds struck_at() const { return struck_at_; }

 private:
  struct Pair {
    std::array<int, 2> ends;
    bool is_hit = false;
  };

  static void close_both(const Pair& pair) {
    for (const int end : pair.ends) {
      if (end >= 0) close(end);
    }
  }

  void run() {
    while (!ends_) {
      std::vector<pollfd> polled{{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        for (const int end : pair.ends) polled.push_back({pair.is_hit ? -1 : end, POLLIN, 0});
      }
      poll(polled.data(), polled.size(), 20);
      for (std::size_t i = 1; i < polled.size(); ++i) {
        Pair& pair = pairs_[(i - 1) / 2];
        if (polled[i].revents != 0 && !pair.is_hit) pass_on(pair, (i - 1) % 2);
      }
      if (polled[0].revents != 0) accept_one();
    }
  }

  void accept_one() {
    const int here = accept(listener_, nullptr, nullptr), there = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(target_.ip.v4());
    to.sin_port = htons(target_.port);
    EXPECT_EQ(connect(there, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    pairs_.push_back({{here, there}});
  }

  void pass_on(Pair& pair, std::size_t from) {
    const ssize_t got = recv(pair.ends[from], buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0) return;
    const int to = pair.ends[1 - from];
    if (got == 0) {
      shutdown(to, SHUT_WR);
      pair.is_hit = true;
      return;
    }
    const bool is_life_line = &pair == &pairs_[0];
    if (is_life_line && changes_words_) buffer_[40] ^= 1;
    const bool strikes = !is_life_line && !has_struck_ && passed_ + static_cast<std::size_t>(got) >= fault_.after_bytes;
    if (strikes && fault_.kind == Fault::Kind::kChange) buffer_[static_cast<std::size_t>(got) / 2] ^= 1;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t more = send(to, buffer_.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += more;
    }
    if (is_life_line) return;
    if (fault_.kind == Fault::Kind::kSlow) std::this_thread::sleep_for(std::chrono::milliseconds(15));
    if (has_struck_) return;
    passed_ += static_cast<std::size_t>(got);
    if (strikes) strike();
  }

  // The ranks may notice it, and their test ask for it, before this returns.
  void strike() {
    struck_at_ = now();
    has_struck_ = true;
    for (Pair& pair : pairs_) {
      if (fault_.kind == Fault::Kind::kSlow || fault_.kind == Fault::Kind::kChange) break;
      if (&pair == &pairs_[0] && fault_.spares_control) continue;
      pair.is_hit = true;
      if (fault_.kind != Fault::Kind::kCut) continue;
      close_both(pair);
      pair.ends = {-1, -1};
    }
  }

  link::Address target_;
  Fault fault_;
  int listener_;
  std::vector<Pair> pairs_;
  std::size_t passed_ = 0;
  std::array<char, 65536> buffer_;
  std::atomic<bool> ends_ = false, has_struck_ = false, changes_words_ = false;
  std::atomic<Nanoseconds> struck_at_ = 0;
  std::thread thread_;
};

}  // namespace netfold::group
