#include "testing/meeting.h"

#include <utility>
#include <vector>

#include "testing/connected_ranks.h"

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
  std::vector<RankPlace> places;
  for (const auto& [rank, guest] : guests_) places.push_back({guest.ip, guest.on_news});
  auto connections = connect_ranks(around_.network, places, plan().stream, true);
  for (auto& [rank, guest] : std::exchange(guests_, {})) {
    around_.bits.on_admitted(life.number, {job_, rank}, guest.seed);
    guest.on_met(life, std::move(connections[static_cast<std::size_t>(rank)]));
  }
}

}  // namespace netfold::testing
