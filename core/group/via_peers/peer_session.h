// A rank's session among ranks: any schedule of any collective, over stream links and shared memory, messages between
// two ranks, and the errors that follow when a rank dies, leaves, stalls or does something else than the others.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/session.h"
#include "group/via_peers/carry_over.h"
#include "group/via_peers/direct.h"
#include "group/via_peers/executor.h"
#include "group/via_peers/life_lines.h"
#include "group/via_peers/messages.h"
#include "group/via_peers/plans.h"

namespace netfold::group {

struct PeerSessionOptions {
  int rank = 0, world = 1;
  Nanoseconds timeout = 30 * kSecond;  // for a collective to make progress
  bool elastic = false;  // the caller goes on without a rank that fails: one that is cut off is given up before that
};

// How a rank reaches all others.
struct PeerConnections {
  std::vector<std::unique_ptr<link::StreamLink>> data;      // by rank; null for this one
  std::vector<std::unique_ptr<link::StreamLink>> messages;  // the same, for messages; empty: none can be sent
  std::unique_ptr<LifeLines> life_lines;
  std::unique_ptr<link::Arena> arena;  // memory that all ranks map; null where not all are on one machine
  std::vector<std::shared_ptr<link::Doorbell>> bells;  // by rank; null where a rank is not reached over shared memory
  std::shared_ptr<link::Doorbell> bell;                // this rank's own; null without shared memory
};

class PeerSession final : public Session {
 public:
  // A rank that cannot be sure which rank stalls the others waits so much longer than the timeout. Another rank may be
  // sure, and says so first.
  static constexpr Nanoseconds kCourtesy = 500 * kMillisecond;

  // `plans`: of this rank, with the order of ranks that hdrm goes by.
  PeerSession(PeerSessionOptions options, PeerConnections connections, Plans plans, Nanoseconds now);
  ~PeerSession() override;

  Result<bool> move() override;
  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override;
  bool is_idle() const override;
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override;
  bool is_quick(const CollectiveRequest& request) const override;
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  void set_timeout(Nanoseconds timeout) override { options_.timeout = timeout; }
  Nanoseconds deadline() const override;
  bool arm() override;
  void add_polls(std::vector<pollfd>& polls) const override;
  void on_wake(std::span<const pollfd> polls) override;
  int life_line() const override { return connections_.life_lines->descriptor(); }
  bool has_unsent() const override;
  std::span<const int> share_core(int core) override;
  nlohmann::json counters() const override;

  // A request that prepare() has not seen, of an all-reduce by direct, or of a broadcast.
  void submit_unprepared(Ticket ticket, const CollectiveRequest& request);
  // The callers have waited for so long for another session, in which nothing moved. That counts for the timeout, too,
  // until this is called with 0.
  void set_lost_time(Nanoseconds lost_time) { lost_time_ = lost_time; }
  Nanoseconds last_progress() const { return last_progress_; }
  // Beside the collectives: a few numbers for the sessions of all other ranks.
  void say_note(const std::vector<std::uint64_t>& numbers) { connections_.life_lines->say_note(numbers); }
  void say_note_to(int rank, const std::vector<std::uint64_t>& numbers) {
    connections_.life_lines->say_note_to(rank, numbers);
  }
  std::vector<LifeLines::Note> take_notes() { return connections_.life_lines->take_notes(); }
  bool has_left(int rank) const { return connections_.life_lines->has_left(rank); }
  // For a caller that gives up after the timeout: an error that names the rank whose machine is cut off, if there is
  // evidence.
  std::optional<Error> cut_off() const;
  // For a caller that has waited for so long: an error once an elastic rank knows of a machine that is cut off. To be
  // asked again at silence_deadline().
  Result<void> check_silence(Nanoseconds waited);
  Nanoseconds silence_deadline() const;
  // Beside the collectives this rank waits for another one at a switch: the others hear of that, too.
  struct Elsewhere {
    int rank;
    Nanoseconds since;
  };
  void waits_elsewhere(std::optional<Elsewhere> elsewhere) { elsewhere_ = elsewhere; }
  // What this rank sends to all others leaves at so many bytes/s at most; 0: no limit.
  void pace(double bytes_s);
  std::uint64_t received_from_all() const;  // bytes so far

  // Before it leaves: the connections to these ranks outlive it, for another group. Once it has left: those that have
  // not ended. Nothing but counters() is called afterwards.
  void keep(const std::vector<int>& ranks) { connections_.life_lines->keep(ranks); }
  KeptPeers take_kept();

  bool shares_memory() const { return direct_ != nullptr; }  // all ranks do

 private:
  bool is_direct(const CollectiveRequest& request) const;
  Result<void> check_message(const CollectiveRequest& request) const;
  Result<void> check_parts(const CollectiveRequest& request) const;
  bool may_leave() const;
  template <class Visit>
  void each_link(Visit visit) const;
  std::uint64_t sent_to_all() const;
  bool waits_for(int rank) const;
  std::vector<int> blocking_ranks() const;
  Result<bool> look_at_the_others();
  Result<void> check_blocked_by_the_gone() const;
  bool is_blocked_by_the_gone(int rank, const std::unique_ptr<link::StreamLink>& link, bool waits) const;
  Result<void> check_messages_progress();
  Result<void> check_progress();
  Error cut_off_error(ErrorCode code, int rank, const std::string& so) const;
  Nanoseconds patience() const;
  Error timed_out(const Stall& stall) const;

  PeerSessionOptions options_;
  PeerConnections connections_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<DirectExecutor> direct_;  // where all ranks are on one machine
  std::unique_ptr<Messages> messages_;      // where there are links for them
  std::vector<Runner*> runners_;            // those
  std::uint64_t collectives_ = 0;           // so far
  Nanoseconds time_ = 0;                    // of the last pump
  Nanoseconds last_progress_ = 0, next_look_ = 0;
  Nanoseconds lost_time_ = 0;
  Nanoseconds messages_progress_ = 0;  // when a message moved last, or none waited
  bool have_messages_moved_ = false;   // since the last pump
  bool has_moved_ = false;             // since the last pump
  std::optional<Elsewhere> elsewhere_;
  std::vector<int> announced_;  // the ranks that this one has said it waits for
  Nanoseconds said_moving_ = 0;
  bool has_failed_ = false, has_left_ = false;
  Nanoseconds gives_up_at_ = kNever;       // of leaving, once that has begun
  std::uint64_t sent_before_goodbye_ = 0;  // bytes that had reached the kernel then

  Plans plans_;       // of prepare()
  Plans late_plans_;  // of submit_unprepared()
};

}  // namespace netfold::group
