// A TCP connection with CUBIC (RFC 9438) beside the jobs of a star, as a queue sees it. Packets go out while fewer are
// on the way than the window has room for. The sender knows of a lost one a round trip later. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace netfold::tests {

class CubicFlow {
 public:
  static constexpr std::size_t kPacketBytes = 1514;

  bool may_send() const { return outstanding_ < static_cast<std::uint64_t>(window_); }
  std::uint64_t on_send() {  // returns its number
    ++outstanding_;
    return next_++;
  }
  void on_arrival(Nanoseconds now) {
    --outstanding_;
    delivered_bytes_ += kPacketBytes;
    if (is_starting_) {
      window_ += 1;
      return;
    }
    const double since = to_seconds(now - shrunk_at_), until_most = std::cbrt(most_ * (1 - kBeta) / kC);
    const double target = kC * std::pow(since - until_most, 3) + most_;
    window_ += std::clamp(target - window_, 0.0, window_ / 2) / window_;
  }
  void on_loss(std::uint64_t number, Nanoseconds now) {
    --outstanding_;
    if (number < recovered_from_) return;
    recovered_from_ = next_;
    is_starting_ = false;
    most_ = window_;
    window_ = std::max(2.0, window_ * kBeta);
    shrunk_at_ = now;
  }

  std::uint64_t delivered_bytes() const { return delivered_bytes_; }

 private:
  static constexpr double kBeta = 0.7, kC = 0.4;

  double window_ = 10, most_ = 0;  // packets
  bool is_starting_ = true;
  std::uint64_t next_ = 0, outstanding_ = 0, recovered_from_ = 0, delivered_bytes_ = 0;
  Nanoseconds shrunk_at_ = 0;
};

}  // namespace netfold::tests
