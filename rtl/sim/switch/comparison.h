// Compares the frames that leave the hardware and the software after the same input. Each port's frames are compared as
// a set, because the hardware may choose the order of frames of two ports.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "numbers/format.h"
#include "switch/software_switch.h"

namespace netfold::rtl {

class Comparison {
 public:
  // Of sums in this format, if it has NaNs, any equals any other.
  Comparison(unsigned ports, numbers::Format format)
      : software_(ports, {.jobs_max = 1}), format_(format), owed_(ports) {}

  SoftwareSwitch& software() { return software_; }
  // At its last beat, in this order. Damaged frames go only to the hardware, which must mark or drop them.
  void entered(unsigned port, const TimedFrame& frame);
  void left(unsigned port, const TimedFrame& frame);

  std::size_t owed() const { return owed_frames_; }  // frames that the software has sent and the hardware has not yet
  // Counts each frame that is still missing as a difference. Returns all differences so far.
  std::uint64_t close();
  // compared; sums among them; differences; damaged frames that left marked so; examples of the first differences.
  nlohmann::json to_json() const;
  std::uint64_t differences() const { return differences_; }
  std::uint64_t sums() const { return sums_; }

 private:
  std::string canonical(const Bytes& frame) const;
  void differ(const char* what, unsigned port, const std::string& frame);

  SoftwareSwitch software_;
  numbers::Format format_;
  std::vector<std::unordered_map<std::string, int>> owed_;  // by port: frames, and how many
  std::size_t owed_frames_ = 0;
  std::uint64_t compared_ = 0, sums_ = 0, differences_ = 0, damaged_ = 0;
  std::vector<std::string> examples_;
};

}  // namespace netfold::rtl
