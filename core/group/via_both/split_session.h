// A rank's session both ways at once: a share of each large tensor goes through each of one or more switches, the rest
// is summed among the ranks by direct, which sums in the order of the switch. So the shares change no bit.
//
// A switch that is lost ends nothing: the parts at it are summed again, among the ranks (losses.h, part_again.h).
// Meanwhile the ranks try to join it again (switch_returns.h). When all have, rank 0 says from which piece on it has a
// share.
//
// A very large tensor runs in pieces, at most two at a time, so that its later pieces follow what the first ones found.
// Rank 0 decides the share of each (share.h). Its word for a piece leaves while the piece before it begins: then the
// others never wait for it. Small tensors go the faster way.
//
// Large reduce-scatters and all-gathers take one way, which rank 0's words say, too (one_way_choice.h). Through the
// switches, each of which has some of every rank's part; there reduce-scatters have a job of their own. Or among the
// ranks, as small ones and all other collectives do.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "group/scratch_pool.h"
#include "group/undo.h"
#include "group/via_both/kept_parts.h"
#include "group/via_both/leaving.h"
#include "group/via_both/losses.h"
#include "group/via_both/measurement.h"
#include "group/via_both/one_way_choice.h"
#include "group/via_both/part_again.h"
#include "group/via_both/share.h"
#include "group/via_both/share_report.h"
#include "group/via_both/share_word.h"
#include "group/via_both/switch_returns.h"
#include "group/via_both/taking_back.h"
#include "group/via_peers/peer_session.h"
#include "group/via_switch/switch_session.h"

namespace netfold::group {

class SplitSession final : public Session {
 public:
  static constexpr std::size_t kSplitBytesMin = std::size_t{1} << 20;  // on the wire; a smaller tensor is not divided
  // How long a rank that leaves stays for those that lack a sum. A switch that is silent for half as long is lost.
  static constexpr Nanoseconds kStayMax = 3 * kSecond;

  // All connected, of the same rank of the same world. `report` is kept up to date. What `returns` calls the switches
  // behind the last one are the jobs for reduce-scatters, in the same order.
  SplitSession(PeerSessionOptions options, std::vector<std::unique_ptr<SwitchSession>> in_switches,
               std::unique_ptr<PeerSession> among_ranks, std::shared_ptr<ShareReport> report,
               std::unique_ptr<SwitchReturns> returns);

  Result<bool> move() override;
  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override;
  bool is_idle() const override;
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override;
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  void set_timeout(Nanoseconds timeout) override;
  Nanoseconds deadline() const override;
  bool arm() override { return among_ranks_->arm(); }
  void add_polls(std::vector<pollfd>& polls) const override;
  void on_wake(std::span<const pollfd> polls) override;
  int life_line() const override { return among_ranks_->life_line(); }
  bool has_unsent() const override { return among_ranks_->has_unsent(); }
  nlohmann::json counters() const override;

 private:
  static constexpr Ticket kWordTicket = 0, kMeasurementTicket = ~Ticket{0};  // those of callers begin at 1

  struct Part {
    CollectiveRequest request;
    bool is_over = true;
    Nanoseconds begun = 0, took = 0;
    int left = 1;  // at a switch: portions that are not over
  };
  struct Tensor {
    Ticket ticket;
    CollectiveRequest request;
    std::unique_ptr<Prepared> prepared;  // of the only way that it takes
    std::shared_ptr<Undo> input = {};    // a copy, if something may have to be done again, or put back
    std::size_t begun = 0;               // elements: those before are in pieces
    int pieces = 0;                      // that run

    bool is_noted = false;  // by one_way_

    bool is_over() const { return begun == request.count && pieces == 0; }
  };
  // Of a large tensor: elements that follow each other, divided by a share of their own. Another tensor is one piece.
  struct Piece {
    Ticket ticket;  // at both sessions
    Tensor* tensor;
    bool is_divided;
    bool is_at_an_end = false;   // of a tensor of several pieces
    bool is_taken_back = false;  // some of it from a switch
    Share share = {};            // of a large one
    std::uint64_t number = 0;    // among the divided
    Nanoseconds begun = 0;
    std::size_t size_bytes = 0;
    std::vector<Part> in_switches = {};
    Part among_ranks = {};

    bool is_over_in_switches() const { return std::ranges::all_of(in_switches, &Part::is_over); }
    bool is_over() const { return is_over_in_switches() && among_ranks.is_over; }
  };
  // From joining a switch until it is lost.
  struct Life {
    std::unique_ptr<SwitchSession> session = nullptr;  // null: not joined yet, or lost
    KeptParts kept{};
    std::uint64_t handed_chunks = 0;
    std::uint64_t begun_parts = 0;
    int joined_ranks = 0;  // those that have said so
    SwitchRate rate = {};  // on rank 0
    bool is_held = false;  // nothing more is handed over, until rank 0 says which parts the ranks take back
    // Numbers of parts that the ranks take back, from and to, of which some have not begun here.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> taken_back = {};
  };
  // A job at a switch: all-reduces and all-gathers have one at each, reduce-scatters another one.
  struct Switch {
    std::string name = {};
    bool is_wanted = true;         // it is joined, or is to be
    std::vector<Life> lives = {};  // the last one is joined, or is to be
    std::size_t now = 0;           // the life that pieces belong to: alike on all ranks
    std::size_t next = 0;          // on rank 0: all ranks have joined
    Nanoseconds free_at = 0;       // when the last part ended there

    Life& current() { return lives[now]; }
    const Life& current() const { return lives[now]; }
  };

  static std::size_t encoded_bytes(const CollectiveRequest& request);
  static bool is_split(const CollectiveRequest& request);
  std::size_t whole_bytes(const CollectiveRequest& request) const;
  std::shared_ptr<Undo> new_input(const CollectiveRequest& request);
  bool start_next();
  void measure_next();
  bool is_faster_by_switch(const CollectiveRequest& request) const;
  void start_whole(Tensor& tensor);
  void start_piece(Tensor& tensor);
  void start_one_way(Tensor& tensor);
  bool one_way_needs_word() const;
  void start_whole_in_switch(std::size_t at, Piece& piece);
  void start_one_way_in_switches(Piece& piece);
  void keep_input(Tensor& tensor);
  static std::vector<std::size_t> cuts_of(std::size_t count, const std::vector<double>& shares, double whole);
  void join_scatters();
  Share take_share();
  Piece& new_piece(Tensor& tensor, bool is_divided);
  void send_word();
  void note_handed_over();
  bool is_large_one_way(const CollectiveRequest& request) const;
  bool waits_for_other_way(const CollectiveRequest& request, const Share& share) const;
  const char* one_way_algorithm(const CollectiveRequest& request, const Share& share) const;
  bool is_joined(std::size_t at) const;
  bool may_go_one_way(const Share& share) const;
  void start_in_switch(std::size_t at, Piece& piece);
  void hand_to_switch(std::size_t at, Ticket ticket, const CollectiveRequest& request);
  bool hand_over_parts(std::size_t at);
  static std::vector<CollectiveRequest> portions_of(const Piece& piece, const CollectiveRequest& part);
  void start_among_ranks(Piece& piece);
  void list_sessions();
  // Of the life that pieces belong to, or another: as Losses knows it.
  std::size_t number(std::size_t at) const { return number({at, switches_[at].now}); }
  std::size_t number(SwitchLife of) const { return of.at + of.life * switches_.size(); }
  bool is_lost(std::size_t at) const { return losses_.is_lost(number(at)); }
  void begin_lives();
  bool take_returned();
  void hear_joined(SwitchLife of);
  Result<void> look_at_losses();
  void lose(SwitchLife of, const Error& why);
  void begin_again(std::size_t lost);
  Result<void> check_silent(int rank, Nanoseconds since, const char* why);
  void look_at_rates();
  void look_at_rate(std::size_t at);
  Load load_of(std::size_t at);
  void expect_among_ranks(std::size_t size_bytes);
  bool awaits_taking_back() const;
  void hear_of_taking_back(const LifeLines::Note& note, SwitchLife of);
  void hold(SwitchLife of);
  void take_back(SwitchLife of, KeptParts& parts, std::uint64_t first, std::uint64_t end);
  void take_back_begun(SwitchLife of, KeptParts& parts, std::uint64_t first);
  void say_taken_back();
  void take_pace(double bytes_s);
  void ask_to_leave();
  void answer_the_leaving();
  bool is_needed() const;
  void report(ShareReport::News news);
  static void add_counters(nlohmann::json& sum, const nlohmann::json& more);
  void do_again(SwitchLife of, std::uint64_t part, const KeptPart& kept);
  PartAgain::Submit submit_message();
  bool end_message(Ticket ticket);
  void start_without_switch(std::size_t at, std::uint64_t first, KeptParts& parts, Piece& piece);
  void do_all_again(SwitchLife of, std::uint64_t first, const KeptParts& parts);
  void set_pace();
  bool collect();
  void end_of_measured();
  void take_word();
  void end_in_switch(std::size_t at, Ticket piece);
  void end_portion(Ticket piece, std::size_t at);
  void end_part(Part& part, Nanoseconds& way_free_at);
  void finish(const Piece& piece);
  bool is_for_the_ranks(const SwitchSession& session, const Error& error) const;
  void say_who_is_missing();
  Piece& running(Ticket ticket);

  PeerSessionOptions options_;
  ScratchPool buffers_;           // first: the copies of tensors go back to it, from wherever they are kept
  const std::size_t count_;       // of switches
  std::vector<Switch> switches_;  // their jobs, and behind them as many for reduce-scatters
  const std::unique_ptr<PeerSession> among_ranks_;
  const std::unique_ptr<SwitchReturns> returns_;  // null: what is lost stays lost
  std::vector<Session*> sessions_;                // those that are not lost, that among the ranks last
  ShareEstimate estimate_;
  std::optional<Share> decided_;              // of the next piece, on rank 0: it may go with several words
  OneWayChoice one_way_;                      // looked at on rank 0 only
  Share share_ = {};                          // of the next piece
  std::vector<std::size_t> next_lives_ = {};  // the lives of the switches that it uses
  ShareWord word_;                            // about the one after it, on its way
  bool awaits_word_ = false;
  std::optional<Measurement> measurement_;  // under way, or over and the share that follows from it not yet known
  // Where small tensors go (Share), as of the last piece that began: words come at other times on other ranks.
  std::uint32_t small_to_switch_ = 0;
  std::size_t small_switch_ = 0;
  bool has_measured_ = false;
  Nanoseconds ranks_free_at_ = 0, free_at_ = 0;            // when the last part among the ranks, the last piece ended
  std::deque<std::unique_ptr<Tensor>> waiting_, running_;  // in the order of submission
  std::deque<Piece> pieces_;                               // that run
  Ticket next_ticket_ = 1;
  Losses losses_;
  Leaving leaving_;
  TakingBack taking_back_;
  Nanoseconds held_since_ = 0;    // by what rank 0 has asked last
  Nanoseconds next_look_ = 0;     // at rates
  double ranks_due_ = 0;          // bytes that this rank has received among the ranks when all parts there are over
  std::uint64_t taken_back_ = 0;  // parts
  std::optional<Nanoseconds> stays_until_;  // this rank wants to leave; 0: it stays no longer
  Nanoseconds stalled_since_ = 0;           // what was at the switch that was lost last
  struct Again {                            // a part of a lost switch
    std::size_t at;
    std::unique_ptr<PartAgain> part;
  };
  std::vector<Again> again_;
  struct Moved {  // a part that was meant for a lost switch, in its turn among the ranks
    Ticket ticket, piece;
    std::size_t at;
  };
  std::vector<Moved> moved_;
  std::vector<Ticket> finished_;
  Nanoseconds time_ = 0;                                     // of the last pump
  std::uint64_t divided_ = 0;                                // pieces
  std::uint64_t one_way_begun_ = 0;                          // large ones
  bool was_scatter_ = false;                                 // the last of them
  Share one_way_share_ = {};                                 // of those since the last word about them
  std::uint64_t one_way_in_switch_ = 0;                      // reduce-scatters and all-gathers
  nlohmann::json past_counters_ = nlohmann::json::object();  // of lost sessions
  std::shared_ptr<ShareReport> report_;
};

}  // namespace netfold::group
