// Which of several links have news, by one look: epoll in real time (EpollSet), all of them in a simulation.
#pragma once

#include <memory>
#include <vector>

namespace netfold::link {

class PollSet {
 public:
  virtual ~PollSet() = default;

  virtual std::vector<int> ready() = 0;  // names of those that have something to read, or have ended
  virtual void add(int name, int descriptor) = 0;
  virtual void remove(int name, int descriptor) = 0;
  virtual int descriptor() const = 0;  // readable when ready() would return something; -1 in a simulation
};

std::unique_ptr<PollSet> epoll_set();

}  // namespace netfold::link
