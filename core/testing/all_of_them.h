// A set of links of which each may have something, for links that are not the kernel's: its user looks at all of them.
#pragma once

#include <vector>

#include "link/poll_set.h"

namespace netfold::testing {

class AllOfThem final : public link::PollSet {
 public:
  std::vector<int> ready() override { return names_; }
  void add(int name, int) override { names_.push_back(name); }
  void remove(int name, int) override { std::erase(names_, name); }
  int descriptor() const override { return -1; }

 private:
  std::vector<int> names_;
};

}  // namespace netfold::testing
