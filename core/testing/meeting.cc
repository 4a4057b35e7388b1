#include "testing/meeting.h"

#include <utility>
#include <vector>

#include "testing/all_of_them.h"

namespace netfold::testing {
namespace {

constexpr Nanoseconds kLookPeriod = 100 * kMillisecond;  // while a way is blocked

}  // namespace

void Meeting::come(int rank, Guest guest) {
  guests_[rank] = std::move(guest);
  look();
}

bool Meeting::reach_each_other() const {
  for (const auto& [rank, guest] : guests_) {
    for (const auto& [other, its] : guests_) {
      if (around_.network.is_blocked(guest.ip, its.ip)) return false;
    }
  }
  return true;
}

void Meeting::look() {
  const int world = plan().world;
  if (is_looking_ || static_cast<int>(guests_.size()) != world) return;
  if (!reach_each_other()) {
    is_looking_ = true;
    return around_.timeline.after(kLookPeriod, [this] {
      is_looking_ = false;
      look();
    });
  }
  const AdmissionsChecker::Life life = around_.admissions.begin_life();
  around_.history.note("the ranks of job-{} have met", job_);
  std::vector<group::PeerConnections> connections(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    auto& own = connections[static_cast<std::size_t>(rank)];
    own.data.resize(static_cast<std::size_t>(world));
    own.bells.resize(static_cast<std::size_t>(world));
    own.life_lines = std::make_unique<group::LifeLines>(rank, world, std::make_unique<AllOfThem>());
  }
  for (int lower = 0; lower < world; ++lower) {
    for (int upper = lower + 1; upper < world; ++upper) {
      const std::array ranks{lower, upper};
      const Guest& one = guests_[lower];
      const Guest& two = guests_[upper];
      auto lines = around_.network.connect_lines(one.ip, two.ip);
      auto streams = around_.network.connect_streams(one.ip, two.ip, plan().stream, {one.on_news, two.on_news});
      for (const std::size_t end : {0, 1}) {
        auto& own = connections[static_cast<std::size_t>(ranks[end])];
        on_news_of(*lines[end], guests_[ranks[end]].on_news);
        own.life_lines->add(ranks[1 - end], std::move(lines[end]));
        own.data[static_cast<std::size_t>(ranks[1 - end])] = std::move(streams[end]);
      }
    }
  }
  for (auto& [rank, guest] : std::exchange(guests_, {})) {
    around_.bits.on_admitted(life.number, {job_, rank}, guest.seed);
    guest.on_met(life, std::move(connections[static_cast<std::size_t>(rank)]));
  }
}

}  // namespace netfold::testing
