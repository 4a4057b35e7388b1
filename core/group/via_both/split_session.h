// A rank's session both ways at once: a share of each large tensor goes through a switch, the rest is summed among the
// ranks by direct, which sums in the order of the switch. So the share changes no bit.
//
// Rank 0 decides the share (share.h). Its word for a tensor leaves while the tensor before it begins: then the others
// never wait for it. Small tensors go one way, and collectives other than all-reduce among the ranks.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "group/scratch_pool.h"
#include "group/undo.h"
#include "group/via_both/share.h"
#include "group/via_peers/peer_session.h"
#include "group/via_switch/switch_session.h"

namespace netfold::group {

// The last share of a tensor that did not measure and, on rank 0, the estimates behind it, for other threads. 0: none
// yet. They may belong to two tensors.
struct ShareReport {
  std::atomic<double> of_switch = 0, switch_bytes_s = 0, link_bytes_s = 0;
};

class SplitSession final : public Session {
 public:
  static constexpr std::size_t kSplitBytesMin = std::size_t{256} << 10;  // on the wire; a smaller tensor is not divided

  // Both connected, of the same rank of the same world. `report` is kept up to date.
  SplitSession(int rank, int world, std::unique_ptr<SwitchSession> in_switch, std::unique_ptr<PeerSession> among_ranks,
               std::shared_ptr<ShareReport> report);

  Result<bool> move() override;
  Result<bool> pump(Nanoseconds now) override;
  void submit(Ticket ticket, const CollectiveRequest& request, std::unique_ptr<Prepared> prepared) override;
  std::vector<Ticket> take_finished() override;
  bool is_idle() const override;
  Result<std::unique_ptr<Prepared>> prepare(const CollectiveRequest& request) override;
  std::vector<Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  Nanoseconds deadline() const override;
  bool arm() override { return among_ranks_->arm(); }
  void add_polls(std::vector<pollfd>& polls) const override;
  void on_wake(std::span<const pollfd> polls) override;
  int life_line() const override { return in_switch_->life_line(); }
  bool has_unsent() const override { return among_ranks_->has_unsent(); }
  nlohmann::json counters() const override;

 private:
  struct Part {
    CollectiveRequest request;
    bool is_over = true;
    Nanoseconds begun = 0, took = 0;
  };
  struct Tensor {
    Ticket ticket;
    CollectiveRequest request;
    std::unique_ptr<Prepared> prepared;  // of the only way that it takes
    Undo undo = {};                      // if both parts write over what was handed over
    Share share = {};
    std::uint64_t number = 0;  // among the divided
    bool is_divided = false;
    Part in_switch = {}, among_ranks = {};

    bool is_over() const { return in_switch.is_over && among_ranks.is_over; }
  };
  // What rank 0 says about a tensor, in whole numbers.
  using Word = std::array<std::int32_t, 4>;

  static Word word_of(const Share& share);
  Share share_in(const Word& word) const;
  static std::size_t encoded_bytes(const CollectiveRequest& request);
  static bool is_split(const CollectiveRequest& request);
  bool start_next();
  void start_whole(Tensor& tensor);
  void start_divided(Tensor& tensor);
  void send_word();
  void start_in_switch(Tensor& tensor);
  void start_among_ranks(Tensor& tensor);
  void set_pace();
  bool collect();
  void end_part(Part& part, Nanoseconds& way_free_at);
  void finish(Tensor& tensor);
  Tensor& running(Ticket ticket);

  const int rank_, world_;
  std::unique_ptr<SwitchSession> in_switch_;
  std::unique_ptr<PeerSession> among_ranks_;
  ShareEstimate estimate_;
  Share share_ = {};  // of the next large tensor
  Word word_ = {};    // about the one after it, on its way
  bool awaits_word_ = false, waits_its_turn_ = false;
  bool small_to_switch_ = true;  // as of the last large tensor that began: words come at other times on other ranks
  Nanoseconds switch_free_at_ = 0, ranks_free_at_ = 0;  // when the last part ended there
  std::deque<Tensor> waiting_, running_;                // in the order of submission
  std::vector<Ticket> finished_;
  ScratchPool buffers_;
  Nanoseconds time_ = 0;       // of the last pump
  std::uint64_t divided_ = 0;  // tensors
  std::shared_ptr<ShareReport> report_;
};

}  // namespace netfold::group
