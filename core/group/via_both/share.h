// Which share of a tensor goes through each switch, so that these parts and the rest, which the ranks sum among
// themselves, end together; and which way a tensor takes that is too small to divide. Pure; one rank decides, and tells
// the others.
//
// A worker's link carries B bytes/s each way, the switch takes c bytes/s from each worker. Of n ranks and a tensor of S
// bytes, a share x takes x S / c at the switch, and loads the worker's link with x S + a (1 - x) S bytes, where
// a = 2 (n - 1) / n is what a rank sends to sum among ranks. Both end together at x = a / (B / c + a - 1); with c >= B
// the switch is the faster way for all of it. Several switches are as one that takes the sum of their c, and each has a
// part of x in proportion to its own.
//
// Both are measured before the first tensor (measurement.h). From then on c follows from which part ends first, so that
// it does not matter how long the ranks wait for each other. That alone finds no c that is too low: the ranks then fill
// the link, and both parts end together. So now and then the ranks leave the switch a little more room, and more and
// more while it takes it: c grows by what it takes. Without that room c grows no further than the switch was seen to
// take data: ranks that are slower than their link prove nothing of the switch. B grows when a tensor that was let go
// faster is faster.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "group/via_both/without_switches.h"

namespace netfold::group {

// a above: what a rank sends, and receives, to sum among ranks, for each byte of a tensor.
constexpr double sent_among_ranks(int world) {
  return 2.0 * (world - 1) / world;
}

// How one tensor is divided.
struct Share {
  std::vector<double> of_switches = {};  // 0 to 1 each, and together
  double pace_bytes_s = 0;               // of what a rank sends to others while the switch has work; 0: no limit
  double link_bytes_s = 0;               // the same once the switch has finished
  bool gives_room = false;               // the ranks leave the switch more than it is known to take
  bool is_measured = false;              // false: both ways are to be measured first, and then it is decided
  double piece_bytes = 0;                // on the wire: of a very large tensor, so much is divided by this share
  // Small tensors: where bit k is set, those of 2^(k-1) to 2^k - 1 bytes go through a switch, else among the ranks.
  std::uint32_t small_to_switch = 0;
  std::size_t small_switch = 0;  // which
  // Large reduce-scatters and all-gathers: the ranks join a job for reduce-scatters; they go through the switches.
  bool joins_scatters = false, one_way_to_switch = false;
  bool one_ways_overlap = false;  // reduce-scatters have run beside all-gathers lately

  double of_all_switches() const { return std::accumulate(of_switches.begin(), of_switches.end(), 0.0); }
};

// What was measured: in bytes/s, and for a tensor of a few bytes.
struct Ways {
  struct Switch {
    double bytes_s = 0;     // c above
    Nanoseconds small = 0;  // a small tensor
  };
  std::vector<Switch> switches;
  double link_bytes_s = 0;  // B above
  Nanoseconds small_among_ranks = 0;

  double switches_bytes_s() const {
    return std::accumulate(switches.begin(), switches.end(), 0.0,
                           [](double sum, const Switch& each) { return sum + each.bytes_s; });
  }
};

class ShareEstimate {
 public:
  explicit ShareEstimate(int world);

  // For the next tensor; they count from 0. A piece of a very large one counts as a tensor.
  Share next();
  void measured(const Ways& ways);
  // A switch that is lost gets nothing. Once it is back, both ways are measured again.
  void lose(std::size_t at);
  void regain(std::size_t at);
  // It was seen to take so much less, in bytes/s. What was divided before says nothing more.
  void slow_down(std::size_t at, double bytes_s);

  struct Outcome {
    double size_bytes = 0;  // of the tensor on the wire
    // How long each part took, from when it was begun and the part before it had ended; 0 if there was none.
    std::vector<Nanoseconds> in_switches;
    Nanoseconds among_ranks = 0;
    Nanoseconds whole = 0;  // from when it was begun, and all of the tensor before it had ended
    // The first or the last piece of several: nothing runs before it, or behind it, so its parts end less alike.
    bool is_at_an_end = false;
  };
  void note(std::uint64_t tensor, const Share& share, const Outcome& outcome);

  bool is_measured() const { return is_measured_; }  // else both ways are to be measured next
  // Whether the switches may take as much as a link carries. A short measurement finds less, so the bound is low.
  bool is_fast() const { return is_measured_ && ways_.switches_bytes_s() > kFastPart * ways_.link_bytes_s; }

  // What the estimates are; nothing and 0: not known yet.
  const Ways& ways() const { return ways_; }

 private:
  static constexpr double kFastPart = 0.4;  // of the link: less is not what fast switches are measured at
  static constexpr double kRoomMin = 1.08, kRoomMore = 1.25, kRoomMax = 2, kRoomOfFormer = 4;

  double probe_link();
  double best_share() const;
  bool is_below_former() const;
  std::vector<double> of_switches(double share, bool to_all) const;
  std::size_t small_switch() const;
  std::uint32_t small_to_switch() const;
  bool probes_link(const Share& share) const;
  void follow(const Share& share, const Outcome& outcome, double took_s);
  void follow_link();
  void follow_switches(const Share& share, const Outcome& outcome);
  double change_by_ratio(std::size_t each, const Outcome& outcome);
  void begin_anew();
  void choose_room(double grown, double offered);
  void look_for_misses(double took_s, double predicted_s);
  void keep_within_link();
  bool is_lost(std::size_t at) const { return std::ranges::find(lost_, at) != lost_.end(); }

  const int world_;
  const double sent_among_ranks_;  // a above
  Ways ways_ = {};
  double seen_bytes_s_ = 0;     // at which rate all switches together took data, the most in the last tensors
  double former_bytes_s_ = 0;   // that all switches together took before a large change
  std::vector<double> ratios_;  // how much longer than each switch the ranks needed, in the last tensor
  struct Carried {              // by the link
    double bytes = 0, seconds = 0;
    int tensors = 0;

    double bytes_s() const { return bytes / seconds; }
    void add(double more_bytes, double more_seconds) {
      bytes += more_bytes;
      seconds += more_seconds;
      ++tensors;
    }
  };
  Carried usual_ = {}, probed_ = {};  // since the last probe, and during this one
  bool is_probing_link_ = false;
  std::vector<std::size_t> lost_;  // switches
  bool is_measured_ = false;
  std::uint64_t issued_ = 0;   // shares so far
  std::uint64_t decided_ = 0;  // the first tensor whose share knows of the last change
  double room_ = kRoomMore;    // that the next probe leaves switches: times what they are known to take
  double growth_ = 1;          // by how much a probe lets tensors go faster than the link is known to carry
  int in_vain_ = 0;            // probes of the switch since it took more
  int large_probes_ = 0;       // of the switch, that are left since it changed
  bool takes_more_ = false;    // the switch may: the next tensor leaves it room
  int until_link_probed_ = 0, until_switch_probed_ = 0;  // tensors
  std::uint64_t try_all_at_ = 0;
  int since_measured_ = 0;  // tensors
  int patience_;            // tensors before both ways are measured again, after the estimates have been wrong
  int misses_ = 0;          // tensors in a row that took much longer than predicted
  WithoutSwitches without_;
};

}  // namespace netfold::group
