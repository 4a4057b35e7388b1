// Which share of a tensor goes through the switch, so that this part and the rest, which the ranks sum among
// themselves, end together. Pure; one rank decides, and tells the others.
//
// A worker's link carries B bytes/s each way, the switch takes c bytes/s from each worker. Of n ranks and a tensor of S
// bytes, a share x takes x S / c at the switch, and loads the worker's link with x S + a (1 - x) S bytes, where
// a = 2 (n - 1) / n is what a rank sends to sum among ranks. Both end together at x = a / (B / c + a - 1); with c >= B
// the switch is the faster way for all of it.
//
// B is measured when the ranks have the link to themselves: in a first tensor whose parts run one after the other. Then
// c follows from which part ends first, so that it does not matter how long the ranks wait for each other; B grows when
// a tensor that was let go faster is faster.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace netfold::group {

// How one tensor is divided.
struct Share {
  double of_switch = 1;         // 0 to 1
  double pace_bytes_s = 0;      // of what a rank sends to others while the switch has work; 0: no limit
  double link_bytes_s = 0;      // the same once the switch has finished
  bool in_turn = false;         // the ranks' part begins when the switch's has ended
  bool small_to_switch = true;  // tensors too small to divide go through the switch, else among the ranks
};

class ShareEstimate {
 public:
  explicit ShareEstimate(int world);

  // For the next tensor; they count from 0.
  Share next();

  struct Outcome {
    double size_bytes = 0;  // of the tensor on the wire
    // How long each part took, from when it was begun and the part before it had ended; 0 if there was none.
    Nanoseconds in_switch = 0, among_ranks = 0;
  };
  void note(std::uint64_t tensor, const Share& share, const Outcome& outcome);

  // What the estimates are, in bytes/s; 0: not known yet.
  double switch_bytes_s() const { return switch_; }
  double link_bytes_s() const { return link_; }

 private:
  bool is_known() const { return switch_ > 0; }
  double probe();
  double first_share() const;
  double best_share() const;
  void measure(std::uint64_t tensor, const Share& share, const Outcome& outcome);
  void follow(const Share& share, const Outcome& outcome);
  void look_for_misses(double took_s, double predicted_s);
  void change_switch(double bytes_s);

  const double sent_among_ranks_;  // a above: bytes for each byte of a tensor
  double switch_ = 0, link_ = 0;   // c and B
  std::uint64_t issued_ = 0;       // shares so far
  std::uint64_t decided_ = 0;      // the first tensor whose share knows of the last change
  int until_measured_ = 0;         // tensors until the link is measured again
  double growth_ = 1;              // by how much the next tensor is let go faster, as the last one was faster
  int until_probed_ = 0;           // tensors until the next one
  int patience_;                   // tensors before the link is measured again, after the estimates have been wrong
  int misses_ = 0;                 // tensors in a row that took much longer than predicted
};

}  // namespace netfold::group
