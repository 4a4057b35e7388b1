// The session of a rank with a Verilated smart NIC: FP32 all-reduces by the ring go through the NIC, other collectives
// through a session among ranks. Each pump runs some cycles of the NIC, while there is work or a neighbour may miss a
// frame.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "device.h"
#include "group/session.h"
#include "group/via_peers/peer_session.h"
#include "link/link.h"

namespace netfold::rtl {

class NicSession final : public group::Session {
 public:
  // `addresses`: of the ranks. The session gets their ports for frames itself.
  NicSession(group::PeerSessionOptions options, std::unique_ptr<group::PeerSession> peers,
             std::unique_ptr<link::Link> link, std::vector<link::Address> addresses);

  Result<bool> move() override { return peers_->move(); }
  Result<bool> pump(Nanoseconds now) override;
  void submit(group::Ticket ticket, const group::CollectiveRequest& request,
              std::unique_ptr<group::Prepared> prepared) override;
  std::vector<group::Ticket> take_finished() override;
  bool is_idle() const override { return works_.empty() && peers_->is_idle(); }
  Result<std::unique_ptr<group::Prepared>> prepare(const group::CollectiveRequest& request) override;
  std::vector<group::Ticket> abort(const Error& error, Nanoseconds now) override;
  bool leave(const std::optional<Error>& error, Nanoseconds now) override;
  Nanoseconds deadline() const override;
  bool arm() override { return peers_->arm(); }
  void add_polls(std::vector<pollfd>& polls) const override;
  void on_wake(std::span<const pollfd> polls) override;
  int life_line() const override { return peers_->life_line(); }
  bool has_unsent() const override { return peers_->has_unsent(); }
  // Counters of the ranks' session and of the NIC: nic_cycles (with requests in flight), nic_wall_s (their wall-clock
  // time), nic_cycles_per_s, nic_time_200_mhz_s, nic_requests.
  nlohmann::json counters() const override;

 private:
  // One all-reduce. A separate buffer holds its sums until the end, so that a failure leaves the tensor unchanged.
  struct Work {
    group::Ticket ticket;
    group::CollectiveRequest request;
    std::vector<float> sums;
    std::size_t posted = 0, ended = 0;  // slices

    std::size_t slices() const;
  };

  bool serves(const group::CollectiveRequest& request) const;
  void ask_for_ports();
  void take_ports();
  bool turn(unsigned cycles);
  void exchange(const std::vector<Frame>& leaving);
  void join_ring();
  void post();
  Result<void> take_ended();
  void finish(Work& work);
  Result<void> check_progress(Nanoseconds now);
  bool link_is_idle();

  const group::PeerSessionOptions options_;
  std::unique_ptr<group::PeerSession> peers_;
  std::unique_ptr<link::Link> link_;
  std::vector<link::Address> addresses_;  // by rank
  std::int32_t own_port_ = 0;
  std::vector<std::int32_t> ports_;  // by rank, once has_ports_
  bool has_ports_ = false;

  Device device_;
  std::optional<bool> is_bfp_;  // the format of the ring, after its set-up
  std::deque<Work> works_;
  std::vector<group::Ticket> finished_;
  std::uint16_t next_tag_ = 0;
  std::uint64_t quiet_cycles_ = 0;  // without a frame either way
  std::uint64_t host_beats_ = 0;    // at the last check
  bool has_begun_ = false;          // something was submitted since the last pump
  Nanoseconds time_ = 0, last_progress_ = 0, closing_since_ = 0;
  std::uint64_t nic_cycles_ = 0, nic_requests_ = 0;
  Nanoseconds nic_wall_ = 0;

  std::optional<bool> agreed_bfp_;  // of prepare(): the ring has the format of its first all-reduce, on all ranks
};

}  // namespace netfold::rtl
