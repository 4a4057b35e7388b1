// Latencies of one kind of frame: exact counts, reported as a histogram.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include <nlohmann/json.hpp>

#include "switch/mac.h"

namespace netfold::rtl {

class Latencies {
 public:
  void add(Ticks latency) {
    ++counts_[latency];
    ++total_;
  }
  std::uint64_t count() const { return total_; }
  double quantile_ns(double share) const {
    std::uint64_t left = static_cast<std::uint64_t>(share * static_cast<double>(total_));
    for (const auto& [latency, count] : counts_) {
      if (count > left) return in_ns(latency);
      left -= count;
    }
    return counts_.empty() ? 0 : in_ns(counts_.rbegin()->first);
  }
  // count, min_ns, median_ns, p99_ns, max_ns; histogram: [ns, frames], by 5 ns.
  nlohmann::json to_json() const {
    if (total_ == 0) return {{"count", 0}};
    std::map<Ticks, std::uint64_t> bins;
    for (const auto& [latency, count] : counts_) bins[latency / kBin] += count;
    nlohmann::json histogram = nlohmann::json::array();
    for (const auto& [bin, count] : bins) histogram.push_back({static_cast<double>(bin * kBin) / kTicksPerNs, count});
    return {{"count", total_},
            {"min_ns", in_ns(counts_.begin()->first)},
            {"median_ns", quantile_ns(0.5)},
            {"p99_ns", quantile_ns(0.99)},
            {"max_ns", in_ns(counts_.rbegin()->first)},
            {"histogram", histogram}};
  }

 private:
  static constexpr Ticks kBin = kCorePeriod;
  static double in_ns(Ticks ticks) { return static_cast<double>(ticks) / kTicksPerNs; }

  std::map<Ticks, std::uint64_t> counts_;
  std::uint64_t total_ = 0;
};

}  // namespace netfold::rtl
