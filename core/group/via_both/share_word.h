// What rank 0 tells the others about the next piece of a large tensor, in whole numbers: its share, and which life of
// each switch it uses. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "group/via_both/share.h"

namespace netfold::group {

class ShareWord {
 public:
  // Shares are of so many switches. There are as many lives, or more: those of other jobs at switches.
  ShareWord(std::size_t switches, std::size_t lives)
      : switches_(switches), lives_(lives), numbers_(kFixed + switches + lives) {}

  void write(const Share& share, const std::vector<std::size_t>& lives);
  Share share() const;
  // Of each switch and other job: how often it was lost before (losses.h).
  std::vector<std::size_t> lives() const;

  std::vector<std::int32_t>& numbers() { return numbers_; }  // as they travel

 private:
  static constexpr std::size_t kFixed = 6;  // numbers before those of the switches

  std::size_t switches_, lives_;
  std::vector<std::int32_t> numbers_;
};

}  // namespace netfold::group
