// The part of a plan that concerns ranks among themselves: which jobs are of that kind, what they submit and what goes
// wrong with them. It is drawn from numbers of its own, so that it does not change what is drawn for the other jobs.
#pragma once

#include <array>

#include "base/prng.h"
#include "testing/plan.h"

namespace netfold::testing {

// How tensors may travel.
struct Travel {
  numbers::ElementType type;
  numbers::Format format;
};
inline constexpr std::array<Travel, 8> kTravels{{{numbers::ElementType::kFp32, numbers::Format::kFp32},
                                                 {numbers::ElementType::kFp32, numbers::Format::kFp16},
                                                 {numbers::ElementType::kFp32, numbers::Format::kBf16},
                                                 {numbers::ElementType::kFp32, numbers::Format::kBfp},
                                                 {numbers::ElementType::kFp16, numbers::Format::kFp16},
                                                 {numbers::ElementType::kBf16, numbers::Format::kBf16},
                                                 {numbers::ElementType::kFp16, numbers::Format::kBfp},
                                                 {numbers::ElementType::kInt32, numbers::Format::kInt32}}};

class PeerDrawing {
 public:
  explicit PeerDrawing(Plan& plan) : plan_(plan), prng_(plan.seed ^ 0x72696e67) {}

  void run();

 private:
  void draw_job(JobPlan& job);
  std::vector<int> draw_order(int world);
  StreamShape draw_stream();
  TensorPlan draw_tensor(const JobPlan& job);
  group::CollectiveRequest draw_collective(const JobPlan& job);
  void draw_fault(FaultPlan& fault);

  Plan& plan_;
  Prng prng_;
};

// Whether ranks among themselves can run this.
bool is_served(const JobPlan& job, group::CollectiveRequest request);
// After its world has changed: what cannot be run any more is run by the ring, or the like.
void fit_to_world(JobPlan& job);

}  // namespace netfold::testing
