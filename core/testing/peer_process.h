// A rank among ranks. What it runs is the real PeerSession over simulated streams; how ranks connect is simulated
// (meeting.h).
#pragma once

#include <memory>
#include <optional>

#include "group/via_peers/peer_session.h"
#include "testing/meeting.h"
#include "testing/rank_process.h"

namespace netfold::testing {

class PeerProcess final : public RankProcess {
 public:
  // `meeting` outlives it.
  PeerProcess(Surroundings& around, Meeting& meeting, Options options, std::function<void()> on_exit);
  ~PeerProcess() override { meeting_.go(options_.rank.rank); }

  // Its next collective is another than that of the others; `detail` says which.
  void disagree(std::uint64_t detail) { disagreement_ = detail; }
  // It submits nothing more, and leaves once what it has submitted is done; or at once, with a reason.
  void leave_early(bool with_a_reason);

 private:
  void join() override;
  void sleep(bool has_moved) override;
  bool rests() const override;
  group::CollectiveRequest ask(std::size_t index) override;
  std::optional<Nanoseconds> part(Nanoseconds now) override;

  Meeting& meeting_;
  bool has_come_ = false;
  std::optional<group::PeerConnections> connections_;  // until it begins
  AdmissionsChecker::Life life_;
  Nanoseconds begins_at_ = kNever;
  std::optional<std::uint64_t> disagreement_;
};

}  // namespace netfold::testing
