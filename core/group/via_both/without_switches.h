// Whether large tensors are faster without switches. The share (share.h) takes each switch for a way of its own. A
// switch on a worker's machine is none: its packets share the link of that worker with the ranks' packets, and each
// byte that goes through it makes the ranks slower. Such things do not show in a share. So tensors that take longer
// than the ranks would need by themselves make the ranks try a few without switches. Pure.
#pragma once

#include <vector>

namespace netfold::group {

class WithoutSwitches {
 public:
  // Whether the next tensor goes without switches.
  bool next();
  // A tensor took `times` as long as the ranks would need by themselves, over links that carry nothing else. It is
  // neither a probe of a switch nor of the link.
  void note(bool went_without, double times);
  // A switch has changed much. Tensors that were divided as it was before prove nothing.
  void begin_anew();

 private:
  enum class State { kWith, kTrying, kWithout };

  void become(State state);
  void compare();

  State state_ = State::kWith;
  std::vector<double> times_;  // of the last tensors of this state
  double with_ = 0;            // the median of those with switches, before the trial
  int seen_ = 0;               // tensors of this state
  int tries_after_ = 0;        // tensors with switches, at least
  int patience_ = kPatienceMin, stays_ = kPatienceMin;

  static constexpr int kPatienceMin = 64, kPatienceMax = 1024;
};

}  // namespace netfold::group
