// Samples of a time, and their quantiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace netfold::apps {

struct Distribution {
  static constexpr std::size_t kSamplesMax = 1u << 20;
  std::vector<float> values;  // microseconds

  void add(double microseconds) {
    if (values.size() < kSamplesMax) values.push_back(static_cast<float>(microseconds));
  }
  double quantile(double q) {
    if (values.empty()) return 0;
    const auto place = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + place, values.end());
    return values[static_cast<std::size_t>(place)];
  }
};

}  // namespace netfold::apps
