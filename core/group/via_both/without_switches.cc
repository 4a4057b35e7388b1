#include "group/via_both/without_switches.h"

#include <algorithm>
#include <cstddef>

namespace netfold::group {
namespace {

constexpr int kSettling = 2;                         // tensors that still ran beside those of the state before
constexpr std::size_t kLastWith = 16, kOfTrial = 8;  // tensors that are compared, by their medians
constexpr double kSlow = 1.05, kClearlyFaster = 0.95;

double median(std::vector<double> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::ranges::nth_element(of, middle);
  return *middle;
}

}  // namespace

bool WithoutSwitches::next() {
  if (state_ == State::kWithout && seen_ >= stays_) {  // the switches may have become better
    stays_ = std::min(2 * stays_, kPatienceMax);
    tries_after_ = 0;
    become(State::kWith);
  }
  return state_ != State::kWith;
}

void WithoutSwitches::note(bool went_without, double times) {
  if (went_without != (state_ != State::kWith)) return;
  if (++seen_ <= kSettling) return;
  times_.push_back(times);
  if (state_ == State::kTrying && times_.size() == kOfTrial) return compare();
  if (times_.size() > kLastWith) times_.erase(times_.begin());
  if (state_ != State::kWith || times_.size() < kLastWith || seen_ < tries_after_) return;
  with_ = median(times_);
  if (with_ > kSlow) become(State::kTrying);
}

void WithoutSwitches::begin_anew() {
  if (state_ == State::kWith) become(State::kWith);
}

void WithoutSwitches::compare() {
  const bool is_faster = median(times_) < kClearlyFaster * with_;
  if (!is_faster) {
    tries_after_ = patience_;
    patience_ = std::min(2 * patience_, kPatienceMax);
    stays_ = kPatienceMin;
  } else {
    patience_ = kPatienceMin;
  }
  become(is_faster ? State::kWithout : State::kWith);
}

void WithoutSwitches::become(State state) {
  state_ = state;
  times_.clear();
  seen_ = 0;
}

}  // namespace netfold::group
