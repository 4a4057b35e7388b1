#include "switch/fair_shares.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace netfold::switching {
namespace {

constexpr double kMore = 1.1, kLess = 0.9;  // smaller differences come and go by themselves
constexpr double kMoreThanOthers = 1.02;    // while other traffic has less than is fair: it takes what is left, at once
constexpr double kLeastPart = 0.01;         // of all bytes: a job that has less hardly runs
constexpr double kCompetesFrom = 0.5;       // of what it has on the other way
constexpr double kOthersLeast = 0.0025;     // of the interface's bytes: other traffic that has less does not compete
// The kernel counts a packet some milliseconds before the switch does. In the mean of many looks that is nothing.
constexpr double kNewPart = 1.0 / 8;
constexpr double kSaidLeast = 0.8;    // of what the switch counts; a driver that says less is late
constexpr int kDoubtedLooks = 40;     // 10 s
constexpr double kGrantedAtOnce = 2;  // times what the job has

using Bytes = FairShares::Bytes;
using Way = std::uint64_t Bytes::*;

std::optional<Bytes> difference(const Bytes& now, const Bytes& before) {
  if (now.up < before.up || now.down < before.down) return std::nullopt;  // then it had another's counters
  return Bytes{.up = now.up - before.up, .down = now.down - before.down};
}

bool competes(const Bytes& bytes, Way way) {
  return static_cast<double>(bytes.*way) >= kCompetesFrom * static_cast<double>(std::max(bytes.up, bytes.down));
}

// The jobs at one interface, or those of which it is not known.
struct Together {
  struct Member {
    FairShares::Job job;
    Bytes bytes;
    double contributors;
  };
  std::vector<Member> jobs;
  Bytes all;     // of these jobs
  Bytes others;  // of other traffic

  void set_others(const Bytes& carried, const Bytes& own, const Bytes& carried_lately, const Bytes& own_lately) {
    for (const Way way : {&Bytes::up, &Bytes::down}) {
      const auto lately = static_cast<double>(carried_lately.*way);
      const bool has_others = lately - static_cast<double>(own_lately.*way) >= kOthersLeast * lately;
      others.*way = has_others && carried.*way > own.*way ? carried.*way - own.*way : 0;
    }
  }

  // Adds to `said` what the jobs that compete for this way should hear, after so many seconds.
  void say(Way way, double seconds, std::map<FairShares::Job, control::LinkShare>& said) const {
    std::vector<const Member*> competing;
    double sum = 0;
    for (const Member& member : jobs) {
      const auto here = static_cast<double>(member.bytes.*way);
      if (here < kLeastPart * static_cast<double>(all.*way) || !competes(member.bytes, way)) continue;
      competing.push_back(&member);
      sum += here;
    }
    const auto beside = static_cast<double>(competes(others, way) ? others.*way : 0);
    const double fair = (sum + beside) / static_cast<double>(competing.size() + (beside > 0 ? 1 : 0));
    for (const Member* member : competing) {
      const auto here = static_cast<double>(member->bytes.*way);
      control::LinkShare& share = said[member->job];
      const double more = beside > 0 && beside <= kLess * fair ? kMoreThanOthers : kMore;
      if (here >= more * fair && fair > 0) share.of_fair = std::max(share.of_fair, here / fair);
      if (here > kLess * fair || beside < kMore * fair) continue;
      const double granted = std::min(fair, kGrantedAtOnce * here);
      share.grant_bytes_s = std::max(share.grant_bytes_s, granted / member->contributors / seconds);
    }
  }
};

}  // namespace

// A driver that reads its counters from the device once a second says nothing at some looks, and too much at others.
const FairShares::Lately& FairShares::remember(const std::string& interface, const Bytes& carried, const Bytes& own) {
  const auto [found, is_new] = lately_.try_emplace(interface, Lately{carried, own});
  Lately& lately = found->second;
  const auto mix = [&](std::uint64_t& mean, std::uint64_t latest) {
    const double part = is_new ? 1 : kNewPart;
    mean = static_cast<std::uint64_t>((1 - part) * static_cast<double>(mean) + part * static_cast<double>(latest));
  };
  if (lately.doubts > 0) --lately.doubts;
  for (const Way way : {&Bytes::up, &Bytes::down}) {
    mix(lately.carried.*way, carried.*way);
    mix(lately.own.*way, own.*way);
    if (static_cast<double>(carried.*way) < kSaidLeast * static_cast<double>(own.*way)) lately.doubts = kDoubtedLooks;
  }
  return lately;
}

std::map<FairShares::Job, control::LinkShare> FairShares::look(const std::map<Job, Share>& so_far,
                                                               const std::map<std::string, Interface>& interfaces,
                                                               Nanoseconds now) {
  std::map<std::string, Together> lately;  // by interface
  for (const auto& [job, share] : so_far) {
    const auto before = before_.find(job);
    const auto bytes = before == before_.end() ? std::nullopt : difference(share.bytes, before->second);
    if (!bytes) continue;  // it has just begun
    Together& here = lately[share.interface];
    here.jobs.push_back({job, *bytes, static_cast<double>(std::max<std::size_t>(1, share.contributors))});
    here.all.up += bytes->up;
    here.all.down += bytes->down;
  }
  std::map<Job, control::LinkShare> said;
  for (auto& [interface, here] : lately) {
    const auto after = interfaces.find(interface);
    const auto before = std::as_const(interfaces_before_).find(interface);
    if (after != interfaces.end() && before != interfaces_before_.end()) {
      const auto carried = difference(after->second.carried, before->second.carried);
      const auto own = difference(after->second.own, before->second.own);
      if (carried && own) {
        const Lately& mean = remember(interface, *carried, *own);
        if (mean.doubts == 0) here.set_others(*carried, *own, mean.carried, mean.own);
      }
    }
    for (const Way way : {&Bytes::up, &Bytes::down}) here.say(way, to_seconds(now - looked_at_), said);
  }
  std::erase_if(said, [](const auto& each) { return each.second == control::LinkShare{}; });
  // To give way comes first: the job has more than is fair on one of its ways.
  for (auto& [job, share] : said) {
    if (share.of_fair > 1) share.grant_bytes_s = 0;
  }
  before_.clear();
  for (const auto& [job, share] : so_far) before_[job] = share.bytes;
  interfaces_before_ = interfaces;
  looked_at_ = now;
  return said;
}

}  // namespace netfold::switching
