// Which way large reduce-scatters and all-gathers take: through the switch, or among the ranks. Pure; one rank decides,
// and tells the others.
//
// Of n ranks and tensors of S bytes, each of the two loads a worker's link with (n - 1) / n S bytes both ways, if it
// runs among the ranks. Through the switch a reduce-scatter sends S bytes up and S / n down, an all-gather S / n up and
// (n - 1) / n S down: together they are faster than among the ranks, a reduce-scatter alone is slower. So the switch is
// tried where they run beside each other, and kept while a byte takes less time there. An all-gather alone takes as
// long by either way where the switch takes all that a link carries. So all-gathers alone show a switch that is too
// slow.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/clock.h"
#include "group/session.h"

namespace netfold::group {

class OneWayChoice {
 public:
  explicit OneWayChoice(int world) : world_(world) {}

  // The caller hands one over, it begins by one of the ways, and ends. Tickets that were not handed over are ignored.
  void hand_over(Ticket ticket, bool is_scatter, std::size_t size_bytes, Nanoseconds now);
  void begin(Ticket ticket, bool in_switch) { collectives_[ticket].in_switch = in_switch; }
  void end(Ticket ticket, Nanoseconds now);

  // Those that begin from now on are to go through the switch.
  bool wants_switch() const { return wants_switch_; }
  // Half of the last reduce-scatters ran beside an all-gather, or more.
  bool overlaps() const { return 2 * overlaps_.count() >= kLast; }

 private:
  struct Collective {
    bool is_scatter = false, in_switch = false;
    bool is_alone = false;  // no other one has run beside it
    std::size_t size_bytes = 0;
    Nanoseconds begun = 0, together = 0;
  };
  // Until so many reduce-scatters have ended.
  struct Period {
    std::array<std::size_t, 2> ended = {};  // among the ranks, in the switch
    std::size_t scatters = 0, size_bytes = 0;
    Nanoseconds busy = 0;
  };
  static constexpr std::size_t kLast = 8, kScattersOfPeriod = 4;
  static constexpr int kPatienceMin = 16, kPatienceMax = 256;  // periods
  static constexpr int kGathersOfNew = 3, kSlowGathersMax = 3;

  void advance(Nanoseconds now);
  void end_period();
  void look_at_gather(const Collective& ended);
  void leave_switch();
  bool would_pay() const;

  int world_;
  std::map<Ticket, Collective> collectives_;    // handed over, and not ended
  std::array<int, 2> running_ = {};             // of them: all-gathers, reduce-scatters
  Nanoseconds advanced_at_ = 0, together_ = 0;  // so far, how long both kinds have run at the same time
  std::bitset<kLast> overlaps_;                 // of the last reduce-scatters: an all-gather ran beside it
  Period period_;
  std::array<double, 2> seconds_per_byte_ = {0, 0};  // among the ranks, in the switch; 0: not known
  bool wants_switch_ = false, is_new_ = false;       // is_new_: windows at the switch still grow
  double gather_seconds_per_byte_ = 0;               // of the last all-gathers alone, among the ranks; 0: not known
  int gathers_ = 0, slow_gathers_ = 0;               // alone, in the switch: since it is tried, and one after the other
  int periods_ = 0, tries_at_ = 0, patience_ = kPatienceMin;
};

}  // namespace netfold::group
