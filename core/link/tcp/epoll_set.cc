#include <sys/epoll.h>
#include <unistd.h>

#include <array>

#include "link/poll_set.h"

namespace netfold::link {
namespace {

class EpollSet final : public PollSet {
 public:
  EpollSet() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~EpollSet() override { close(epoll_); }
  EpollSet(const EpollSet&) = delete;

  std::vector<int> ready() override {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    std::vector<int> names;
    for (int i = 0; i < count; ++i) names.push_back(events[static_cast<std::size_t>(i)].data.fd);
    return names;
  }
  void add(int name, int descriptor) override {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = name;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
  }
  void remove(int, int descriptor) override { epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr); }
  int descriptor() const override { return epoll_; }

 private:
  int epoll_;
};

}  // namespace

std::unique_ptr<PollSet> epoll_set() {
  return std::make_unique<EpollSet>();
}

}  // namespace netfold::link
