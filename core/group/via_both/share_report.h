// What a split session says to other threads: its share, and what happens to switches.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace netfold::group {

// The last share of all switches and, on rank 0, the estimates behind it. 0: none yet. They may belong to two tensors.
struct ShareReport {
  std::atomic<double> of_switch = 0, switch_bytes_s = 0, link_bytes_s = 0;
  struct News {
    std::string switch_name;
    std::string why;  // it was lost; "": it is back
  };
  std::mutex mutex;
  std::vector<News> news = {};  // since they were last taken
};

}  // namespace netfold::group
